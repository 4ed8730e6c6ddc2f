"""The steps of a pipeline, the same in Compositions, their revisions and Operations.

`name` is an alias of `step`, so the list cannot be merged by that key: it is replaced as a whole, and a rule keeps the
names apart. `composition.steps.parse_pipeline` reads what these schemas let through.
"""

from __future__ import annotations

from typing import Final

from planform.api.extensions.vocabulary import (
    DURATION,
    Schema,
    embedded,
    kind_ref,
    labels,
    many,
    match_labels,
    name_ref,
    number,
    object_ref,
    record,
    rule,
    secret_ref,
    text,
)

MOST_STEPS: Final = 99
_STEP_NAME: Final = 63


def pipeline() -> Schema:
    """`spec.pipeline`: 1 to 99 steps with distinct names."""
    name_of = "has({0}.step) ? {0}.step : {0}.name"
    distinct = f"self.all(a, self.exists_one(b, ({name_of.format('a')}) == ({name_of.format('b')})))"
    return many(
        "The functions to call, one after the other. Each is given what the ones before it want.",
        step(),
        least=1,
        most=MOST_STEPS,
        rules=[
            rule(
                f"!self.all(s, has(s.step) || has(s.name)) || {distinct}",
                "each step of the pipeline needs a name of its own",
            )
        ],
    )


def step() -> Schema:
    """One call of one function."""
    fields = {
        "step": text("Name of the step, unique in its pipeline.", shortest=1, longest=_STEP_NAME),
        "name": text("Deprecated alias of `step`.", shortest=1, longest=_STEP_NAME),
        "functionRef": name_ref("The Function to call."),
        "functionRevisionRef": name_ref("The revision of the function to call, by name; wins over the selector."),
        "functionRevisionSelector": match_labels("Call the newest active revision of the function with these labels."),
        "input": embedded(
            "What the function is told by the author of the pipeline: an object with apiVersion and kind."
        ),
        "inputRef": object_ref("An object that holds the input, for several pipelines to share."),
        "credentials": _credentials(),
        "requirements": _requirements(),
        "allowedExtraResources": _allowed_resources(),
        "maxIterations": {
            **number("How often the function may ask for more resources; -1 means until the timeout.", least=-1),
            "format": "int32",
        },
        "timeout": text("How long the step may take in all, such as 30s; 60s if absent.", pattern=DURATION),
    }
    return record(
        "One call of one function.",
        fields,
        required=["functionRef"],
        rules=[
            rule("has(self.step) || has(self.name)", "a step needs a name"),
            rule("!has(self.step) || !has(self.name) || self.step == self.name", "name is only an alias of step"),
            rule("!has(self.input) || !has(self.inputRef)", "input and inputRef exclude each other"),
        ],
    )


def _credentials() -> Schema:
    fields = {
        "name": text("The name under which the function finds the credentials.", shortest=1, longest=253),
        "source": text("Where they come from.", one_of=["None", "Secret"]),
        "secretRef": secret_ref("The Secret whose data the function is given."),
    }
    one = record(
        "Credentials for the function.",
        fields,
        required=["name", "source"],
        rules=[rule("self.source == 'Secret' && has(self.secretRef)", "the source must be Secret, with a secretRef")],
    )
    return many("Secrets that the function needs.", one, by="name", most=64)


def _requirements() -> Schema:
    name = text("The name under which the function finds it.", shortest=1, longest=253)
    resource = kind_ref("Resources that the function is given with its first call.")
    resource["required"] = ["requirementName", *resource["required"]]
    resource["properties"] |= {
        "requirementName": name,
        "namespace": text("Namespace of the resources, if their kind is namespaced.", longest=253),
        "name": text("Name of the one resource; excludes matchLabels.", longest=253),
        "matchLabels": labels("Labels of the resources; without name and labels, all of the kind are given."),
    }
    resource["x-kubernetes-validations"] = [
        rule("!has(self.name) || !has(self.matchLabels)", "name and matchLabels exclude each other")
    ]
    schema = kind_ref("A kind whose OpenAPI schema the function is given with its first call.")
    schema["required"] = ["requirementName", *schema["required"]]
    schema["properties"]["requirementName"] = name
    fields = {
        "requiredResources": many("Resources to fetch first.", resource, by="requirementName", most=64),
        "requiredSchemas": many("Schemas to fetch first.", schema, by="requirementName", most=64),
    }
    return record("What is fetched before the function is called for the first time.", fields)


def _allowed_resources() -> Schema:
    one = kind_ref("A kind of which the function may ask for resources: all, or those that match.")
    one["properties"] |= {
        "matchName": text("Regular expression for the whole name."),
        "name": text("Alias of matchName."),
        "matchLabels": labels("Regular expressions for the whole values of labels."),
    }
    one["x-kubernetes-validations"] = [
        rule(
            "!(has(self.matchName) || has(self.name)) || !has(self.matchLabels)",
            "a name and matchLabels exclude each other",
        )
    ]
    return many("What the function may ask for; if given, everything else is denied.", one, most=100)
