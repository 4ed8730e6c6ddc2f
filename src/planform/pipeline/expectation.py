"""What a preview expects an XR's reconcile to do, and whether a real plan stays within it. Pure.

A Preview writes one Expectation for each XR into its report; a reconcile that is bound to a Preview asks `deviations`
where the deletion budget is checked, before anything is written. A plan may do less than was expected, and where
a value could not be known it may be anything; every other write or deletion deviates.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from planform.api.annotations import annotations_of
from planform.api.kinds import Object
from planform.api.metadata import is_deleted, labels_of, uid_of
from planform.api.xr import Style, composition_fields
from planform.apimachinery.fieldpath import FieldPathError, parse_path
from planform.functions.sending import canonical, digest_of
from planform.pipeline.plan import Plan

ExpectedAction = Literal["Create", "Update", "Recreate", "Delete"]

_APPLIES: Final = frozenset({"Create", "Update", "Recreate"})
_DELETES: Final = frozenset({"Delete", "Recreate"})
_VALUES: Final = ("data", "stringData")
_OWN_FIELDS: Final = frozenset({"resourceRefs", "compositionRef", "compositionRevisionRef"})
"""What the control plane writes into an XR's composition fields itself."""
_OWN_ANNOTATIONS: Final = ("kubectl.kubernetes.io/last-applied-configuration", "crossplane.io/reconcile-requested-at")


class ExpectedResource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What becomes of one composed resource. A change may take several reconciles, each with a digest of its own: the
    last one is that of the object in the end. `unknown` are the field paths that the digests leave out."""

    action: ExpectedAction
    digests: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


class Expectation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What becomes of one XR's composed resources, by their names in the composition. What is not listed stays as it
    is."""

    resources: dict[str, ExpectedResource] = {}

    @property
    def digest(self) -> str:
        return f"sha256:{digest_of(msgspec.to_builtins(self)).hex()}"


NOTHING: Final = Expectation()
"""No composed resource changes."""


def object_digest(obj: Mapping[str, Any], unknown: Iterable[str] = ()) -> str:
    """The digest of a desired object without the fields at these paths. Of a Secret only the names of its values count:
    a digest of a short value tells the value."""
    known: Object = msgspec.json.decode(canonical(obj))
    if known.get("kind") == "Secret":
        for field in _VALUES:
            if isinstance(known.get(field), dict):
                known[field] = sorted(known[field])
    # From the end of lists to their beginning, or the first to go would move the others.
    for path in sorted(unknown, key=_last_first, reverse=True):
        try:
            parse_path(path).delete(known)
        except FieldPathError:
            continue
    return digest_of(known).hex()[:32]


def deviations(expectation: Expectation, plan: Plan, *, unchanged: Collection[str] = ()) -> list[str]:
    """What the plan does beyond the expectation, in words; empty if it is a subset.

    `unchanged` are the names of resources that are as the plan wants them, so that applying them writes nothing.
    """
    found: list[str] = []
    for composed in plan.apply:
        if composed.key in unchanged:
            continue
        shown = f'{composed.object["kind"]} "{composed.key}"'
        expected = expectation.resources.get(composed.key)
        if expected is None:
            found.append(f"{shown} would be {'changed' if composed.exists else 'created'}")
        elif expected.action not in _APPLIES:
            found.append(f"{shown} would be kept, and was to be deleted")
        elif object_digest(composed.object, expected.unknown) not in expected.digests:
            found.append(f"{shown} would become something else")
    for deletion in plan.delete:
        if is_deleted(deletion.object):
            continue  # it is on its way out already
        expected = expectation.resources.get(deletion.key)
        if expected is None or expected.action not in _DELETES:
            found.append(f'{deletion.object["kind"]} "{deletion.key}" would be deleted')
    return found


def unforeseen(plan: Plan) -> list[str]:
    """What a plan does that must not be done unless it was previewed: whatever is deleted, in words."""
    doomed = [each for each in plan.delete if not is_deleted(each.object)]
    return [f'{each.object["kind"]} "{each.key}" would be deleted' for each in doomed]


def input_digest(xr: Mapping[str, Any], style: Style) -> str:
    """The digest of all that a user says in an XR: while it is the same, the preview of this XR still holds.

    Status and what the control plane keeps in the spec do not count. Composed resources that drifted since do not
    either: `deviations` finds what they make of the plan.
    """
    spec = dict(xr.get("spec") or {})
    fields = {name: value for name, value in composition_fields(xr, style).items() if name not in _OWN_FIELDS}
    if style == "modern":
        spec["crossplane"] = fields
    else:
        spec = fields
    annotations = {k: v for k, v in annotations_of(xr).items() if k not in _OWN_ANNOTATIONS}
    said = [xr.get("apiVersion"), xr.get("kind"), uid_of(xr) or None, labels_of(xr), annotations, spec]
    return f"sha256:{digest_of(said).hex()}"


def plan_digest(expectations: Mapping[str, Expectation]) -> str:
    """The digest over all expectations of a preview, by XR."""
    lines: Sequence[tuple[str, str]] = sorted((xr, each.digest) for xr, each in expectations.items())
    return f"sha256:{digest_of(lines).hex()}"


def _last_first(path: str) -> list[tuple[int, str]]:
    return [(segment, "") if isinstance(segment, int) else (-1, segment) for segment in parse_path(path).segments]
