"""Every version of a Composition is kept as a revision; this decides which revisions there have to be. Pure.

A revision is a snapshot: a Composition's spec and labels as they were. Its identity is a digest of exactly these, less
the labels that deployment tools stamp on everything they touch; annotations never count. Where a policy pins functions
the spec is the pinned one, so that what is pinned is part of the identity, and only there. Going back to an earlier
version finds the earlier snapshot, which then gets the highest number, so the newest revision always says what the
Composition says.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final

from planform.api.annotations import annotation
from planform.api.authors import AUTHOR_ANNOTATION, SERVICE_ACCOUNT_ANNOTATION, authority_annotations
from planform.api.kinds import Object, gvk_of
from planform.api.metadata import created_at, is_deleted, labels_of, name_of, uid_of
from planform.api.names import (
    COMPOSITION,
    COMPOSITION_HASH_LABEL,
    COMPOSITION_NAME_LABEL,
    COMPOSITION_REVISION,
    COMPOSITION_SPEC_HASH_LABEL,
)
from planform.api.owners import controller_of, controller_reference
from planform.apimachinery.names import LABEL_LENGTH, child_name
from planform.compositions.pinning import UNPINNED_ANNOTATION
from planform.pipeline.revision_selectors import RevisionSelector

TOOL_LABELS: Final = (
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "applyset.kubernetes.io/*",
    "argocd.argoproj.io/*",
    "fleet.cattle.io/*",
    "helm.sh/*",
    "helm.toolkit.fluxcd.io/*",
    "kapp.k14s.io/*",
    "kustomize.toolkit.fluxcd.io/*",
    "objectset.rio.cattle.io/*",
)
"""Labels that say who deployed a Composition and not what it is. A pattern may end in `*`."""

DEFAULT_HISTORY: Final = 10
"""Unused revisions that are kept when a Composition does not say how many."""

_OWN_LABELS: Final = (COMPOSITION_NAME_LABEL, COMPOSITION_HASH_LABEL, COMPOSITION_SPEC_HASH_LABEL)
_HISTORY_FIELD: Final = "revisionHistoryLimit"
_SPEC_HASH_LENGTH: Final = 16
_SUFFIX_LENGTH: Final = 12


@dataclass(frozen=True, slots=True)
class Identity:
    """What makes two versions of a Composition the same version."""

    digest: str
    """Of spec and labels, 64 hex digits."""
    spec_digest: str
    """Of the spec alone."""


@dataclass(frozen=True, slots=True)
class RevisionPlan:
    """What has to happen so that the newest revision is the Composition as it is; usually nothing.

    Adoptions come first, then either `renumber`, which is the number `current` has to get, or `create`.
    """

    current: Object | None = None
    adopt: tuple[Object, ...] = ()
    renumber: int | None = None
    create: Object | None = None
    foreign: tuple[Object, ...] = ()
    """Revisions that carry our label and belong to somebody else. They are not touched."""
    awaits: str = ""
    """The revision of a deleted namesake of this Composition that has to go before its name is free."""

    @property
    def changes(self) -> bool:
        return bool(self.adopt or self.create) or self.renumber is not None


def identity_of(composition: Mapping[str, Any], *, ignored_labels: Iterable[str] = TOOL_LABELS) -> Identity:
    """The identity of a Composition as it is now."""
    labels = meaningful_labels(composition, ignored_labels)
    spec = _snapshot(composition)
    return Identity(_digest({"labels": labels, "spec": spec}), _digest(spec))


def meaningful_labels(composition: Mapping[str, Any], ignored_labels: Iterable[str] = TOOL_LABELS) -> dict[str, str]:
    """The labels that count, and that a revision therefore carries."""
    labels: Mapping[str, str] = labels_of(composition)
    ignored = (*ignored_labels, *_OWN_LABELS)
    return {key: value for key, value in labels.items() if not any(_fits(key, pattern) for pattern in ignored)}


def composition_label(composition: str) -> str:
    """The value of the label that revisions carry their Composition's name in; long names are cut and made unique."""
    return composition if len(composition) <= LABEL_LENGTH else child_name(composition, composition)


def revision_name(composition: str, identity: Identity) -> str:
    """The Composition's name and twelve digits of the identity; never longer than a label's value may be."""
    room = LABEL_LENGTH - _SUFFIX_LENGTH - 1
    if len(composition) <= room:
        return f"{composition}-{identity.digest[:_SUFFIX_LENGTH]}"
    return child_name(composition, composition, identity.digest)  # the digits stand for what was cut off as well


def new_revision(
    composition: Mapping[str, Any], number: int, *, ignored_labels: Iterable[str] = TOOL_LABELS, unpinned: str = ""
) -> Object:
    """The revision that holds a Composition as it is now. `unpinned` is its name without what a policy pins in it."""
    identity = identity_of(composition, ignored_labels=ignored_labels)
    rights = authority_annotations(composition)
    if unpinned:
        rights = {**rights, UNPINNED_ANNOTATION: unpinned}
    return {
        "apiVersion": COMPOSITION_REVISION.api_version,
        "kind": COMPOSITION_REVISION.kind,
        "metadata": {
            "name": revision_name(name_of(composition), identity),
            "labels": {
                **meaningful_labels(composition, ignored_labels),
                COMPOSITION_NAME_LABEL: composition_label(name_of(composition)),
                COMPOSITION_HASH_LABEL: identity.digest[:LABEL_LENGTH],
                COMPOSITION_SPEC_HASH_LABEL: identity.spec_digest[:_SPEC_HASH_LENGTH],
            },
            "ownerReferences": [controller_reference(composition)],
            **({"annotations": rights} if rights else {}),
        },
        "spec": {**_snapshot(composition), "revision": number},
    }


def rights_to_take(composition: Mapping[str, Any], revision: Mapping[str, Any]) -> Object:
    """The annotations that the Composition's revision of now lacks, to merge into it; None removes one.

    Who made a Composition what it is decides what its revision may do, also if another made it so before. A revision
    that holds something else under the Composition's digest, as a forged one does, gets nothing.
    """
    spec = {key: value for key, value in revision["spec"].items() if key != "revision"}
    if _plain(spec) != _plain(_snapshot(composition)):
        return {}
    names = (AUTHOR_ANNOTATION, SERVICE_ACCOUNT_ANNOTATION)
    wanted, found = ({name: annotation(each, name) or None for name in names} for each in (composition, revision))
    return {name: wanted[name] for name in names if wanted[name] != found[name]}


def plan_revisions(
    composition: Mapping[str, Any],
    listed: Sequence[Object],
    *,
    ignored_labels: Iterable[str] = TOOL_LABELS,
    held_spec: Mapping[str, Any] | None = None,
) -> RevisionPlan:
    """Decide what to do about the revisions that carry this Composition's label.

    `held_spec` is the Composition's spec with the function revisions that a policy pins. They are part of the
    revision's identity, so that other pins are another revision; where nothing is pinned it is what it always was.
    Revisions without a controller, as a backup restores them, are adopted. Numbers only grow: also past those of a
    deleted namesake that are still there, and past the one in the Composition's status, whose revision may be gone.
    """
    if is_deleted(composition):
        return RevisionPlan()
    ignored_labels = tuple(ignored_labels)
    unpinned = ""
    if held_spec is not None and held_spec != composition["spec"]:
        unpinned = revision_name(name_of(composition), identity_of(composition, ignored_labels=ignored_labels))
        composition = {**composition, "spec": held_spec}
    name, uid = name_of(composition), uid_of(composition)
    ours = [each for each in listed if is_revision_of(each, name, uid)]
    stray = [each for each in listed if controller_of(each) is None]
    predecessors = [each for each in listed if is_revision_of(each, name) and not is_revision_of(each, name, uid)]
    foreign = [each for each in listed if controller_of(each) is not None and not is_revision_of(each, name)]
    wanted = new_revision(composition, 0, ignored_labels=ignored_labels, unpinned=unpinned)
    identity = identity_of(composition, ignored_labels=ignored_labels)
    current = _newest(each for each in (*ours, *stray) if _holds(each, identity, ignored_labels))
    recorded = ((composition.get("status") or {}).get("latestRevision") or {}).get("revision") or 0
    highest = max((number_of(each) for each in (*ours, *stray, *predecessors)), default=0)
    next_number = max(highest, recorded) + 1
    plan = RevisionPlan(current=current, adopt=tuple(stray), foreign=tuple(foreign))
    if current is not None:
        same = [each for each in (*ours, *stray) if number_of(each) >= number_of(current)]
        newest = len(same) == 1 and number_of(current) >= recorded
        return replace(plan, renumber=None if newest else next_number)
    taken = name_of(wanted)
    if any(name_of(each) == taken for each in predecessors):
        return replace(plan, awaits=taken)
    if any(name_of(each) == taken for each in foreign):
        return plan
    wanted["spec"]["revision"] = next_number
    return replace(plan, create=wanted)


def superfluous(
    composition: Mapping[str, Any],
    revisions: Sequence[Object],
    *,
    used: Collection[str],
    selectors: Collection[RevisionSelector],
    kept: Collection[str] = (),
) -> tuple[Object, ...]:
    """The revisions to delete, the oldest first.

    Never the newest one, one that an XR uses, one whose labels an XR selects, or one that a Rollout needs (`kept`). Of
    the others the newest `revisionHistoryLimit` are kept; 0 keeps all.
    """
    limit = composition["spec"].get(_HISTORY_FIELD, DEFAULT_HISTORY)
    if limit == 0:
        return ()
    ours = newest_first(each for each in revisions if is_revision_of(each, name_of(composition), uid_of(composition)))
    unused = [
        each
        for each in ours[1:]
        if name_of(each) not in used
        and name_of(each) not in kept
        and not is_deleted(each)
        and not any(selector and selector.matches(each) for selector in selectors)
    ]
    return tuple(reversed(unused[limit:]))


def number_of(revision: Mapping[str, Any]) -> int:
    return int(revision["spec"].get("revision") or 0)


def newest_first(revisions: Iterable[Object]) -> list[Object]:
    """By number; two with the same number, which only somebody else can make, in an order that never changes."""
    return sorted(revisions, key=_age, reverse=True)


def is_revision_of(revision: Mapping[str, Any], composition: str, uid: str = "") -> bool:
    """Whether the Composition of this name, and of this uid if one is given, controls the revision."""
    controller = controller_of(revision)
    if controller is None:
        return False
    owner = gvk_of(controller)
    named = (owner.group, owner.kind, controller["name"]) == (COMPOSITION.group, COMPOSITION.kind, composition)
    return named and (not uid or controller.get("uid") == uid)


def matches(obj: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether an object has all these labels."""
    found: Mapping[str, str] = labels_of(obj)
    return not labels or all(found.get(key) == value for key, value in labels.items())


def _snapshot(composition: Mapping[str, Any]) -> Object:
    """The spec that a revision takes over: all of it but how many revisions to keep, which is not its business."""
    return {key: value for key, value in composition["spec"].items() if key != _HISTORY_FIELD}


def _fits(key: str, pattern: str) -> bool:
    return key.startswith(pattern[:-1]) if pattern.endswith("*") else key == pattern


def _holds(revision: Mapping[str, Any], identity: Identity, ignored_labels: Iterable[str]) -> bool:
    """Whether this is the snapshot of that version. What others made, such as Crossplane, is told by its content."""
    labels: Mapping[str, str] = labels_of(revision)
    if COMPOSITION_SPEC_HASH_LABEL in labels:
        return labels.get(COMPOSITION_HASH_LABEL) == identity.digest[:LABEL_LENGTH]
    spec = {key: value for key, value in revision["spec"].items() if key != "revision"}
    return identity_of({**revision, "spec": spec}, ignored_labels=ignored_labels) == identity


def _newest(revisions: Iterable[Object]) -> Object | None:
    return max(revisions, key=_age, default=None)


def _age(revision: Mapping[str, Any]) -> tuple[int, str, str]:
    return number_of(revision), created_at(revision), name_of(revision)


def _digest(value: Any) -> str:
    text = json.dumps(_plain(value), sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    """The same value for the same JSON number however an engine decoded it: 1.0 is 1."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
