"""The admission plugins as a webhook of a real API server, served by a replica as users run it."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import BLUEPRINT, CLUSTER_NOP_RESOURCE, CLUSTER_USAGE, SECRET
from planform.blueprints.model import LOCKS_ANNOTATION
from planform.client.protocol import Client
from planform.cluster.registration import MUTATING, VALIDATING, find, trusted_by
from planform.cluster.webhook import SECRET_NAME
from planform.errors import Conflict, Invalid, NotFound
from planform.usages.usages import IN_USE_LABEL
from tests.harness.contexts import eventually, read
from tests.harness.processes import Child
from tests.kubernetes.conftest import Audited
from tests.kubernetes.replicas import NAMESPACE, connected, replica, until_works

pytestmark = [pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes"), pytest.mark.timeout(200)]


@pytest.fixture(scope="module")
def served(audited: Audited, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Audited, Child]]:
    """One replica that serves the webhook for all tests here; afterwards nobody is asked any more."""
    directory: Path = tmp_path_factory.mktemp("webhook")
    options = ("--webhook-listen", "127.0.0.1:0", "--lease-duration", "6s")
    with replica(audited.cluster, "hook", *options, directory=directory) as child:
        yield audited, child
    for kind in ("validatingwebhookconfiguration", "mutatingwebhookconfiguration"):
        audited.cluster.kubectl("delete", kind, "planform", "--ignore-not-found")


async def until_asked(client: Client, child: Child) -> None:
    """Wait until the replica works and the API server asks it."""
    await until_works(child)

    async def registered() -> bool:
        return bool(trusted_by(await find(client, VALIDATING))) and bool(trusted_by(await find(client, MUTATING)))

    await eventually(registered, "the webhook is registered")


def nop(name: str) -> Object:
    kind = CLUSTER_NOP_RESOURCE
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name},
        "spec": {"forProvider": {}},
    }


def usage_of(name: str) -> Object:
    of = {
        "apiVersion": CLUSTER_NOP_RESOURCE.api_version,
        "kind": CLUSTER_NOP_RESOURCE.kind,
        "resourceRef": {"name": name},
    }
    return {
        "apiVersion": CLUSTER_USAGE.api_version,
        "kind": CLUSTER_USAGE.kind,
        "metadata": {"name": name},
        "spec": {"of": of, "reason": "somebody needs it", "replayDeletion": True},
    }


async def until_marked(client: Client, name: str) -> None:
    async def marked() -> bool:
        found = await client.get(CLUSTER_NOP_RESOURCE, name)
        return (found["metadata"].get("labels") or {}).get(IN_USE_LABEL) == "true"

    await eventually(marked, f"{name} is marked as in use")


async def until_gone(client: Client, kind: GroupVersionKind, name: str) -> None:
    async def gone() -> bool:
        return await read(client, kind, name) is None

    await eventually(gone, f"{kind.kind} {name} is gone")


async def test_what_is_in_use_is_not_deleted_until_it_no_longer_is(served: tuple[Audited, Child], unique: str) -> None:
    audited, child = served
    async with connected(audited.cluster) as client:
        await until_asked(client, child)
        await client.create(nop(unique))
        await client.create(usage_of(unique))
        await until_marked(client, unique)

        async def refused() -> bool:  # the webhook hears of the usage by a watch of its own
            try:
                await client.delete(CLUSTER_NOP_RESOURCE, unique)
            except Conflict as error:
                return "somebody needs it" in str(error)
            return False

        assert await refused()
        await client.delete(CLUSTER_USAGE, unique)
        await until_gone(client, CLUSTER_NOP_RESOURCE, unique)  # as was asked for while it was in use


async def test_a_pipeline_that_cannot_run_is_refused_and_the_mistake_is_named(
    served: tuple[Audited, Child], unique: str
) -> None:
    audited, child = served
    step = {
        "step": "compose",
        "functionRef": {"name": "function-patch-and-transform"},
        "credentials": [{"name": "c", "source": "Secret"}],
    }
    composition = {
        "apiVersion": "apiextensions.crossplane.io/v1",
        "kind": "Composition",
        "metadata": {"name": unique},
        "spec": {
            "compositeTypeRef": {"apiVersion": f"{unique}.example.org/v1", "kind": "App"},
            "mode": "Pipeline",
            "pipeline": [step],
        },
    }
    async with connected(audited.cluster) as client:
        await until_asked(client, child)
        with pytest.raises(Invalid, match=r"spec\.pipeline\[0\]\.credentials\[0\]"):
            await client.create(composition)


async def test_a_blueprint_that_cannot_run_is_refused_and_one_that_locks_its_versions_is_bound(
    served: tuple[Audited, Child], unique: str
) -> None:
    def blueprint(function: str) -> Object:
        task = {"name": "a", "func": function, "args": {"image": "busybox", "namespace": "default", "command": ["ls"]}}
        return {
            "apiVersion": BLUEPRINT.api_version,
            "kind": BLUEPRINT.kind,
            "metadata": {"name": unique, "namespace": "default"},
            "versionPolicy": "Lock",
            "actions": {"run": {"phases": [task]}},
        }

    audited, child = served
    async with connected(audited.cluster) as client:
        await until_asked(client, child)
        with pytest.raises(Invalid, match="NoSuchFunction"):
            await client.create(blueprint("NoSuchFunction"))
        made = await client.create(blueprint("KubeTask"))
        assert made["metadata"]["annotations"][LOCKS_ANNOTATION]


async def test_a_lost_secret_is_made_anew_and_trusted_again(served: tuple[Audited, Child], unique: str) -> None:
    audited, child = served
    async with connected(audited.cluster) as client:
        await until_asked(client, child)
        await client.create(nop(unique))
        await client.create(usage_of(unique))
        await until_marked(client, unique)
        before = trusted_by(await find(client, VALIDATING))
        await client.delete(SECRET, SECRET_NAME, namespace=NAMESPACE)

        async def trusted_anew() -> bool:
            try:
                secret = await client.get(SECRET, SECRET_NAME, namespace=NAMESPACE)
            except NotFound:
                return False
            found = trusted_by(await find(client, VALIDATING))
            return found != before and found == base64.b64decode(secret["data"]["ca.crt"])

        await eventually(trusted_anew, "the API server trusts a new authority")

        async def asked() -> bool:
            with pytest.raises(Conflict) as refused:
                await client.delete(CLUSTER_NOP_RESOURCE, unique)
            return "somebody needs it" in str(refused.value)

        await eventually(asked, "the webhook answers under its new certificate")
