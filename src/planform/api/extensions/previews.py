"""Preview and PreviewReport: what a change would do to every live XR, before it does it."""

from __future__ import annotations

from collections.abc import Mapping

from planform.api.extensions.vocabulary import (
    Schema,
    column,
    condition_column,
    crd,
    embedded,
    flag,
    immutable,
    label_selector,
    many,
    moment,
    number,
    object_ref,
    record,
    root,
    rule,
    status,
    text,
    version,
)
from planform.api.kinds import Object
from planform.api.names import PREVIEW, PREVIEW_REPORT, ROLLOUT_GROUP
from planform.api.previews import COUNTS, MAX_CLASSES, OUTCOMES, RISKS

_DAYS = r"^[1-9][0-9]*(s|m|h|d)$"


def preview() -> Object:
    """A question: what would this change do?"""
    revision = record(
        "A CompositionRevision that XRs do not follow yet.",
        {"composition": text("Name of the Composition."), "name": text("Name of the CompositionRevision.")},
        required=["composition", "name"],
    )
    function = record(
        "A FunctionRevision that is installed, in place of the one that serves now.",
        {
            "function": text("Name of the Function."),
            "name": text("Name of the FunctionRevision."),
            "from": text(
                "Name of the FunctionRevision that it is compared with. Every XR with a step of the function is looked"
                " at then, as if its steps called first this one and then the other, whatever they select. If absent,"
                " it is compared with what each step calls now."
            ),
        },
        required=["function", "name"],
    )
    release = record(
        "This release of planform, whose built-in functions may answer differently from those that made what is there.",
        {
            "planform": text("The version of planform, for readers."),
            "composition": text("Only XRs of this Composition are looked at, if given."),
        },
    )
    change = record(
        "What would change. Exactly one of `revision`, `revisions`, `functionRevision`, `release`, and `manifests` with"
        " `deleted`.",
        {
            "manifests": many("Objects as they would be applied; they are not.", embedded("One of them."), maximum=500),
            "deleted": many("Objects that would be deleted; they are not.", object_ref("One of them."), maximum=500),
            "revision": revision,
            "revisions": many("Revisions of several Compositions, as a Rollout has them.", revision, maximum=200),
            "functionRevision": function,
            "release": release,
        },
        rules=[
            rule(
                "[has(self.manifests) || has(self.deleted), has(self.revision), has(self.revisions),"
                " has(self.functionRevision), has(self.release)].exists_one(given, given)",
                "exactly one of manifests (with deleted), revision, revisions, functionRevision, release must be set",
            )
        ],
    )
    scope = record(
        "Which XRs are looked at; all that the change can reach, if nothing is said.",
        {
            "namespaces": many("Only XRs of these namespaces.", text("A namespace.")),
            "xrs": label_selector("Only XRs with these labels."),
            "sample": number("At most so many XRs of each Composition, chosen by their uids; 0 means all.", minimum=0),
            "includeManual": flag("Whether XRs that are pinned to a revision are looked at as if they were not."),
        },
    )
    spec = record(
        "The change, and over which XRs it is looked at.",
        {
            "change": change,
            "scope": scope,
            "ttl": text("How long the Preview is kept, such as 12h or 7d.", default="7d", pattern=_DAYS),
        },
        required=["change"],
        rules=[immutable("spec")],
    )
    schema = root(
        "What a change would do to every live XR. Nothing is applied.",
        {"spec": spec, "status": _status()},
        required=["spec"],
    )
    columns = [
        column("PHASE", ".status.phase"),
        column("XRS", ".status.summary.xrs", "integer"),
        column("CHANGED", ".status.summary.changed", "integer"),
        column("DELETES", ".status.summary.deletes", "integer"),
        column("FAILED", ".status.summary.failed", "integer"),
        condition_column("Complete"),
        column("VERDICT", ".status.verdict", priority=1),
    ]
    served = version(PREVIEW.version, schema, columns, storage=True)
    return crd(ROLLOUT_GROUP, PREVIEW.kind, [served], categories=("planform",))


def preview_report() -> Object:
    """The answer in full, in parts that fit into any store."""
    resource = record(
        "What becomes of one composed resource.",
        {
            "action": text("What is done.", one_of=("Create", "Update", "Recreate", "Delete")),
            "digests": many("Digests of the desired object without the unknown fields; the last counts.", text("One.")),
            "unknown": many("Paths of fields whose values were not known.", text("A path.")),
        },
        required=["action"],
    )
    resources = {
        "type": "object",
        "description": "By the names of the resources in the composition.",
        "additionalProperties": resource,
    }
    xr = record(
        "One XR.",
        {
            **_xr_names(),
            "uid": text("Its uid."),
            "outcome": text("What the change does to it.", one_of=OUTCOMES),
            "class": text("The class of its change."),
            "input": text("Digest of what its user says in it: while it is the same, this entry holds."),
            "revision": text("The CompositionRevision it runs now."),
            "expectation": record("What a reconcile would do.", {"resources": resources}),
            "drifting": many("What would happen without the change, too.", text("In words.")),
            "unstable": many("Fields that differ from call to call.", text("In words.")),
            "waits": many("What has to be known before all can be.", text("In words.")),
            "unchecked": many("What could not be sent through a dry run, and why.", text("In words.")),
            "message": text("Why it fails, is not valid or was not looked at."),
        },
        required=["kind", "name", "outcome"],
    )
    spec = record(
        "One part of an answer.",
        {
            "shard": number("Whose XRs these are."),
            "shards": number("How many shards there are."),
            "part": number("Which part of the shard's answer this is, from 0."),
            "parts": number("How many parts the shard's answer has; 0 as long as it is not complete."),
            "summary": _summary(),
            "blast": _blast(),
            "classes": many("The classes of changes, each with what changes.", _class(whole=True)),
            "xrs": many("The XRs.", xr),
        },
        required=["shard", "part"],
    )
    schema = root("A part of what a Preview found out.", {"spec": spec}, required=["spec"])
    columns = [
        column("PREVIEW", ".metadata.labels.rollout\\.planform\\.dev/preview"),
        column("SHARD", ".spec.shard", "integer"),
        column("PART", ".spec.part", "integer"),
    ]
    served = version(PREVIEW_REPORT.version, schema, columns, storage=True)
    served.pop("subresources")
    return crd(ROLLOUT_GROUP, PREVIEW_REPORT.kind, [served], categories=("planform",))


def _status() -> Schema:
    inputs = record(
        "What the answer rests on.",
        {
            "candidate": text("Digest of the change."),
            "catalogue": text("Digest of the function revisions that serve."),
            "resourceVersion": text("The API server's resource version when it began."),
            "planform": text("The version of planform."),
        },
    )
    return status(
        "What was found out.",
        {
            "phase": text("How far it is.", one_of=("Pending", "Running", "Complete", "Failed")),
            "message": text("Why it failed, or what is missing."),
            "verdict": text("The answer in a line."),
            "startTime": moment("When it began."),
            "completionTime": moment("When it ended."),
            "inputs": inputs,
            "plan": text("Digest over the expectations of all XRs."),
            "progress": record("How far it is.", {"done": number("XRs done."), "total": number("XRs to do.")}),
            "summary": _summary(),
            "classes": many("Kinds of changes, the risky ones first.", _class(whole=False), maximum=MAX_CLASSES),
            "moreClasses": number("How many classes there are beyond those listed."),
            "blast": _blast(),
            "findings": many("What is to be said of the change as a whole.", text("In words."), maximum=100),
            "reports": number("How many PreviewReports hold the rest."),
        },
    )


def _summary() -> Schema:
    return record("How many XRs; see `unchanged` and the others.", {name: number(why) for name, why in COUNTS.items()})


def _class(*, whole: bool) -> Schema:
    fields: dict[str, Schema] = {
        "id": text("Its name within the Preview."),
        "outcome": text("What it does to its XRs.", one_of=OUTCOMES),
        "risk": text("What is risky about it.", one_of=RISKS),
        "xrs": number("How many XRs it happens to."),
        "change": text("What changes, in a line."),
        "examples": many("Some of its XRs.", text("Namespace and name.")),
    }
    if whole:
        field = record(
            "One field.",
            {"path": text("Where it is."), "before": _any("Its value without the change."), "after": _any("With it.")},
            required=["path"],
        )
        change = record(
            "One object.",
            {
                "resource": text("Its name in the composition; empty for the XR itself."),
                "kind": text("Its kind."),
                "action": text("What becomes of it."),
                "fields": many("What changes in it.", field),
                "forcedBy": text("The field that cannot be changed in place."),
                "message": text("What the API server says."),
            },
            required=["action", "kind"],
        )
        fields["changes"] = many("The objects that change, with placeholders for what is each XR's own.", change)
    return record("XRs to which the same happens.", fields, required=["id", "xrs"])


def _blast() -> Schema:
    def counted(what: str) -> Schema:
        return {"type": "object", "description": what, "additionalProperties": {"type": "integer", "format": "int64"}}

    return record(
        "What the change reaches.",
        {
            "namespaces": number("How many namespaces have XRs that change."),
            "kinds": counted("XRs that change, by kind of the composed resource."),
            "teams": counted("XRs that change, by the label `team` of the XR or its namespace."),
            "byNamespace": counted("XRs that change, by namespace; the largest."),
        },
    )


def _xr_names() -> Mapping[str, Schema]:
    return {
        "kind": text("Kind and group, as XApp.example.org."),
        "namespace": text("Namespace of the XR, if it has one."),
        "name": text("Name of the XR."),
    }


def _any(description: str) -> Schema:
    return {"description": description, "x-kubernetes-preserve-unknown-fields": True}
