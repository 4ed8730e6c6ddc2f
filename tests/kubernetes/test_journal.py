"""Runs are explained on a cluster too: by whichever replica ran them, to who may view the XR, and nobody else."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import (
    FUNCTION,
    FUNCTION_REVISION,
    JOURNAL_REVIEW,
    PACKAGE_LABEL,
    PREVIEW,
    PREVIEW_LABEL,
    PREVIEW_REPORT,
)
from planform.client.kubeconfig import find_connection, write_kubeconfig
from planform.client.kubernetes import KubernetesClient
from planform.client.protocol import Client
from planform.clock import SystemClock
from planform.cluster.journal_peers import ADDRESS_ANNOTATION
from planform.cluster.journal_reviews import ROLE
from planform.errors import BadRequest
from planform.reconcile.election import LEASE
from tests.controllers.composing import Platform, config_map, templates
from tests.harness.contexts import eventually, read, until_condition
from tests.harness.function_server import function_server
from tests.kubernetes.conftest import Audited
from tests.kubernetes.replicas import NAMESPACE, PLANFORM, connected, replica, until_any_says, withdraw
from tests.kubernetes.test_shards import make, shards_of, until_owners

pytestmark = [pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes"), pytest.mark.timeout(280)]

OPTIONS = ("--lease-duration", "6s", "--webhook-listen", "127.0.0.1:0")
TEMPLATE = """
apiVersion: v1
kind: ConfigMap
metadata:
  annotations:
    gotemplating.fn.crossplane.io/composition-resource-name: settings
data:
  size: "{{ .observed.composite.resource.spec.size }}"
"""
TEMPLATES: Object = {
    "apiVersion": "gotemplating.fn.crossplane.io/v1beta1",
    "kind": "GoTemplate",
    "source": "Inline",
    "inline": {"template": TEMPLATE},
}
CLUSTER_ROLE = GroupVersionKind("rbac.authorization.k8s.io", "v1", "ClusterRole")


@pytest.fixture(scope="module", autouse=True)
def unregistered(audited: Audited) -> Iterator[None]:
    """Afterwards nobody is asked any more."""
    yield
    for kind in ("validatingwebhookconfiguration", "mutatingwebhookconfiguration"):
        audited.cluster.kubectl("delete", kind, "planform", "--ignore-not-found")


async def a_user(audited: Audited, client: Client, name: str, directory: Path, *roles: str) -> Path:
    """The kubeconfig of a ServiceAccount that has these ClusterRoles."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}}
    await client.create(account)
    for number, role in enumerate(roles):
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"{name}-{number}"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        }
        await client.create(binding)
    token = audited.cluster.kubectl("create", "token", name, "-n", "default").strip()
    path, ca = directory / f"{name}.kubeconfig", audited.cluster.ca_file.read_bytes()
    write_kubeconfig(path, name=name, server=audited.cluster.url, ca=ca, token=token)
    return path


async def planform(kubeconfig: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(PLANFORM), *words, "--kubeconfig", str(kubeconfig)]
    return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)


@asynccontextmanager
async def two_replicas(audited: Audited, client: Client, unique: str, tmp_path: Path) -> AsyncIterator[Platform]:
    """They share the XRs of a platform, and answer reviews."""
    zero, one = f"zero-{unique}", f"one-{unique}"
    with (
        replica(audited.cluster, zero, *OPTIONS, "--shards", "0/2", directory=tmp_path) as first,
        replica(audited.cluster, one, *OPTIONS, "--shards", "1/2", directory=tmp_path) as second,
    ):
        await until_owners(client, zero, one)
        await until_any_says((first, second), "all controllers run")
        platform = Platform(client, unique)
        await platform.define()
        await platform.compose(templates(config_map("a"), config_map("b")))

        async def serves() -> Object | None:
            return await read(client, CLUSTER_ROLE, ROLE)

        await eventually(serves, "who views may ask for runs")
        yield platform
        await withdraw(client, f"apps.{platform.group}")


async def until_gathered(client: Client, platform: Platform) -> None:
    """Wait until the cluster has put together what `view` means, with the platform's kinds."""

    async def gathered() -> bool:
        rules = (await client.get(CLUSTER_ROLE, "view")).get("rules") or ()
        groups = {group for rule in rules for group in rule.get("apiGroups") or ()}
        return {JOURNAL_REVIEW.group, platform.group} <= groups

    await eventually(gathered, "view has the new kinds")


async def test_who_may_view_is_told_of_runs_of_either_replica_and_nobody_else_is(
    audited: Audited, unique: str, tmp_path: Path
) -> None:
    async with (
        connected(audited.cluster) as client,
        two_replicas(audited, client, unique, tmp_path) as platform,
    ):
        await make(platform, 0, 12)
        shards = shards_of(platform, 0, 12)
        assert set(shards.values()) == {0, 1}
        await until_gathered(client, platform)
        viewer = await a_user(audited, client, f"viewer-{unique}", tmp_path, "view")
        kind = f"apps.{platform.group}"
        for name in shards:
            explained = await planform(viewer, "explain-run", kind, name, "-o", "json")
            assert explained.returncode == 0, explained.stderr
            run = json.loads(explained.stdout)
            assert (run["name"], run["failure"]) == (name, "")
            assert [step["step"] for step in run["steps"]] == ["compose"]
        listed = await planform(viewer, "explain-run", kind, name, "--list")
        assert "ok" in listed.stdout, listed.stderr
        traced = await planform(viewer, "trace", kind, name, "-o", "wide")
        assert "function-patch-and-transform" in traced.stdout, traced.stderr

        stranger = await a_user(audited, client, f"stranger-{unique}", tmp_path, "system:discovery", ROLE)
        uid = (await client.get(platform.kind, name, namespace="default"))["metadata"]["uid"]
        review: Object = {
            "apiVersion": JOURNAL_REVIEW.api_version,
            "kind": JOURNAL_REVIEW.kind,
            "metadata": {"generateName": "read-", "namespace": "default"},
            "spec": {"path": f"/planform/v1/runs/{uid}/latest"},
        }
        clock = SystemClock()
        connection = find_connection(clock=clock, path=stranger)
        async with KubernetesClient(connection, clock=clock, rng=Random(1)) as other:
            status = (await other.create(review, dry_run=True))["status"]
            assert status["code"] == 403
            assert "may not get App" in status["body"]
        with pytest.raises(BadRequest, match="never stored"):
            await client.create(review)


async def test_who_may_view_and_preview_compares_revisions_of_a_function_on_both_replicas(
    audited: Audited, unique: str, tmp_path: Path
) -> None:
    function = f"fn-{unique}"
    with function_server(tmp_path, "nothing") as server:
        async with (
            connected(audited.cluster) as client,
            two_replicas(audited, client, unique, tmp_path) as platform,
        ):
            packages: list[tuple[str, dict[str, str]]] = [
                ("crossplane-contrib/function-go-templating:v0.9.0", {}),
                ("crossplane-contrib/function-go-templating:v0.10.0", {}),
                ("acme/function-nothing:v0.5.0", {"planform.dev/endpoint": server.target}),
            ]
            for package, annotations in packages:
                await install(client, function, f"registry.example.org/{package}", annotations)
            step = {"step": "render", "functionRef": {"name": function}, "input": TEMPLATES}
            revisions = (await client.list(FUNCTION_REVISION, labels=f"{PACKAGE_LABEL}={function}")).items
            [first] = [each["metadata"]["name"] for each in revisions if each["spec"]["revision"] == 1]
            await platform.compose({**step, "functionRevisionRef": {"name": first}}, name=f"rendered-{unique}")
            names = [f"r{number}" for number in range(8)]
            rendered = {"name": f"rendered-{unique}"}
            xrs = [await platform.create(name, compositionRef=rendered, spec={"size": 1}) for name in names]
            for xr in xrs:
                await until_condition(client, xr, "Synced")
            await until_gathered(client, platform)
            rules = [
                {"apiGroups": [PREVIEW.group], "resources": ["previews"], "verbs": ["create", "get"]},
                {"apiGroups": [PREVIEW.group], "resources": ["previewreports"], "verbs": ["list"]},
            ]
            role = {"apiVersion": CLUSTER_ROLE.api_version, "kind": CLUSTER_ROLE.kind, "rules": rules}
            await client.create({**role, "metadata": {"name": f"previews-{unique}"}})
            viewer = await a_user(audited, client, f"differ-{unique}", tmp_path, "view", f"previews-{unique}")
            old, again, nothing = (f"{function}:{number}" for number in (1, 2, 3))
            same = await planform(viewer, "function", "diff", old, again)
            assert "  8 unchanged\n  0 changed" in same.stdout, same.stderr
            told = await planform(viewer, "function", "diff", old, nothing, "-o", "json")
            assert told.returncode == 0, told.stderr
            answer = json.loads(told.stdout)
            assert (answer["summary"]["changed"], answer["summary"]["losingResources"]) == (8, 8)
            reports = (await client.list(PREVIEW_REPORT, labels=f"{PREVIEW_LABEL}={answer['preview']}")).items
            assert sorted(len(each["spec"]["xrs"]) > 0 for each in reports) == [True, True], "each replica its own"
            with_view_alone = await a_user(audited, client, f"reader-{unique}", tmp_path, "view")
            refused = await planform(with_view_alone, "function", "diff", old, again)
            assert refused.returncode == 1
            assert "create and get previews of rollout.planform.dev" in refused.stderr


async def install(client: Client, name: str, package: str, annotations: dict[str, str]) -> None:
    spec = {"package": package, "revisionHistoryLimit": 4, "activeRevisionLimit": 4}
    metadata = {"name": name, "annotations": annotations}
    function = {"apiVersion": FUNCTION.api_version, "kind": "Function", "metadata": metadata, "spec": spec}
    applied = await client.apply(function, manager="user", force=True)
    await until_condition(client, applied, "Installed", observedGeneration=applied["metadata"]["generation"])


async def test_only_replicas_may_ask_each_other(audited: Audited, unique: str, tmp_path: Path) -> None:
    async with connected(audited.cluster) as client, two_replicas(audited, client, unique, tmp_path) as platform:
        await make(platform, 0, 1)
        lease = await client.get(LEASE, "planform-shard-0-of-2", namespace=NAMESPACE)
        address = lease["metadata"]["annotations"][ADDRESS_ANNOTATION]
        for header in ((), ("-H", "Authorization: Bearer 99999999999.00")):
            asked = await asyncio.to_thread(
                subprocess.run,
                ["curl", "-sk", *header, "-w", "%{http_code}", f"{address}/planform/v1/runs/some-uid"],
                capture_output=True,
                text=True,
                timeout=20,
            )
            assert asked.stdout.endswith("403"), asked.stdout
