"""The key that random values are made with: made once, shared by replicas, private, and missed when it is gone."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from planform.api.kinds import Object
from planform.api.names import RECONCILE_REQUESTED_ANNOTATION, SECRET, SYSTEM_NAMESPACE, XRD
from planform.app import Settings, open_control_plane
from planform.builtin.seeds import KeyUnavailable
from planform.errors import NotFound
from planform.pipeline.random_keys import CONFIG, CONFIG_MAP, StoredRandomKeys, secret_name
from planform.reconcile.context import ControllerContext
from tests.controllers.composing import Platform, a_process
from tests.harness.contexts import condition_of

PASSWORD = """
apiVersion: v1
kind: Secret
metadata:
  annotations:
    gotemplating.fn.crossplane.io/composition-resource-name: password
    gotemplating.fn.crossplane.io/ready: "True"
stringData: {password: {{ randAlphaNum 24 }}}
"""


def drawing() -> Object:
    template = {"source": "Inline", "inline": {"template": PASSWORD}}
    kind = {"apiVersion": "gotemplating.fn.crossplane.io/v1beta1", "kind": "GoTemplate"}
    return {"step": "draw", "functionRef": {"name": "function-go-templating"}, "input": {**kind, **template}}


async def password_of(platform: Platform, xr: Object) -> str:
    return str((await platform.composed(xr, SECRET))["password"]["data"]["password"])


async def run_again(platform: Platform, xr: Object, token: str) -> None:
    await platform.merge(xr, {"metadata": {"annotations": {RECONCILE_REQUESTED_ANNOTATION: token}}})
    await platform.until(xr, lambda found: found["status"].get("lastHandledReconcileAt") == token, "it was run again")


async def test_xrs_get_the_same_values_from_every_replica_and_none_without_the_key(
    context: ControllerContext, unique: str, tmp_path: Path
) -> None:
    async with a_process(context, unique, tmp_path / "first") as platform:
        await platform.define()
        await platform.compose(drawing())
        xr = await platform.create()
        await platform.ready(xr)
        password = await password_of(platform, xr)
    async with a_process(context, unique, tmp_path / "second") as platform:
        await run_again(platform, xr, "by another")
        assert await password_of(platform, xr) == password
        ring = await StoredRandomKeys(context.client, SYSTEM_NAMESPACE).keyring("")
    key = await context.client.get(SECRET, secret_name(ring.current), namespace=SYSTEM_NAMESPACE)
    await context.client.delete(SECRET, secret_name(ring.current), namespace=SYSTEM_NAMESPACE)
    try:
        async with a_process(context, unique, tmp_path / "third") as platform:
            later = await platform.create("later")
            told = await platform.failed(later, f'Secret "{secret_name(ring.current)}" in namespace')
            assert "random values cannot be made: the control plane" in str(told["status"])
            assert "restore it from a backup, or give up the values" in str(told["status"])
            await platform.merge(xr, {"metadata": {"annotations": {RECONCILE_REQUESTED_ANNOTATION: "without"}}})
            await platform.failed(xr, "the control plane's key is gone")
            assert await password_of(platform, xr) == password, "what is there stays"
            await context.client.create(_anew(key))
            await platform.ready(later)
            await run_again(platform, xr, "with the key again")
            assert await password_of(platform, xr) == password
            for each in (xr, later):
                await context.client.delete(platform.kind, each["metadata"]["name"], namespace=platform.namespace)
                await platform.gone(each)
            await context.client.delete(XRD, f"apps.{platform.group}")
    finally:
        if await _is_missing(context, ring.current):  # the cluster is others', too
            await context.client.create(_anew(key))


async def _is_missing(context: ControllerContext, identifier: str) -> bool:
    try:
        await context.client.get(SECRET, secret_name(identifier), namespace=SYSTEM_NAMESPACE)
    except NotFound:
        return True
    return False


def _anew(obj: Object) -> Object:
    metadata = {name: obj["metadata"][name] for name in ("name", "namespace", "labels")}
    return {**{name: value for name, value in obj.items() if name != "metadata"}, "metadata": metadata}


async def test_an_archive_without_the_key_is_taken_and_renders_nothing_random(tmp_path: Path) -> None:
    """End to end: exported by command without Secrets, imported into a new data directory, and started."""
    archive = tmp_path / "archive.tar.gz"
    async with open_control_plane(Settings(data=tmp_path / "old")) as plane:
        platform = Platform(plane.client, "moved")
        await platform.define()
        await platform.compose(drawing())
        await platform.ready(await platform.create())
        await _command("export", str(archive), "--without-secrets", kubeconfig=plane.kubeconfig)
    await _command("import", str(archive), "--data", str(tmp_path / "new"))
    async with open_control_plane(Settings(data=tmp_path / "new")) as plane:
        platform = Platform(plane.client, "moved")
        told = await platform.failed(platform.xr(), "random values cannot be made: the random key")
        assert "planform random rotate" in str(told["status"])
        assert await platform.composed(platform.xr(), SECRET) == {}
        await _command("random", "rotate", f"App/{told['metadata']['name']}", kubeconfig=plane.kubeconfig)
        await platform.until(platform.xr(), _is_synced, "new values were made")  # it is Ready=True from the archive
        await platform.ready(platform.xr())
        assert await password_of(platform, platform.xr())


def _is_synced(xr: Object) -> bool:
    return (condition_of(xr, "Synced") or {}).get("status") == "True"


async def _command(*words: str, kubeconfig: Path | None = None) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "planform", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "KUBECONFIG": str(kubeconfig or os.devnull), "NO_COLOR": "1"},
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()


async def test_replicas_share_one_key_and_a_restart_makes_no_other(context: ControllerContext, unique: str) -> None:
    first = StoredRandomKeys(context.client, f"{unique}-keys")
    await first.ensure()
    made = await first.keyring("")
    second = await StoredRandomKeys(context.client, f"{unique}-keys").keyring("")
    assert (second.current, second.since, second.keys) == (made.current, made.since, made.keys)
    assert len(made.keys[made.current]) == 32
    secret = await context.client.get(SECRET, secret_name(made.current), namespace=f"{unique}-keys")
    assert secret["type"] == "planform.dev/random-key"


async def test_a_key_that_is_gone_or_was_changed_is_not_replaced(context: ControllerContext, unique: str) -> None:
    namespace = f"{unique}-keys"
    made = await StoredRandomKeys(context.client, namespace).keyring("")
    secret = await context.client.get(SECRET, secret_name(made.current), namespace=namespace)
    await context.client.delete(SECRET, secret_name(made.current), namespace=namespace)
    with pytest.raises(KeyUnavailable, match="restore it from a backup"):
        await StoredRandomKeys(context.client, namespace).keyring("")
    forged = {**secret, "data": {"key": "AAAA"}, "metadata": {**secret["metadata"], "resourceVersion": ""}}
    for member in ("uid", "creationTimestamp", "managedFields", "resourceVersion"):
        forged["metadata"].pop(member, None)
    await context.client.create(forged)
    with pytest.raises(KeyUnavailable, match="is missing or was changed"):
        await StoredRandomKeys(context.client, namespace).keyring("")
    with pytest.raises(NotFound):
        await context.client.get(CONFIG_MAP, CONFIG, namespace="default")


async def test_the_key_of_another_control_plane_is_found_when_an_xr_names_it(
    context: ControllerContext, unique: str
) -> None:
    here = StoredRandomKeys(context.client, f"{unique}-keys")
    own = (await here.keyring("")).current
    foreign = await StoredRandomKeys(context.client, f"{unique}-others").keyring("")
    assert foreign.current != own
    ring = await here.keyring(foreign.current)
    assert ring.current == own
    assert ring.keys[foreign.current] == foreign.keys[foreign.current]
