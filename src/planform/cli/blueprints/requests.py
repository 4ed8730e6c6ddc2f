"""ActionSets from what a command line says. Everything but looking up a kind is pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from planform.api.kinds import Object
from planform.api.metadata import namespace_of
from planform.api.names import ACTION_SET
from planform.blueprints.children import child_of
from planform.blueprints.parameters import KNOWN_KINDS
from planform.cli.connection import Connected
from planform.errors import UsageError

_NEXT_PAIR: Final = re.compile(r",(?=[\w.-]+=)")
_MAX_PREFIX_LENGTH: Final = 55


@dataclass(frozen=True)
class Wanted:
    """What the flags of `planform actionset create` say, split into words; `objects` are (kind, namespace, name)."""

    action: str
    blueprint: str = ""
    name: str = ""
    namespace: str = ""
    objects: Sequence[tuple[str, str, str]] = ()
    profile: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    config_maps: Mapping[str, str] = field(default_factory=dict)
    preferred_version: str = ""


def pairs(flag: str, given: Iterable[str]) -> dict[str, str]:
    """`a=1` and `b=2,c=3`: a comma separates where another NAME= follows it. Raises UsageError."""
    found: dict[str, str] = {}
    for text in given:
        for pair in _NEXT_PAIR.split(text):
            name, equals, value = pair.partition("=")
            if not equals or not name:
                raise UsageError(f'{flag}: "{pair}" is not NAME=VALUE')
            found[name] = value
    return found


def targets(flag: str, kind: str, given: Iterable[str]) -> list[tuple[str, str, str]]:
    """Objects of a kind that are given as NAMESPACE/NAME, or as NAME in the ActionSet's namespace."""
    found = []
    for text in given:
        namespace, name = _split(flag, text)
        found.append((kind, namespace, name))
    return found


def mixed_targets(flag: str, given: Iterable[str]) -> list[tuple[str, str, str]]:
    """Objects that are given as KIND=NAMESPACE/NAME."""
    found = []
    for text in given:
        kind, equals, rest = text.partition("=")
        if not equals or not kind:
            raise UsageError(f'{flag}: "{text}" is not KIND=[NAMESPACE/]NAME', hint="as in deployment=shop/web")
        found += targets(flag, kind, [rest])
    return found


async def action_set(connected: Connected, wanted: Wanted) -> Object:
    """The ActionSet that runs the action on each object."""
    if not wanted.blueprint:
        raise UsageError("which Blueprint?", hint="--blueprint NAME, or --from an ActionSet that is complete")
    if not wanted.objects:
        raise UsageError("on which object?", hint="--object KIND=NAMESPACE/NAME, as in --object deployment=shop/web")
    namespace = wanted.namespace or connected.namespace
    more = _more(wanted, namespace)
    actions = []
    for each in wanted.objects:
        target = await _reference(connected, each, namespace)
        actions.append({"name": wanted.action, "blueprint": wanted.blueprint, "object": target, **more})
    metadata = {"generateName": f"{wanted.action}-"[:_MAX_PREFIX_LENGTH], "namespace": namespace}
    return _named(
        {
            "apiVersion": ACTION_SET.api_version,
            "kind": ACTION_SET.kind,
            "metadata": metadata,
            "spec": {"actions": actions},
        },
        wanted.name,
    )


async def child_action_set(connected: Connected, wanted: Wanted, parent: Object) -> Object:
    """The ActionSet that goes on from a complete one: its artifacts and settings, with what the flags say on top."""
    namespace = namespace_of(parent)
    if len(wanted.objects) > 1:
        raise UsageError("an ActionSet that goes on from another can act on one object instead of its")
    made = child_of(parent, wanted.action)
    more = _more(wanted, namespace)
    if wanted.blueprint:
        more["blueprint"] = wanted.blueprint
    for each in wanted.objects:
        more["object"] = await _reference(connected, each, namespace)
    made["spec"]["actions"] = [_over(action, more) for action in made["spec"]["actions"]]
    return _named(made, wanted.name)


def _over(action: Mapping[str, Any], more: Mapping[str, Any]) -> Object:
    """What is a map of names on both sides is merged; `object` and `profile` are replaced whole."""
    merged = {name: {**(action.get(name) or {}), **more[name]} for name in _MAPS if name in more}
    return {**action, **more, **merged}


_MAPS: Final = ("options", "secrets", "configMaps")


def _more(wanted: Wanted, namespace: str) -> Object:
    more: Object = {}
    if wanted.profile:
        more["profile"] = _named_reference("--profile", wanted.profile, namespace)
    if wanted.options:
        more["options"] = dict(wanted.options)
    for flag, name, given in (
        ("--secrets", "secrets", wanted.secrets),
        ("--config-maps", "configMaps", wanted.config_maps),
    ):
        if given:
            more[name] = {alias: _named_reference(flag, text, namespace) for alias, text in given.items()}
    if wanted.preferred_version:
        more["preferredVersion"] = wanted.preferred_version
    return more


async def _reference(connected: Connected, target: tuple[str, str, str], namespace: str) -> Object:
    """A reference as ActionSets have it: by kind for workloads, else by group, version and resource."""
    kind, place, name = target
    if kind.lower() == "namespace":
        return {"kind": "namespace", "name": name, "namespace": name}
    if kind.lower() in KNOWN_KINDS - {"unstructured"}:
        return {"kind": kind.lower(), "name": name, "namespace": place or namespace}
    served = await connected.find_kind(kind)
    found = {"apiVersion": served.version, "group": served.group, "resource": served.plural, "name": name}
    return {**found, "namespace": place or namespace} if served.namespaced else found


def _named_reference(flag: str, text: str, namespace: str) -> Object:
    place, name = _split(flag, text)
    return {"name": name, "namespace": place or namespace}


def _split(flag: str, text: str) -> tuple[str, str]:
    before, slash, after = text.partition("/")
    namespace, name = (before, after) if slash else ("", before)
    if not name or "/" in name:
        raise UsageError(f'{flag}: "{text}" is not [NAMESPACE/]NAME')
    return namespace, name


def _named(obj: Object, name: str) -> Object:
    if name:
        obj["metadata"].pop("generateName", None)
        obj["metadata"]["name"] = name
    return obj
