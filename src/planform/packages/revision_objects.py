"""A package's revision as an object: how it is made, and what to change once its package says otherwise.

Only the current revision follows its package; the others stay as they were when they were current. Whatever users put
on a revision themselves is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from planform.api.kinds import GroupVersionKind, Object
from planform.api.owners import controller_reference
from planform.packages.revisions import COPIED_LABELS_ANNOTATION, Known, copied_labels, stale_labels, system_labels

ACTIVE: Final = "Active"
INACTIVE: Final = "Inactive"
DIGEST_ANNOTATION: Final = "planform.dev/digest"
"""On a revision of a package that was pulled: which content it is."""

_COPIED_FIELDS: Final = (
    "packagePullPolicy",
    "packagePullSecrets",
    "skipDependencyResolution",
    "ignoreCrossplaneConstraints",
    "runtimeConfigRef",
    "commonLabels",
    "commonAnnotations",
)


def new_revision(
    package: Object,
    kind: GroupVersionKind,
    name: str,
    number: int,
    *,
    active: bool,
    annotations: Sequence[str] = (),
    digest: str = "",
) -> Object:
    """The revision that a package makes; of the package's annotations it gets those named."""
    spec, metadata = package["spec"], package["metadata"]
    labels = copied_labels(spec.get("commonLabels") or {}, metadata.get("labels") or {})
    noted = {key: value for key, value in annotations_of(package).items() if key in annotations}
    if labels:
        noted[COPIED_LABELS_ANNOTATION] = ",".join(sorted(labels))
    if digest:
        noted[DIGEST_ANNOTATION] = digest
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            "name": name,
            "labels": {**labels, **system_labels(metadata["name"], spec["package"], number, digest)},
            "annotations": noted,
            "ownerReferences": [controller_reference(package)],
        },
        "spec": {
            "image": spec["package"],
            "revision": number,
            "desiredState": ACTIVE if active else INACTIVE,
            **{field: spec[field] for field in _COPIED_FIELDS if field in spec},
        },
    }


def changes_to(present: Object, wanted: Object, *, annotations: Sequence[str] = ()) -> Object:
    """A merge patch after which the revision is as its package wants it; empty if it is already."""
    spec, metadata = present["spec"], present["metadata"]
    labels, wanted_labels = metadata.get("labels") or {}, wanted["metadata"]["labels"]
    noted = annotations_of(present).get(COPIED_LABELS_ANNOTATION, "")
    about: dict[str, Any] = {
        "labels": {
            **_difference(labels, wanted_labels, wanted_labels),
            **dict.fromkeys(stale_labels(labels, noted, wanted_labels)),
        },
        "annotations": _difference(
            annotations_of(present), wanted["metadata"]["annotations"], (*annotations, COPIED_LABELS_ANNOTATION)
        ),
    }
    if controller_of(present) != controller_of(wanted):
        about["ownerReferences"] = [
            *(metadata.get("ownerReferences") or ()),
            *wanted["metadata"]["ownerReferences"],
        ]
    changes = {
        "metadata": {key: value for key, value in about.items() if value},
        "spec": _difference(spec, wanted["spec"], {**wanted["spec"], **dict.fromkeys(_COPIED_FIELDS)}),
    }
    return {key: value for key, value in changes.items() if value}


def controller_of(obj: Object) -> str:
    """The uid of the owner that controls an object; empty if none does."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((str(each["uid"]) for each in owners if each.get("controller")), "")


def known_of(revision: Object, *, works: bool = True, users: int = 0) -> Known:
    """A revision as decisions see it."""
    spec = revision["spec"]
    return Known(revision["metadata"]["name"], int(spec["revision"]), spec["desiredState"] == ACTIVE, works, users)


def condition_status(obj: Object, type_: str) -> str:
    """What an object says of itself: True, False or Unknown; empty if it says nothing."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((str(each["status"]) for each in conditions if each["type"] == type_), "")


def annotations_of(obj: Object) -> Mapping[str, str]:
    return obj["metadata"].get("annotations") or {}


def _difference(
    present: Mapping[str, Any], wanted: Mapping[str, Any], keys: Sequence[str] | Mapping[str, Any]
) -> Object:
    """The part of a merge patch that is about these keys."""
    return {key: wanted.get(key) for key in keys if present.get(key) != wanted.get(key)}
