"""In which order objects can be created: owners before what they own, kinds before their objects. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from planform.api import owners
from planform.api.kinds import Object, gvk
from planform.api.metadata import namespace_of
from planform.api.names import CRD, XRD
from planform.moving.contents import Identity, identity_of

_FIRST: Final = ("Namespace", XRD.kind, CRD.kind, "ServiceAccount", "Secret", "ConfigMap")

_LAST: Final = (
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
)
"""What decides about writes comes when everything else is there: whom it asks may not run yet."""


def in_order(objects: Sequence[Object]) -> list[Object]:
    """The same objects; of two that could come in either order, always the same first.

    An owner that is not among them counts for nothing. Those that own each other are taken as they come.
    """
    by_name = {identity_of(obj): obj for obj in objects}
    definitions = {_defined(obj): identity_of(obj) for obj in objects if obj["kind"] == CRD.kind}
    ordered: dict[Identity, Object] = {}
    for start in sorted(by_name, key=_rank):
        waiting, entered = [start], set[Identity]()
        while waiting:
            name = waiting[-1]
            needed = [
                each
                for each in _needs(by_name[name], definitions)
                if each in by_name and each not in ordered and each not in entered
            ]
            if name in entered or not needed:
                ordered.setdefault(name, by_name[name])
                waiting.pop()
            else:
                entered.add(name)
                waiting += sorted(needed, key=_rank, reverse=True)
    return list(ordered.values())


def owners_of(obj: Mapping[str, Any]) -> list[Identity]:
    """Those whom an object says that it belongs to; an owner is in its namespace or in none."""
    references: Iterable[Mapping[str, Any]] = owners.owners_of(obj)
    namespace = namespace_of(obj)
    found = []
    for reference in references:
        group, kind = gvk(reference["apiVersion"], reference["kind"]).group, reference["kind"]
        found += [Identity(group, kind, each, reference["name"]) for each in dict.fromkeys((namespace, ""))]
    return found


def _needs(obj: Object, definitions: Mapping[tuple[str, str], Identity]) -> list[Identity]:
    group, kind, namespace, _ = identity_of(obj)
    needed = owners_of(obj)
    if (group, kind) in definitions:
        needed.append(definitions[group, kind])
    if namespace:
        needed.append(Identity("", "Namespace", "", namespace))
    return needed


def _defined(crd: Mapping[str, Any]) -> tuple[str, str]:
    spec = crd["spec"]
    return spec["group"], spec["names"]["kind"]


def _rank(name: Identity) -> tuple[int, Identity]:
    if name.kind in _FIRST:
        return _FIRST.index(name.kind), name
    return len(_FIRST) + (name.kind in _LAST), name
