"""A package's revision as an object: how it is made, and what to change once its package says otherwise.

Only the current revision follows its package; the others stay as they were when they were current. Whatever users put
on a revision themselves is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from planform.api.annotations import annotations_of
from planform.api.extensions.packages import RevisionSpec
from planform.api.kinds import GroupVersionKind, Object
from planform.api.metadata import labels_of, name_of
from planform.api.objects import spec_of
from planform.api.owners import controller_reference, controller_uid, owners_of
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
    spec = package["spec"]
    labels = copied_labels(spec.get("commonLabels") or {}, labels_of(package))
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
            "labels": {**labels, **system_labels(name_of(package), spec["package"], number, digest)},
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
    spec = present["spec"]
    labels, wanted_labels = labels_of(present), labels_of(wanted)
    noted = annotations_of(present).get(COPIED_LABELS_ANNOTATION, "")
    about: dict[str, Any] = {
        "labels": {
            **_difference(labels, wanted_labels, wanted_labels),
            **dict.fromkeys(stale_labels(labels, noted, wanted_labels)),
        },
        "annotations": _difference(
            annotations_of(present), annotations_of(wanted), (*annotations, COPIED_LABELS_ANNOTATION)
        ),
    }
    if controller_uid(present) != controller_uid(wanted):
        about["ownerReferences"] = [
            *owners_of(present),
            *owners_of(wanted),
        ]
    changes = {
        "metadata": {key: value for key, value in about.items() if value},
        "spec": _difference(spec, wanted["spec"], {**wanted["spec"], **dict.fromkeys(_COPIED_FIELDS)}),
    }
    return {key: value for key, value in changes.items() if value}


def known_of(revision: Object, *, works: bool = True, users: int = 0, pinned: bool = False) -> Known:
    """A revision as decisions see it."""
    spec = spec_of(revision, RevisionSpec)
    return Known(name_of(revision), spec.revision, spec.is_active, works, users, pinned)


def _difference(
    present: Mapping[str, Any], wanted: Mapping[str, Any], keys: Sequence[str] | Mapping[str, Any]
) -> Object:
    """The part of a merge patch that is about these keys."""
    return {key: wanted.get(key) for key in keys if present.get(key) != wanted.get(key)}
