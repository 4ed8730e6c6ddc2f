"""Blueprint, ActionSet and Profile: what to do in phases, the request to do it, and where data goes.

They are those that Kanister's users write, so nothing is required beyond what its own controller needs, and fields
that we do not know are kept. Blueprint and Profile have no spec, and no kind has a status subresource.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from planform.api.extensions.vocabulary import (
    DURATION,
    Schema,
    column,
    crd,
    flag,
    free,
    labels,
    many,
    moment,
    number,
    record,
    root,
    text,
    version,
)
from planform.api.kinds import Object
from planform.api.names import ACTION_SET, BLUEPRINT, BLUEPRINTS_GROUP, PROFILE

STATES: Final = ("pending", "running", "failed", "complete")


def blueprint() -> Object:
    """What can be done, as named actions of phases."""
    phase = _open(
        "One call of a function.",
        {
            "func": text("Name of the function."),
            "funcVersion": text("The version of the function that has to run, such as v0.1.0. It is never a template."),
            "name": text("Name of the phase, under which later ones find its output."),
            "objects": _map_of("Secrets and ConfigMaps that the phase reads.", _reference("One of them.")),
            "args": {**free("What the function is given; texts are templates."), "nullable": True},
            "timeout": text("How long one attempt may take; without limit if absent.", pattern=DURATION),
            "retry": record(
                "Whether a phase that fails is tried again; it is not if this is absent.",
                {
                    "limit": number("How many more attempts there may be.", minimum=0, maximum=100),
                    "backoff": text("How long to wait before the first of them; doubles each time.", pattern=DURATION),
                },
            ),
        },
        required=["func", "name"],
    )
    names = {
        "configMapNames": "Aliases of ConfigMaps that an ActionSet has to give.",
        "secretNames": "Aliases of Secrets that an ActionSet has to give.",
        "inputArtifactNames": "Artifacts that an ActionSet has to give.",
    }
    action = _open(
        "One action.",
        {
            "name": text("Name of the action; its key is what counts."),
            "kind": text("Kind of the objects that the action is for."),
            **{name: _nullable(many(description, text("An alias."))) for name, description in names.items()},
            "outputArtifacts": _map_of("What the action leaves; texts are templates.", _artifact("One artifact.")),
            "phases": _nullable(many("What to do, in this order.", phase)),
            "deferPhase": {**phase, "description": "What to do last, also when a phase has failed.", "nullable": True},
        },
    )
    schema = root(
        "Actions that ActionSets can ask for.",
        {
            "actions": _map_of("The actions by name.", action),
            "versionPolicy": text(
                "Whether phases follow the stable version of their function, or keep the one they first had.",
                one_of=["Follow", "Lock"],
            ),
        },
    )
    return _served(BLUEPRINT.kind, schema, [])


def action_set() -> Object:
    """The request to run actions, and how they go."""
    action = _open(
        "One action to run.",
        {
            "name": text("Name of the action in its Blueprint."),
            "blueprint": text("Name of the Blueprint, in the ActionSet's own namespace."),
            "object": _reference("What the action is about."),
            "artifacts": _map_of("Inputs that earlier actions left.", _artifact("One artifact.")),
            "configMaps": _map_of("ConfigMaps by alias.", _reference("One of them.")),
            "secrets": _map_of("Secrets by alias.", _reference("One of them.")),
            "profile": _nullable(_reference("Where data goes.")),
            "options": {**labels("Whatever the templates of the Blueprint ask for."), "nullable": True},
            "podOverride": {**free("What is merged over the pods that phases run."), "nullable": True},
            "podLabels": {**labels("Labels of the pods that phases run."), "nullable": True},
            "podAnnotations": {**labels("Annotations of the pods that phases run."), "nullable": True},
            "preferredVersion": text("The version to run of each function that has it, unless its phase names one."),
        },
        required=["blueprint", "name", "object"],
    )
    spec = _open(
        "What to run.",
        {
            "actions": _nullable(many("The actions.", action)),
            "actionOrder": text(
                "Whether actions run side by side, or each after the one before it has completed.",
                one_of=["Parallel", "Sequential"],
            ),
        },
    )
    schema = root(
        "Actions of Blueprints that run once.",
        {"spec": _nullable(spec), "status": _nullable(_action_set_status())},
    )
    columns = [
        column("STATE", ".status.state"),
        column("PROGRESS", ".status.progress.percentCompleted"),
        column("RUNNING PHASE", ".status.progress.runningPhase", priority=1),
    ]
    return _served(ACTION_SET.kind, schema, columns)


def profile() -> Object:
    """A place for data, and who to be there."""
    location = _open(
        "The place.",
        {
            "type": text("Kind of place, such as s3Compliant, gcs, azure or kopia."),
            "bucket": text("Bucket or container."),
            "endpoint": text("Address of the service, if it is not the provider's own."),
            "prefix": text("Path below which everything is kept."),
            "region": text("Region of the bucket."),
        },
    )
    key_pair = _open(
        "A key and its secret, in one Secret.",
        {
            "idField": text("Field of the Secret that holds the key."),
            "secretField": text("Field of the Secret that holds its secret."),
            "secret": _reference("The Secret."),
        },
    )
    credential = _open(
        "Who to be.",
        {
            "type": text("Kind of credential: keyPair, secret or kopia."),
            "keyPair": _nullable(key_pair),
            "secret": _nullable(_reference("A Secret that holds all of it.")),
            "kopiaServerSecret": {**free("Where the parts of a kopia credential are."), "nullable": True},
        },
    )
    schema = root(
        "Where data goes, and how to get there.",
        {
            "location": location,
            "credential": credential,
            "skipSSLVerify": flag("Whether any certificate will do."),
        },
    )
    return _served(PROFILE.kind, schema, [column("TYPE", ".location.type"), column("BUCKET", ".location.bucket")])


def _action_set_status() -> Schema:
    warning = _open(
        "Something that its users should know about a function.",
        {
            "code": text("What it is about, as one word for programs."),
            "function": text("Name of the function."),
            "version": text("The version that runs."),
            "action": text("Name of the action."),
            "phase": text("Name of the first phase that it is about."),
            "message": text("What it says."),
            "deprecatedIn": text("The release that deprecated the version."),
            "removedIn": text("The release in which the version stops working."),
            "replacement": text("The version to move to."),
            "firstSeen": moment("When it was first said."),
        },
    )
    error = _open(
        "One thing that went wrong.",
        {
            "action": text("Name of the action."),
            "phase": text("Name of the phase."),
            "reason": text("What it was, as one word for programs."),
            "message": text("What it was."),
        },
    )
    action = _open(
        "How one action goes.",
        {
            "name": text("Name of the action."),
            "object": _reference("What it is about."),
            "blueprint": text("Name of its Blueprint."),
            "blueprintHash": text("Digest of the action as it was when it began."),
            "startedAt": text("When it began; templates see it as .Time."),
            "phases": many("How its phases go.", _phase_status("One phase.")),
            "deferPhase": _nullable(_phase_status("The phase that runs last.")),
            "artifacts": _map_of("What it left.", _artifact("One artifact.")),
        },
    )
    return _open(
        "How the actions go.",
        {
            "state": text("How all of it goes: pending, running, failed or complete."),
            "actions": many("How each of them goes, in their order.", action),
            "error": record("What went wrong first.", {"message": text("What it was.")}),
            "errors": many("All that went wrong.", error),
            "warnings": many("What its users should know about functions.", warning),
            "progress": _open(
                "How far all of it is.",
                {
                    "percentCompleted": text("How much of it is done, of 100."),
                    "runningPhase": text("A phase that runs now."),
                    "lastTransitionTime": moment("When this last changed."),
                    **_bytes(),
                },
            ),
            "blueprintHash": text("Digest of all actions as they were when they began."),
            "runner": text("The process that runs it."),
            "snapshots": many(
                "The actions, as they were asked for and written when they began, until they end.", free("One action.")
            ),
        },
    )


def _phase_status(description: str) -> Schema:
    return _open(
        description,
        {
            "name": text("Name of the phase."),
            "state": text("How it goes: pending, running, failed or complete."),
            "func": text("Name of its function."),
            "funcVersion": text("The version of the function that runs, also when the phase is tried again."),
            "resolution": record(
                "Why that version runs.",
                {
                    "requested": text("The version that was asked for, if any was."),
                    "source": text("The rule that chose."),
                    "reason": text("Why, in words."),
                },
            ),
            "attempts": number("How often it was tried."),
            "output": {**free("What it gave."), "nullable": True},
            "progress": _open(
                "How far it is.",
                {
                    "progressPercent": text("How much of it is done, of 100."),
                    "lastTransitionTime": moment("When this last changed."),
                    **_bytes(),
                },
            ),
        },
    )


def _bytes() -> dict[str, Schema]:
    return {
        "sizeDownloadedB": number("Bytes that came in."),
        "sizeUploadedB": number("Bytes that went out."),
        "estimatedDownloadSizeB": number("Bytes that will have come in."),
        "estimatedUploadSizeB": number("Bytes that will have gone out."),
        "estinatedTimeSeconds": number("Seconds until it is done."),
    }


def _artifact(description: str) -> Schema:
    maker = record(
        "A phase that had a part in it.",
        {
            "phase": text("Name of the phase."),
            "func": text("Name of its function."),
            "funcVersion": text("Version of its function."),
        },
    )
    fields = {
        "keyValue": {**labels("Names and values."), "nullable": True},
        "kopiaSnapshot": text("A snapshot of kopia, as JSON."),
        "producedBy": many("Who made it, which decides who can read it.", maker),
    }
    return _open(description, fields)


def _reference(description: str) -> Schema:
    fields = {
        "apiVersion": text("Version of its API, without the group."),
        "group": text("Group of its API."),
        "resource": text("Plural name of its kind."),
        "kind": text("Its kind."),
        "name": text("Its name."),
        "namespace": text("Its namespace."),
    }
    return _open(description, fields)


def _open(description: str, fields: Mapping[str, Schema], *, required: tuple[str, ...] | list[str] = ()) -> Schema:
    return {**record(description, fields, required=list(required)), "x-kubernetes-preserve-unknown-fields": True}


def _nullable(schema: Schema) -> Schema:
    return {**schema, "nullable": True}


def _map_of(description: str, each: Schema) -> Schema:
    return {"type": "object", "description": description, "additionalProperties": each, "nullable": True}


def _served(kind: str, schema: Schema, columns: list[Object]) -> Object:
    made = version("v1alpha1", schema, columns, storage=True)
    del made["subresources"]
    return crd(BLUEPRINTS_GROUP, kind, [made], scope="Namespaced", categories=["kanister"])
