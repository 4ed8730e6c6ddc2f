"""One list of admission plugins: what the embedded chain asks, the webhook answers and the registration names."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from planform.admission import PLUGINS, REGISTERED, Plugin, asked_at, chain
from planform.api.builtin import BUILTIN_KINDS
from planform.api.extensions import crds
from planform.api.kinds import Kind
from planform.apiserver.admission.chain import Admission, Operation
from planform.apiserver.verbs.requests import Request
from planform.app import Settings, open_control_plane
from planform.cluster.registration import Address, configurations

KINDS = [
    *BUILTIN_KINDS,
    *(
        Kind(crd["spec"]["group"], each["name"], crd["spec"]["names"]["kind"], crd["spec"]["names"]["plural"], False)
        for crd in crds()
        for each in crd["spec"]["versions"]
    ),
]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)


class Spy:
    """A plugin that only counts."""

    def __init__(self) -> None:
        self.asked = 0

    def admit(self, admission: Admission, /) -> None:
        self.asked += 1


def write(kind: Kind, operation: Operation) -> Admission:
    obj: dict[str, Any] = {"metadata": {"name": "x"}}
    new, old = (None if operation == "DELETE" else obj), (None if operation == "CREATE" else obj)
    return Admission(operation, kind, "", "x", new, old, "", Request())


def asked_by_an_api_server(plugin: Plugin, kind: Kind, operation: Operation) -> bool:
    """Whether the registration sends such writes to a path at which the plugin answers."""
    spies = {each: Spy() for each in PLUGINS}
    for configuration, rule in _rules():
        paths = {each["clientConfig"]["service"]["path"] for each in configuration["webhooks"] if rule in each["rules"]}
        groups, resources = rule["apiGroups"], rule["resources"]
        matches = operation in rule["operations"] and ("*" in groups or kind.group in groups)
        matches = matches and ("*" in resources or kind.plural in resources)
        if matches and any(spies[plugin] in asked_at(path, spies) for path in paths):
            return True
    return False


def _rules() -> Iterator[tuple[Any, Any]]:
    for configuration in configurations(Address("planform"), b"bundle", "planform"):
        for webhook in configuration["webhooks"]:
            yield from ((configuration, rule) for rule in webhook["rules"])


ON_BOTH = [each for each in REGISTERED if each.rules]


@pytest.mark.parametrize("plugin", ON_BOTH, ids=[each.name for each in ON_BOTH])
def test_both_engines_ask_a_plugin_about_all_writes_that_it_wants(plugin: Plugin) -> None:
    spies = {each: Spy() for each in PLUGINS}
    embedded, asked = chain(spies), 0
    for kind, operation in itertools.product(KINDS, OPERATIONS):
        for each in embedded:
            each.admit(write(kind, operation))
        is_asked, asked = spies[plugin].asked > asked, spies[plugin].asked
        if is_asked:
            assert asked_by_an_api_server(plugin, kind, operation), f"{operation} {kind.plural}.{kind.group}"
    assert asked


def test_what_a_real_api_server_does_not_ask_us_it_does_by_itself() -> None:
    assert {each.name for each in PLUGINS} - {each.name for each in REGISTERED} == {"escalation", "parameters"}
    assert {each for each in PLUGINS if each.hooks} == set(REGISTERED)
    assert {each.name for each in PLUGINS if not each.rules} == {"journals"}  # which the embedded engine serves itself


def test_every_webhook_has_a_name_of_its_own_and_a_plugin_that_answers() -> None:
    hooks = [hook for plugin in PLUGINS for hook in plugin.hooks]
    assert len({hook.name for hook in hooks}) == len(hooks)
    spies = {each: Spy() for each in PLUGINS}
    assert all(asked_at(hook.path, spies) for hook in hooks)


async def test_the_embedded_chain_has_every_plugin_in_order() -> None:
    async with open_control_plane(Settings(data=None)) as plane:
        assert len(plane.core.admission) == len([each for each in PLUGINS if each.rules])
