"""Usages: which object may not be deleted because something uses it, decided without reading anything.

A Usage (or, for what has no namespace, a ClusterUsage) says that an object is in use: `of` names it, `by` names its
user, `reason` says why. Either side may be given by a selector, which is resolved once. The index answers both who
protects an object that is about to be deleted and which usages a change elsewhere is about.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from planform.api.kinds import GroupVersionKind, Object, gvk, gvk_of
from planform.api.metadata import labels_of, name_of, namespace_of, uid_of
from planform.api.names import CLUSTER_USAGE, EXTENSIONS_GROUP, LEGACY_USAGE, PROTECTION_GROUP, USAGE
from planform.api.owners import controller_uid, owners_of
from planform.api.xr import COMPOSITE_LABEL
from planform.errors import ApiError, FieldError, PlanformError, naming

IN_USE_LABEL: Final = "crossplane.io/in-use"
DETAILS_ANNOTATION: Final = "crossplane.io/usage-details"
USAGES_WEBHOOK: Final = "nousages.protection.crossplane.io"
"""By which an API server refuses to delete what is in use; scripts know it by this name."""
ATTEMPT_ANNOTATION: Final = "usage.crossplane.io/deletion-attempt-with-policy"


class UsageInvalid(PlanformError):
    """The usage cannot mean anything as it is written; `errors` has one for each field."""

    reason = "UsageInvalid"

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = tuple(errors)


class InUse(ApiError):
    """The object may not be deleted while a usage protects it.

    On the wire a 409 Conflict. It is no Conflict within the process: trying again at once would not help.
    """

    code, reason = 409, "Conflict"
    retryable = True


class UsageKey(NamedTuple):
    """A usage by name; without a namespace it is a ClusterUsage, or of the group in which those were Usages before."""

    namespace: str
    name: str
    group: str = PROTECTION_GROUP

    @property
    def gvk(self) -> GroupVersionKind:
        if self.group == EXTENSIONS_GROUP:
            return LEGACY_USAGE
        return USAGE if self.namespace else CLUSTER_USAGE

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> UsageKey:
        return cls(_namespace(obj), name_of(obj), gvk_of(obj).group)


@dataclass(frozen=True, slots=True)
class Side:
    """The used or the using object: by name, or while `name` is empty by what it must be like."""

    gvk: GroupVersionKind
    namespace: str
    name: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    same_controller: bool = False

    @property
    def is_resolved(self) -> bool:
        return bool(self.name)

    def __str__(self) -> str:
        return f"{self.gvk.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class Usage:
    """What a Usage or ClusterUsage says, and as much of its metadata as decides anything."""

    key: UsageKey
    uid: str
    of: Side
    by: Side | None
    reason: str
    replays_deletion: bool
    is_terminating: bool
    is_composed: bool
    controller_uid: str
    owners: tuple[tuple[str, str, str, str], ...]
    """Group, kind, name and uid of each owner."""

    @property
    def kind(self) -> str:
        return self.key.gvk.kind

    @property
    def sides(self) -> tuple[Side, ...]:
        return (self.of,) if self.by is None else (self.of, self.by)

    def is_user(self, uid: str) -> bool:
        """Whether the object found under the name of `by` is the one that was meant, not a namesake that came later."""
        if self.by is None:
            return False
        named = (self.by.gvk.group, self.by.gvk.kind, self.by.name)
        known = [owner[3] for owner in self.owners if owner[:3] == named]
        return not known or uid in known


# -- reading a usage


class _Ref(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _Selector(msgspec.Struct, frozen=True, rename="camel"):
    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    match_controller_ref: bool = False
    namespace: str = ""


class _Side(msgspec.Struct, frozen=True, rename="camel"):
    kind: str
    api_version: str = ""
    resource_ref: _Ref | None = None
    resource_selector: _Selector | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    of: _Side
    by: _Side | None = None
    reason: str | None = None
    replay_deletion: bool | None = None


def parse_usage(obj: Mapping[str, Any]) -> Usage:
    """A usage as a value; raises UsageInvalid with every error there is."""
    try:
        spec = msgspec.convert(obj.get("spec") or {}, _Spec)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$")
        field_error = FieldError(f"spec{path.rstrip('`')}", "FieldValueInvalid", f"{text[:1].lower()}{text[1:]}")
        raise UsageInvalid([field_error]) from error
    metadata = obj["metadata"]
    namespace = metadata.get("namespace") or ""
    errors: list[FieldError] = []
    of = _parse_side(spec.of, "spec.of", namespace, errors)
    by = None if spec.by is None else _parse_side(spec.by, "spec.by", namespace, errors)
    if by is None and not spec.reason:
        errors.append(FieldError("spec", "FieldValueRequired", 'either "by" or "reason" must be specified'))
    if by is not None and by.namespace != namespace:
        errors.append(
            FieldError("spec.by", "FieldValueForbidden", "the using resource must be in the namespace of its Usage")
        )
    if of.namespace != namespace and (by is None or not namespace):
        detail = (
            'a resource of another namespace can only be protected with "by"'
            if namespace
            else f"a {UsageKey.of(obj).gvk.kind} protects resources that have no namespace"
        )
        errors.append(FieldError("spec.of", "FieldValueForbidden", detail))
    if errors:
        raise UsageInvalid(errors)
    return Usage(
        key=UsageKey.of(obj),
        uid=metadata.get("uid") or "",
        of=of,
        by=by,
        reason=spec.reason or "",
        replays_deletion=bool(spec.replay_deletion),
        is_terminating="deletionTimestamp" in metadata,
        is_composed=bool((metadata.get("labels") or {}).get(COMPOSITE_LABEL)),
        controller_uid=controller_uid(obj),
        owners=tuple((gvk_of(owner).group, owner["kind"], owner["name"], owner["uid"]) for owner in owners_of(obj)),
    )


def _parse_side(wire: _Side, path: str, namespace: str, errors: list[FieldError]) -> Side:
    if not wire.kind:
        errors.append(FieldError(f"{path}.kind", "FieldValueRequired", "Required value"))
    kind, ref, selector = gvk(wire.api_version or "v1", wire.kind), wire.resource_ref, wire.resource_selector
    if ref is not None and ref.name:
        return Side(kind, ref.namespace or namespace, ref.name)
    if selector is None:
        detail = "either a resource reference or a resource selector must be set"
        errors.append(FieldError(path, "FieldValueRequired", detail))
        return Side(kind, namespace)
    if not selector.match_labels and not selector.match_controller_ref:
        detail = "set matchLabels or matchControllerRef: an empty selector would pick anything"
        errors.append(FieldError(f"{path}.resourceSelector", "FieldValueRequired", detail))
    labels = tuple(sorted(selector.match_labels.items()))
    return Side(kind, selector.namespace or namespace, "", labels, selector.match_controller_ref)


# -- resolving selectors


def label_selector(side: Side) -> str:
    """The selector as kubectl writes it, to list candidates with."""
    return ",".join(f"{key}={value}" for key, value in side.labels)


def choose(usage: Usage, side: Side, candidates: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The first match in order of namespace and name, so that the same candidates give the same choice."""
    matching = [found for found in candidates if could_be(usage, side, found)]
    return min(matching, key=lambda found: (_namespace(found), name_of(found)), default=None)


def could_be(usage: Usage, side: Side, obj: Mapping[str, Any]) -> bool:
    """Whether an object of the side's kind is what its selector asks for."""
    labels = labels_of(obj)
    if _namespace(obj) != side.namespace:
        return False
    if side.same_controller and (not usage.controller_uid or controller_uid(obj) != usage.controller_uid):
        return False
    return all(labels.get(key) == value for key, value in side.labels)


def resolved_ref(usage: Usage, chosen: Mapping[str, Any]) -> Object:
    """The `resourceRef` to keep for a chosen object; its namespace only where it is not the usage's own."""
    ref = {"name": name_of(chosen)}
    if _namespace(chosen) not in ("", usage.key.namespace):
        ref["namespace"] = _namespace(chosen)
    return ref


def unresolved_message(side: Side, path: str) -> str:
    """Why a selector led nowhere, in words that hold until something changes."""
    labels = json.dumps(dict(side.labels), sort_keys=True)
    same = " and with the same controller" if side.same_controller else ""
    return f'{path}.resourceSelector: no "{side.gvk.kind}" found matching labels {labels}{same}'


def _namespace(obj: Mapping[str, Any]) -> str:
    return namespace_of(obj)


# -- words


def details(usage: Usage) -> str:
    """One line about a usage, kept in its annotation for tables; empty while it is not known what uses what."""
    if usage.reason or usage.by is None or not usage.by.is_resolved:
        return usage.reason
    where = "" if usage.of.namespace == usage.key.namespace else f" in namespace {usage.of.namespace}"
    return f"{usage.by} uses {usage.of}{where}"


def refusal(protecting: Sequence[Usage]) -> str:
    """What somebody is told who tries to delete an object in use: the first usage stands for all."""
    first = protecting[0]
    place = f' (in namespace "{first.key.namespace}")' if first.key.namespace else ""
    user = f" by resource {first.by}" if first.by is not None and first.by.is_resolved else ""
    reason = f" with reason: {json.dumps(first.reason, ensure_ascii=False)}" if first.reason else ""
    count = f"{len(protecting)} usage(s)"
    return f'This resource is in-use by {count}, including the {first.kind} "{first.key.name}"{place}{user}{reason}.'


def in_use(group: str, plural: str, name: str, protecting: Sequence[Usage], *, webhook: str = "") -> InUse:
    """The refusal as an answer of the API; `webhook` is the webhook that an API server would name as its source."""
    source = f'admission webhook "{webhook}" denied the request: ' if webhook else ""
    return InUse(
        source + refusal(protecting),
        details=naming(group, plural, name),
        hint=f"delete what uses it, or the {protecting[0].kind} itself, first",
    )


# -- the index


class UsageIndex:
    """All usages, by what they are about. Kept in memory and fed from a watch.

    `is_complete` once everything that was stored has been told; before that, silence about an object means nothing.
    """

    def __init__(self) -> None:
        self.is_complete = False
        self._usages: dict[UsageKey, Usage] = {}
        self._named: dict[tuple[str, str, str], set[UsageKey]] = {}  # group, kind and name of a side
        self._unresolved: dict[tuple[str, str], set[UsageKey]] = {}  # group and kind of a side
        self._kinds: Counter[GroupVersionKind] = Counter()
        self._released: set[str] = set()  # uids of terminating usages that protect nothing any more

    def __len__(self) -> int:
        return len(self._usages)

    def put(self, usage: Usage) -> None:
        """Learn of a usage or of its new state."""
        self.drop(usage.key, keep_released=usage.uid)
        self._usages[usage.key] = usage
        for side in usage.sides:
            self._kinds[side.gvk] += 1
            if side.is_resolved:
                self._named.setdefault((side.gvk.group, side.gvk.kind, side.name), set()).add(usage.key)
            else:
                self._unresolved.setdefault((side.gvk.group, side.gvk.kind), set()).add(usage.key)

    def drop(self, key: UsageKey, *, keep_released: str = "") -> None:
        """Forget a usage."""
        usage = self._usages.pop(key, None)
        if usage is None:
            return
        if usage.uid != keep_released:
            self._released.discard(usage.uid)
        for side in usage.sides:
            self._kinds[side.gvk] -= 1
            if side.is_resolved:
                _discard(self._named, (side.gvk.group, side.gvk.kind, side.name), key)
            else:
                _discard(self._unresolved, (side.gvk.group, side.gvk.kind), key)

    def release(self, usage: Usage) -> None:
        """A usage that is being deleted releases its object: from now on it neither protects nor counts.

        Of several that end at the same time exactly one, the last to call this, finds no other left.
        """
        self._released.add(usage.uid)

    def protecting(self, group: str, kind: str, namespace: str, name: str) -> list[Usage]:
        """The usages that forbid to delete an object, in order; `namespace` is empty for cluster-scoped kinds."""
        found = (self._usages[key] for key in self._named.get((group, kind, name), ()))
        return sorted(
            (usage for usage in found if self._protects(usage, group, kind, namespace, name)), key=lambda each: each.key
        )

    def _protects(self, usage: Usage, group: str, kind: str, namespace: str, name: str) -> bool:
        of = usage.of
        return (
            (of.gvk.group, of.gvk.kind, of.name) == (group, kind, name)
            and namespace == of.namespace
            and usage.uid not in self._released
        )

    def concerned(self, obj: Mapping[str, Any], *, gone: bool) -> Iterator[UsageKey]:
        """The usages that have something to do because an object was created, changed or deleted."""
        kind = gvk_of(obj)
        for key in self._named.get((kind.group, kind.kind, name_of(obj)), ()):
            if _matters(self._usages[key], obj, gone=gone):
                yield key
        if gone:
            return
        for key in self._unresolved.get((kind.group, kind.kind), ()):
            usage = self._usages[key]
            if any(_is_of_kind(side, kind) and could_be(usage, side, obj) for side in usage.sides):
                yield key

    def mentions(self, kind: GroupVersionKind) -> bool:
        """Whether any usage is about objects of this kind."""
        return self._kinds[kind] > 0


def _discard(index: dict[Any, set[UsageKey]], entry: Any, key: UsageKey) -> None:
    keys = index.get(entry)
    if keys is not None:
        keys.discard(key)
        if not keys:
            del index[entry]


def _is_of_kind(side: Side, kind: GroupVersionKind) -> bool:
    return not side.is_resolved and (side.gvk.group, side.gvk.kind) == (kind.group, kind.kind)


def _matters(usage: Usage, obj: Mapping[str, Any], *, gone: bool) -> bool:
    """Most changes of an object in use are its own business: only a lost label or another identity is not."""
    kind = gvk_of(obj)
    for side in usage.sides:
        if (side.gvk.group, side.gvk.kind, side.name) != (kind.group, kind.kind, name_of(obj)):
            continue
        if _namespace(obj) != side.namespace:
            continue
        if gone:
            return True
        if side is usage.of and labels_of(obj).get(IN_USE_LABEL) != "true":
            return True
        if side is usage.by and uid_of(obj) not in {owner[3] for owner in usage.owners}:
            return True
    return False
