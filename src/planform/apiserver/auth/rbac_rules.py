"""What a policy rule permits, and whether a set of rules covers another: RBAC as pure functions.

The meaning is exactly Kubernetes', including what looks as if it should match and does not: `pods/*` is no wildcard,
and a rule for `pods` says nothing about `pods/log`. A manifest must never grant more here than it does on a cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import msgspec

from planform.apiserver.verbs.requests import Attributes

ANY = "*"


class PolicyRule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One entry of a role's `rules`, as it is written. Empty lists grant nothing, but for names: no names is all."""

    api_groups: tuple[str, ...] | None = msgspec.field(default=None, name="apiGroups")
    resources: tuple[str, ...] | None = None
    resource_names: tuple[str, ...] | None = None
    non_resource_urls: tuple[str, ...] | None = msgspec.field(default=None, name="nonResourceURLs")
    verbs: tuple[str, ...] | None = None


def parse_rules(rules: Any) -> tuple[PolicyRule, ...]:
    """The rules of a decoded role; raises msgspec.ValidationError if they are none."""
    return msgspec.convert(rules or (), tuple[PolicyRule, ...])


FULL_AUTHORITY = (
    PolicyRule(api_groups=(ANY,), resources=(ANY,), verbs=(ANY,)),
    PolicyRule(non_resource_urls=(ANY,), verbs=(ANY,)),
)


def permits(rule: PolicyRule, attributes: Attributes) -> bool:
    """Whether one rule is enough for a request."""
    if attributes.path:
        return permits_path(rule, attributes.verb, attributes.path)
    if not permits_resource(rule, attributes.verb, attributes.group, attributes.resource, attributes.subresource):
        return False
    return not rule.resource_names or attributes.name in rule.resource_names


def permits_resource(rule: PolicyRule, verb: str, group: str, resource: str, subresource: str) -> bool:
    """Whether a rule is about this verb and resource; its resource names are another question."""
    verbs, groups, resources = rule.verbs or (), rule.api_groups or (), rule.resources or ()
    if not ((verb in verbs or ANY in verbs) and (group in groups or ANY in groups)):
        return False
    if ANY in resources:
        return True
    if not subresource:
        return resource in resources
    return f"{resource}/{subresource}" in resources or f"*/{subresource}" in resources


def permits_path(rule: PolicyRule, verb: str, path: str) -> bool:
    verbs = rule.verbs or ()
    return (verb in verbs or ANY in verbs) and any(
        _covers_path(pattern, path) for pattern in rule.non_resource_urls or ()
    )


def _covers_path(pattern: str, path: str) -> bool:
    return pattern == path or (pattern.endswith(ANY) and path.startswith(pattern.rstrip(ANY)))


# -- covering


@dataclass(frozen=True, slots=True)
class _Atom:
    """A rule that permits one thing: one verb on one resource (of one name, or of any), or on one path."""

    verb: str
    group: str = ""
    resource: str = ""
    name: str | None = None
    url: str | None = None


def uncovered(held: Sequence[PolicyRule], wanted: Iterable[PolicyRule]) -> list[PolicyRule]:
    """What `wanted` permits and `held` does not, compacted; empty when the holder may hand all of it out."""
    missing = [atom for rule in wanted for atom in _atoms(rule) if not any(_covers(owner, atom) for owner in held)]
    return _compact(dict.fromkeys(missing))


def _atoms(rule: PolicyRule) -> Iterator[_Atom]:
    verbs = rule.verbs or ()
    names: Sequence[str | None] = rule.resource_names or (None,)
    for group, resource, name, verb in product(rule.api_groups or (), rule.resources or (), names, verbs):
        yield _Atom(verb, group, resource, name)
    for url, verb in product(rule.non_resource_urls or (), verbs):
        yield _Atom(verb, url=url)


def _covers(owner: PolicyRule, atom: _Atom) -> bool:
    verbs = owner.verbs or ()
    if atom.verb not in verbs and ANY not in verbs:
        return False
    if atom.url is not None:
        return any(_covers_path(pattern, atom.url) for pattern in owner.non_resource_urls or ())
    groups, resources = owner.api_groups or (), owner.resources or ()
    if atom.group not in groups and ANY not in groups:
        return False
    _, slash, subresource = atom.resource.partition("/")
    if not (ANY in resources or atom.resource in resources or (slash and f"*/{subresource}" in resources)):
        return False
    return not owner.resource_names or (atom.name is not None and atom.name in owner.resource_names)


def _compact(atoms: Iterable[_Atom]) -> list[PolicyRule]:
    """Atoms that differ only in their verb become one rule."""
    verbs: dict[_Atom, list[str]] = {}
    for atom in atoms:
        thing = _Atom("", atom.group, atom.resource, atom.name, atom.url)
        verbs.setdefault(thing, []).append(atom.verb)
    return [
        PolicyRule(non_resource_urls=(thing.url,), verbs=tuple(found))
        if thing.url is not None
        else PolicyRule(
            api_groups=(thing.group,),
            resources=(thing.resource,),
            resource_names=None if thing.name is None else (thing.name,),
            verbs=tuple(found),
        )
        for thing, found in verbs.items()
    ]


def describe(rule: PolicyRule) -> str:
    """`{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}`, as refusals name rules."""
    fields = (
        ("APIGroups", rule.api_groups),
        ("Resources", rule.resources),
        ("NonResourceURLs", rule.non_resource_urls),
        ("ResourceNames", rule.resource_names),
        ("Verbs", rule.verbs),
    )
    return "{" + ", ".join(f"{name}:{quoted_list(values)}" for name, values in fields if values) + "}"


def quoted_list(values: Iterable[str]) -> str:
    return "[" + " ".join(f'"{value}"' for value in values) + "]"
