"""What another revision of a function would change, tried on the recorded inputs of live XRs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from planform.api.kinds import Object
from planform.api.names import SECRET
from tests.controllers.composing import CONFIG_MAP
from tests.controllers.trying_functions import NAME, Trial, trying
from tests.harness.contexts import eventually

pytestmark = pytest.mark.timeout(180)

ONE = """
config("settings", size=str(spec.get("size")))
if spec.get("cache"):
    config("cache", of=xr["metadata"]["name"])
"""
TWO = 'config("settings", size=str(spec.get("size") if spec.get("size") != 2 else 3))'
"""Without the cache, and with another value where the size is 2."""


@pytest.fixture
async def trial(tmp_path: Path) -> AsyncIterator[Trial]:
    data = tmp_path / "data"
    data.mkdir()
    async with trying(data) as trial:
        yield trial


def by_name(items: list[Object]) -> dict[str, Object]:
    return {each["name"].removesuffix("-try"): each for each in items}


async def test_xrs_are_unchanged_or_changed_or_lose_resources_and_nothing_is_applied(trial: Trial) -> None:
    trial.publish("v1", ONE)
    trial.publish("v2", TWO)
    old = await trial.install("v1", labels={"channel": "stable"})
    await trial.platform.compose(trial.step(functionRevisionSelector={"matchLabels": {"channel": "stable"}}))
    await trial.create(["same"], spec={"size": 1})
    await trial.create(["other"], spec={"size": 2})
    await trial.create(["loser"], spec={"size": 1, "cache": True})
    new = await trial.install("v2", labels={"channel": "alpha"})
    before = (await trial.client.list(CONFIG_MAP)).resource_version

    found = by_name(await trial.diff(old, new))

    assert {name: each["outcome"] for name, each in found.items()} == {
        "same": "unchanged",
        "other": "changed",
        "loser": "changed",
    }
    [change] = found["other"]["changes"]
    assert (change["step"], change["part"], change["resource"]) == ("try", "resource", "settings")
    assert change["before"]["object"]["data"] == {"size": "2"}
    assert change["after"] == {
        "object": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"size": "3"}},
        "ready": True,
    }
    assert found["loser"]["lost"] == ["cache"]
    assert not found["other"]["lost"]
    back = by_name(await trial.diff(new, old))
    assert [each["action"] for each in back["loser"]["changes"]] == ["added"]
    assert (await trial.client.list(CONFIG_MAP)).resource_version == before


async def test_a_revision_that_was_never_active_is_run_for_as_long_as_it_is_asked(trial: Trial) -> None:
    trial.publish("v1", ONE)
    trial.publish("v2", TWO)
    old = await trial.install("v1", activeRevisionLimit=1)
    await trial.platform.compose(trial.step())
    await trial.create(["one"], spec={"size": 2})
    new = await trial.install("v2", activeRevisionLimit=1, revisionActivationPolicy="Manual")
    assert [each["spec"]["desiredState"] for each in await trial.revisions()] == ["Active", "Inactive"]

    [told] = await trial.diff(old, new)

    assert told["outcome"] == "changed"

    async def has_ended() -> bool:
        [_, tried] = await trial.revisions()
        serves = any(each.id == new and each.reachable for each in trial.controllers.functions.catalogue.versions(NAME))
        return not serves and not tried["status"].get("endpoint") and tried["spec"]["desiredState"] == "Inactive"

    await eventually(has_ended, "the revision that was tried is let go")


async def test_steps_see_what_they_saw_in_the_run_and_secrets_as_they_are_now(trial: Trial) -> None:
    password = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login", "namespace": "default"}}
    await trial.client.create({**password, "stringData": {"password": "first-secret"}})
    credentials = [{"name": "login", "source": "Secret", "secretRef": {"namespace": "default", "name": "login"}}]
    body = (
        'login = req.credentials("login")["password"].decode()\n'
        'config("settings", login=LOGIN, seen=str("before" in rsp.desired.resources))'
    )
    trial.publish("v1", body.replace("LOGIN", "str(len(login))"))
    trial.publish("v2", body.replace("LOGIN", "login"))
    old = await trial.install("v1")
    earlier = {
        "apiVersion": "pt.fn.crossplane.io/v1beta1",
        "kind": "Resources",
        "resources": [{"name": "before", "base": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}}],
    }

    async def compose(revision: str) -> None:
        await trial.platform.compose(
            {"step": "before", "functionRef": {"name": "function-patch-and-transform"}, "input": earlier},
            trial.step(credentials=credentials, functionRevisionRef={"name": revision}),
            {"step": "ready", "functionRef": {"name": "function-auto-ready"}},
        )

    await compose(old)
    [xr] = await trial.create(["one"])
    new = await trial.install("v2")
    await trial.platform.at_rest(xr)
    await trial.platform.edit(SECRET, password, {"data": {"password": "c2Vjb25kLXNlY3JldA=="}})

    [told] = await trial.diff(old, new)

    assert told["outcome"] == "changed", told
    [change] = told["changes"]
    assert change["resource"] == "settings", "what an earlier step desired stays as it was"
    assert change["before"]["object"]["data"] == {"login": str(len("second-secret")), "seen": "True"}
    assert change["after"]["object"]["data"] == {"login": "******", "seen": "True"}
    assert "second-secret" not in orjson.dumps(told).decode()

    await compose(new)

    async def is_composed() -> bool:
        found = await trial.platform.composed(xr, CONFIG_MAP)
        return str(found["settings"]["data"]["login"]) == "second-secret"

    await eventually(is_composed, "the secret is in what was composed")
    await trial.platform.merge(xr, {"spec": {"size": 2}})  # so that a run observes it
    await trial.platform.at_rest(xr)
    [told] = await trial.diff(old, new)
    assert told["outcome"] == "skipped"
    assert told["reason"] == 'secret values are masked in resource "settings"'
