"""The key that random values are made with: made once, shared by replicas, private, and missed when it is gone."""

from __future__ import annotations

import pytest

from planform.api.names import SECRET
from planform.builtin.seeds import KeyUnavailable
from planform.controllers.random_keys import CONFIG, CONFIG_MAP, StoredRandomKeys, secret_name
from planform.controllers.workbench import Workbench
from planform.errors import NotFound


async def test_replicas_share_one_key_and_a_restart_makes_no_other(bench: Workbench, unique: str) -> None:
    first = StoredRandomKeys(bench.client, f"{unique}-keys")
    await first.ensure()
    made = await first.keyring("")
    second = await StoredRandomKeys(bench.client, f"{unique}-keys").keyring("")
    assert (second.current, second.since, second.keys) == (made.current, made.since, made.keys)
    assert len(made.keys[made.current]) == 32
    secret = await bench.client.get(SECRET, secret_name(made.current), namespace=f"{unique}-keys")
    assert secret["type"] == "planform.dev/random-key"


async def test_a_key_that_is_gone_or_was_changed_is_not_replaced(bench: Workbench, unique: str) -> None:
    namespace = f"{unique}-keys"
    made = await StoredRandomKeys(bench.client, namespace).keyring("")
    secret = await bench.client.get(SECRET, secret_name(made.current), namespace=namespace)
    await bench.client.delete(SECRET, secret_name(made.current), namespace=namespace)
    with pytest.raises(KeyUnavailable, match="restore it from a backup"):
        await StoredRandomKeys(bench.client, namespace).keyring("")
    forged = {**secret, "data": {"key": "AAAA"}, "metadata": {**secret["metadata"], "resourceVersion": ""}}
    for member in ("uid", "creationTimestamp", "managedFields", "resourceVersion"):
        forged["metadata"].pop(member, None)
    await bench.client.create(forged)
    with pytest.raises(KeyUnavailable, match="is missing or was changed"):
        await StoredRandomKeys(bench.client, namespace).keyring("")
    with pytest.raises(NotFound):
        await bench.client.get(CONFIG_MAP, CONFIG, namespace="default")


async def test_the_key_of_another_control_plane_is_found_when_an_xr_names_it(bench: Workbench, unique: str) -> None:
    here = StoredRandomKeys(bench.client, f"{unique}-keys")
    own = (await here.keyring("")).current
    foreign = await StoredRandomKeys(bench.client, f"{unique}-others").keyring("")
    assert foreign.current != own
    ring = await here.keyring(foreign.current)
    assert ring.current == own
    assert ring.keys[foreign.current] == foreign.keys[foreign.current]
