"""The steps of a pipeline, the same in Compositions, their revisions and Operations.

`name` is an alias of `step`, so the list cannot be merged by that key: it is replaced as a whole, and a rule keeps the
names apart. `planform.pipeline.steps.parse_pipeline` reads what these schemas let through.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from msgspec import UNSET, UnsetType

from planform.api.declarations import Declared, Schema, described, rule, ruled, schema_of
from planform.api.references import KindRef, MatchLabels, NameRef, ObjectRef, SecretRef

DURATION: Final = r"^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$"
"""Go's durations, such as 1m30s."""
MAX_STEPS: Final = 99
_STEP_NAME: Final = 63
_NAME_OF: Final = "has({0}.step) ? {0}.step : {0}.name"
_DISTINCT: Final = f"self.all(a, self.exists_one(b, ({_NAME_OF.format('a')}) == ({_NAME_OF.format('b')})))"

RequirementName = Annotated[str, described("The name under which the function finds it.", min_length=1, max_length=253)]


class Credentials(Declared, frozen=True, kw_only=True):
    """Credentials for the function."""

    SCHEMA: ClassVar = ruled(
        rule("self.source == 'Secret' && has(self.secretRef)", "the source must be Secret, with a secretRef")
    )

    name: Annotated[
        str, described("The name under which the function finds the credentials.", min_length=1, max_length=253)
    ]
    source: Annotated[Literal["None", "Secret"], described("Where they come from.")]
    secret_ref: Annotated[SecretRef, described("The Secret whose data the function is given.")] | UnsetType = UNSET


class RequiredResource(KindRef, frozen=True, kw_only=True):
    """Resources that the function is given with its first call."""

    SCHEMA: ClassVar = ruled(
        rule("!has(self.name) || !has(self.matchLabels)", "name and matchLabels exclude each other"),
        required=["requirementName", "apiVersion", "kind"],
    )

    requirement_name: RequirementName
    namespace: (
        Annotated[str, described("Namespace of the resources, if their kind is namespaced.", max_length=253)]
        | UnsetType
    ) = UNSET
    name: Annotated[str, described("Name of the one resource; excludes matchLabels.", max_length=253)] | UnsetType = (
        UNSET
    )
    match_labels: (
        Annotated[
            dict[str, str], described("Labels of the resources; without name and labels, all of the kind are given.")
        ]
        | UnsetType
    ) = UNSET


class RequiredSchema(KindRef, frozen=True, kw_only=True):
    """A kind whose OpenAPI schema the function is given with its first call."""

    SCHEMA: ClassVar = ruled(required=["requirementName", "apiVersion", "kind"])

    requirement_name: RequirementName


class Requirements(Declared, frozen=True, kw_only=True):
    """What is fetched before the function is called for the first time."""

    required_resources: (
        Annotated[list[RequiredResource], described("Resources to fetch first.", by="requirementName", max_items=64)]
        | UnsetType
    ) = UNSET
    required_schemas: (
        Annotated[list[RequiredSchema], described("Schemas to fetch first.", by="requirementName", max_items=64)]
        | UnsetType
    ) = UNSET


class AllowedResources(KindRef, frozen=True, kw_only=True):
    """A kind of which the function may ask for resources: all, or those that match."""

    SCHEMA: ClassVar = ruled(
        rule(
            "!(has(self.matchName) || has(self.name)) || !has(self.matchLabels)",
            "a name and matchLabels exclude each other",
        )
    )

    match_name: Annotated[str, described("Regular expression for the whole name.")] | UnsetType = UNSET
    name: Annotated[str, described("Alias of matchName.")] | UnsetType = UNSET
    match_labels: (
        Annotated[dict[str, str], described("Regular expressions for the whole values of labels.")] | UnsetType
    ) = UNSET


class PipelineStep(Declared, frozen=True, kw_only=True):
    """One call of one function."""

    SCHEMA: ClassVar = ruled(
        rule("has(self.step) || has(self.name)", "a step needs a name"),
        rule("!has(self.step) || !has(self.name) || self.step == self.name", "name is only an alias of step"),
        rule("!has(self.input) || !has(self.inputRef)", "input and inputRef exclude each other"),
    )

    step: (
        Annotated[str, described("Name of the step, unique in its pipeline.", min_length=1, max_length=_STEP_NAME)]
        | UnsetType
    ) = UNSET
    name: Annotated[str, described("Deprecated alias of `step`.", min_length=1, max_length=_STEP_NAME)] | UnsetType = (
        UNSET
    )
    function_ref: Annotated[NameRef, described("The Function to call.")]
    function_revision_ref: (
        Annotated[NameRef, described("The revision of the function to call, by name; wins over the selector.")]
        | UnsetType
    ) = UNSET
    function_revision_selector: (
        Annotated[MatchLabels, described("Call the newest active revision of the function with these labels.")]
        | UnsetType
    ) = UNSET
    input: (
        Annotated[
            dict[str, Any] | None,
            described(
                "What the function is told by the author of the pipeline: an object with apiVersion and kind.",
                embedded=True,
                nullable=True,
            ),
        ]
        | UnsetType
    ) = UNSET
    input_ref: (
        Annotated[ObjectRef, described("An object that holds the input, for several pipelines to share.")] | UnsetType
    ) = UNSET
    credentials: (
        Annotated[list[Credentials], described("Secrets that the function needs.", by="name", max_items=64)] | UnsetType
    ) = UNSET
    requirements: Requirements | UnsetType = UNSET
    allowed_extra_resources: (
        Annotated[
            list[AllowedResources],
            described("What the function may ask for; if given, everything else is denied.", max_items=100),
        ]
        | UnsetType
    ) = UNSET
    max_iterations: (
        Annotated[
            int,
            described(
                "How often the function may ask for more resources; -1 means until the timeout.",
                minimum=-1,
                format="int32",
            ),
        ]
        | UnsetType
    ) = UNSET
    timeout: (
        Annotated[str, described("How long the step may take in all, such as 30s; 60s if absent.", pattern=DURATION)]
        | UnsetType
    ) = UNSET


Pipeline = Annotated[
    list[PipelineStep],
    described(
        "The functions to call, one after the other. Each is given what the ones before it want.",
        min_items=1,
        max_items=MAX_STEPS,
        rules=[
            rule(
                f"!self.all(s, has(s.step) || has(s.name)) || {_DISTINCT}",
                "each step of the pipeline needs a name of its own",
            )
        ],
    ),
]
"""`spec.pipeline`: 1 to 99 steps with distinct names."""


def pipeline() -> Schema:
    """The schema of `spec.pipeline`."""
    return schema_of(Pipeline)
