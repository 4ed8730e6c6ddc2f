"""A provider's controller as a process beside the control plane, with an account of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import (
    ACTIVATION_POLICY,
    CLUSTER_USAGE,
    CRD,
    EVENT,
    MANAGED_DEFINITION,
    PROVIDER,
    PROVIDER_REVISION,
    RUNTIME_CONFIG,
    SYSTEM_NAMESPACE,
)
from planform.apiserver.auth.pki import Pki
from planform.app import ControlPlane, Settings, open_control_plane
from planform.client.protocol import Patch, PatchType
from planform.clock import SystemClock
from planform.errors import ApiError, NotFound
from planform.features import FeatureGates
from planform.packages.blobs import BlobStore
from planform.packages.building import Program, Source, assemble
from planform.packages.contents import PackageContents
from planform.packages.deliveries import Deliveries
from planform.packages.fetching import RegistryPackages
from planform.packages.function_controller import Packaging
from planform.packages.layers import File
from planform.packages.payloads import Payload, RuntimeKind
from planform.packages.providers import ProviderController
from planform.packages.runtimes.certificates import RevisionCertificates
from planform.packages.runtimes.deployments import DEPLOYMENT
from planform.packages.runtimes.host import Draining, RuntimeHost
from planform.packages.xpkg import package_of
from planform.reconcile.context import ControllerContext
from planform.reconcile.events import open_events
from planform.reconcile.limiter import ConcurrencyLimiter
from tests.harness.contexts import condition_of, eventually, until_condition
from tests.harness.packaging import meta

pytestmark = pytest.mark.timeout(120)

REPOSITORY = "registry.example.org/acme/provider-widgets"
WIDGET = GroupVersionKind("widgets.example.org", "v1", "Widget")
CONTROLLER = '''"""Makes widgets ready, and says what else it may do."""

import asyncio
import os
import sys
from pathlib import Path
from random import Random

from planform.api.kinds import GroupVersionKind
from planform.client.kubeconfig import find_connection
from planform.client.kubernetes import KubernetesClient
from planform.client.protocol import Patch, PatchType
from planform.clock import SystemClock
from planform.errors import Forbidden

WIDGET = GroupVersionKind("widgets.example.org", "v1", "Widget")
PROVIDER = GroupVersionKind("pkg.crossplane.io", "v1", "Provider")


async def main() -> None:
    clock = SystemClock()
    connection = find_connection(clock=clock, path=Path(os.environ["KUBECONFIG"]))
    async with KubernetesClient(connection, clock=clock, rng=Random()) as client:
        try:
            await client.list(PROVIDER)
            allowed = "everything"
        except Forbidden:
            allowed = "widgets"
        async with client.watch(WIDGET) as changes:
            async for change in changes:
                widget = change.object
                if (widget.get("status") or {}).get("by"):
                    continue
                status = {"by": os.environ["PROVIDER_NAME"], "version": "VERSION", "allowed": allowed}
                if "REGION" in os.environ:
                    status["told"] = [os.environ["REGION"], *sys.argv[1:]]
                patch = Patch(PatchType.MERGE, {"status": status})
                await client.patch(WIDGET, widget["metadata"]["name"], patch, subresource="status")


asyncio.run(main())
'''


def widget_crd() -> Object:
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": free, "status": free}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.widgets.example.org"},
        "spec": {
            "group": WIDGET.group,
            "names": {"kind": "Widget", "plural": "widgets"},
            "scope": "Cluster",
            "versions": [version],
        },
    }


@pytest.fixture
async def hosted(tmp_path: Path) -> AsyncIterator[tuple[ControlPlane, RuntimeHost]]:
    data, clock = tmp_path / "data", SystemClock()
    async with open_control_plane(Settings(data=data)) as plane:
        pki = Pki(data / "pki", clock=clock)
        certificates = RevisionCertificates(pki, data / "certificates", clock=clock)
        async with (
            open_events(plane.client, clock=clock, metrics=plane.metrics) as events,
            RuntimeHost(data, certificates, clock=clock, draining=Draining(0.1, 5)) as host,
        ):
            context = ControllerContext(
                plane.client, plane.manager, events, clock, Random(7), ConcurrencyLimiter(4), plane.metrics
            )
            # It unpacks to a place of its own: elsewhere the plane deletes what it does not know of.
            (data / "hosted").mkdir()
            (data / "hosted" / "blobs").symlink_to(data / "packages" / "blobs")
            source = RegistryPackages(data / "hosted", plane.client, clock=clock, rng=Random(7))
            contents = PackageContents(source, plane.client, Deliveries(plane.manager, clock))
            packaging = Packaging(contents, host)
            await plane.manager.stop("providers")  # in its place comes one whose programs a test can see
            ProviderController(context, packaging, pki, data, lambda: plane.url).start()
            yield plane, host
            await plane.manager.stop("providers")


@pytest.fixture
def plane(hosted: tuple[ControlPlane, RuntimeHost]) -> ControlPlane:
    return hosted[0]


def widget_definition() -> Object:
    """The same kind, as a definition that somebody has to activate."""
    crd = widget_crd()
    about = {"apiVersion": MANAGED_DEFINITION.api_version, "kind": MANAGED_DEFINITION.kind}
    return {**about, "metadata": crd["metadata"], "spec": {**crd["spec"], "state": "Inactive"}}


def publish(
    data: Path, version: str, source: str = CONTROLLER, kind: Object | None = None, *more: Object, **about: Any
) -> None:
    blobs = BlobStore(data / "packages" / "blobs")
    program = Program(
        Payload(RuntimeKind.PROCESS, ("python", "app/main.py"), ("app",)),
        (File("app/main.py", source.replace("VERSION", version).encode()),),
    )
    kinds = [("crd", each) for each in (kind or widget_crd(), *more)]
    package = package_of([("meta", meta("Provider", "provider-widgets", **about)), *kinds])
    blobs.remember(f"{REPOSITORY}:{version}", assemble(blobs, Source(package), program).descriptor)


async def install(plane: ControlPlane, version: str, *, name: str = "widgets", **spec: Any) -> Object:
    wanted = {
        "apiVersion": PROVIDER.api_version,
        "kind": PROVIDER.kind,
        "metadata": {"name": name},
        "spec": {"package": f"{REPOSITORY}:{version}", **spec},
    }
    return await plane.client.apply(wanted, manager="user", force=True)


async def made_by(plane: ControlPlane, name: str) -> dict[str, Any]:
    """Make a widget; gives what its provider says of it."""
    body = {"apiVersion": WIDGET.api_version, "kind": "Widget", "metadata": {"name": name}}
    await plane.client.create(body)

    async def status() -> dict[str, Any]:
        return (await plane.client.get(WIDGET, name)).get("status") or {}

    return await eventually(status, f"widget {name} is made")


async def test_a_provider_manages_its_kinds_and_may_do_nothing_else(plane: ControlPlane, tmp_path: Path) -> None:
    publish(tmp_path / "data", "v1")
    publish(tmp_path / "data", "v2")
    provider = await install(plane, "v1")
    provider = await until_condition(plane.client, provider, "Healthy")
    assert await made_by(plane, "one") == {"by": "widgets", "version": "v1", "allowed": "widgets"}
    provider = await install(plane, "v2")
    generation = provider["metadata"]["generation"]
    await until_condition(plane.client, provider, "Healthy", observedGeneration=generation)

    async def upgraded() -> bool:
        found = await plane.client.get(PROVIDER, "widgets")
        return str(found["status"]["currentIdentifier"]).endswith(":v2")

    await eventually(upgraded, "the new version")
    assert (await plane.client.get(WIDGET, "one"))["status"]["version"] == "v1"
    assert (await made_by(plane, "two"))["by"] == "widgets"


async def test_a_provider_may_bring_its_kinds_as_definitions_that_policies_activate(
    plane: ControlPlane, tmp_path: Path
) -> None:
    publish(tmp_path / "data", "v1", kind=widget_definition())
    publish(tmp_path / "data", "v2", kind=widget_definition())
    await until_condition(plane.client, await install(plane, "v1"), "Healthy")
    definition = await until_condition(plane.client, widget_definition(), "Established")
    assert definition["spec"]["state"] == "Active"  # by the default policy
    assert (await made_by(plane, "one"))["version"] == "v1"
    provider = await install(plane, "v2")
    generation = provider["metadata"]["generation"]
    await until_condition(plane.client, provider, "Healthy", observedGeneration=generation)
    current = (await plane.client.get(PROVIDER, "widgets"))["status"]["currentRevision"]

    async def is_taken_over() -> bool:
        crd = await plane.client.get(CRD, "widgets.widgets.example.org")
        owners = crd["metadata"]["ownerReferences"]
        return [each["name"] for each in owners if each.get("controller")] == [current]

    await eventually(is_taken_over, "the new revision controls what the definition makes")
    await plane.client.delete(PROVIDER, "widgets")

    async def is_gone() -> bool:
        try:
            await plane.client.get(CRD, "widgets.widgets.example.org")
        except NotFound:
            return True
        return False

    await eventually(is_gone, "the definition and its kind go with the provider")


def config_crd() -> Object:
    """The kind of a provider's own configuration."""
    crd = widget_crd()
    names = {"kind": "ProviderConfig", "plural": "providerconfigs"}
    return {**crd, "metadata": {"name": f"providerconfigs.{WIDGET.group}"}, "spec": {**crd["spec"], "names": names}}


def activation_policy(*patterns: str) -> Object:
    about = {"apiVersion": ACTIVATION_POLICY.api_version, "kind": ACTIVATION_POLICY.kind}
    return {**about, "metadata": {"name": "widgets"}, "spec": {"activate": list(patterns)}}


async def deployment_of(plane: ControlPlane) -> Object:
    [found] = (await plane.client.list(DEPLOYMENT, namespace=SYSTEM_NAMESPACE)).items
    return found


async def test_a_provider_that_can_start_without_its_kinds_waits_until_one_is_activated(
    hosted: tuple[ControlPlane, RuntimeHost], tmp_path: Path
) -> None:
    plane, host = hosted
    await plane.client.delete(ACTIVATION_POLICY, "default")
    publish(tmp_path / "data", "v1", CONTROLLER, widget_crd(), config_crd(), capabilities=["safe-start"])
    provider = await until_condition(plane.client, await install(plane, "v1"), "Healthy")
    condition = condition_of(provider, "Healthy")
    assert condition is not None and condition["reason"] == "AwaitingActivation"
    name = provider["status"]["currentRevision"]
    revision = await plane.client.get(PROVIDER_REVISION, name)
    active, healthy = condition_of(revision, "RuntimeActive"), condition_of(revision, "RuntimeHealthy")
    assert active is not None and (active["status"], active["reason"]) == ("False", "AwaitingActivation")
    assert healthy is not None and healthy["status"] == "True"
    definition = await plane.client.get(MANAGED_DEFINITION, "widgets.widgets.example.org")
    assert definition["spec"]["state"] == "Inactive"
    assert definition["metadata"]["ownerReferences"][0]["name"] == name
    with pytest.raises(NotFound):
        await plane.client.get(CRD, "widgets.widgets.example.org")
    await until_condition(plane.client, config_crd(), "Established")
    shown = await deployment_of(plane)
    assert (shown["metadata"]["name"], shown["spec"]["replicas"]) == (name, 0)
    assert host.runtime_status(name) is None, "no program runs"

    await plane.client.create(activation_policy("*.widgets.example.org"))
    await until_condition(plane.client, provider, "Healthy", reason="HealthyPackageRevision")
    await until_condition(plane.client, revision, "RuntimeActive")
    assert (await made_by(plane, "one"))["version"] == "v1"

    async def is_shown() -> bool:
        shown = await deployment_of(plane)
        return bool(shown["spec"]["replicas"] == 1 and shown["status"]["availableReplicas"] == 1)

    await eventually(is_shown, "the Deployment says that it runs")
    await plane.client.delete(PROVIDER, "widgets")

    async def is_gone() -> bool:
        kinds = (DEPLOYMENT, MANAGED_DEFINITION)
        left = [each for kind in kinds for each in (await plane.client.list(kind)).items]
        crds = [each["metadata"]["name"] for each in (await plane.client.list(CRD)).items]
        return not left and "widgets.widgets.example.org" not in crds

    await eventually(is_gone, "all of it goes with the provider")


async def test_the_kinds_of_a_healthy_provider_are_served_also_if_a_policy_has_to_activate_them(
    plane: ControlPlane, tmp_path: Path
) -> None:
    publish(tmp_path / "data", "v1", capabilities=["SafeStart"])
    publish(tmp_path / "data", "v2", capabilities=["SafeStart"])
    provider = await until_condition(plane.client, await install(plane, "v1"), "Healthy")
    condition = condition_of(provider, "Healthy")
    assert condition is not None and condition["reason"] == "HealthyPackageRevision"
    assert (await made_by(plane, "one"))["version"] == "v1"
    first = provider["status"]["currentRevision"]
    generation = (await install(plane, "v2"))["metadata"]["generation"]
    await until_condition(plane.client, provider, "Healthy", observedGeneration=generation)

    async def is_upgraded() -> bool:
        shown = await plane.client.list(DEPLOYMENT, namespace=SYSTEM_NAMESPACE)
        names = [each["metadata"]["name"] for each in shown.items]
        return len(names) == 1 and names != [first]

    await eventually(is_upgraded, "the Deployment of the new revision is the only one")
    assert (await plane.client.get(WIDGET, "one"))["status"]["version"] == "v1"


async def test_a_provider_with_a_long_name_proves_who_it_is(plane: ControlPlane, tmp_path: Path) -> None:
    name = "provider-" + "widgets-" * 6 + "end"
    publish(tmp_path / "data", "v1")
    await until_condition(plane.client, await install(plane, "v1", name=name), "Healthy")
    assert await made_by(plane, "one") == {"by": name, "version": "v1", "allowed": "widgets"}


async def test_a_provider_whose_name_is_no_label_says_so(plane: ControlPlane, tmp_path: Path) -> None:
    publish(tmp_path / "data", "v1")
    provider = await install(plane, "v1", name="w" * 64)
    provider = await until_condition(plane.client, provider, "Installed", "False")
    assert "at most 63 characters" in str((condition_of(provider, "Installed") or {})["message"])


async def test_a_package_whose_reconcile_raises_says_why_and_recovers(plane: ControlPlane, tmp_path: Path) -> None:
    publish(tmp_path / "data", "v1")
    key = tmp_path / "data" / "pki" / "ca.key"
    content = key.read_bytes()
    key.unlink()
    provider = await until_condition(plane.client, await install(plane, "v1"), "Healthy", "False")
    told = condition_of(provider, "Healthy") or {}
    assert told["reason"] == "ReconcileError"
    assert "cannot use the certificate authority" in str(told["message"])
    assert (condition_of(provider, "Installed") or {})["status"] == "False"

    async def event() -> bool:
        found = (await plane.client.list(EVENT)).items
        return any(each["reason"] == "ReconcileError" and "authority" in each["message"] for each in found)

    await eventually(event, "an event that says why")
    key.write_bytes(content)
    await plane.client.patch(PROVIDER, "widgets", Patch(PatchType.MERGE, {"metadata": {"labels": {"try": "again"}}}))
    await until_condition(plane.client, provider, "Healthy")


async def test_a_provider_that_ends_by_itself_says_so(plane: ControlPlane, tmp_path: Path) -> None:
    publish(tmp_path / "data", "v1", "print('no region')\nraise SystemExit(5)")
    provider = await install(plane, "v1")

    async def told() -> str:
        condition = condition_of(await plane.client.get(PROVIDER, "widgets"), "Healthy")
        message = str((condition or {}).get("message") or "")
        return message if "exit code" in message else ""

    assert "it ends by itself (exit code 5); stderr ended with: no region" in await eventually(told, "why it ended")
    assert provider["spec"]["package"].endswith(":v1")


async def test_two_revisions_of_a_provider_never_run_at_the_same_time(
    hosted: tuple[ControlPlane, RuntimeHost], tmp_path: Path
) -> None:
    plane, host = hosted
    publish(tmp_path / "data", "v1")
    publish(tmp_path / "data", "v2")
    known: set[str] = set()
    ran: list[list[str]] = []

    def note(revision: str) -> None:
        known.add(revision)
        ran.append(sorted(each for each in known if host.runtime_status(each) is not None))

    host.subscribe(note)
    await until_condition(plane.client, await install(plane, "v1"), "Healthy")
    first = str((await plane.client.get(PROVIDER, "widgets"))["status"]["currentRevision"])
    await install(plane, "v2")

    async def upgraded() -> str:
        provider = await plane.client.get(PROVIDER, "widgets")
        current = str(provider["status"]["currentRevision"])
        healthy = (condition_of(provider, "Healthy") or {}).get("status") == "True"
        return current if healthy and current != first else ""

    second = await eventually(upgraded, "the new version")
    assert [first] in ran and [second] in ran and [] in ran
    assert all(len(each) <= 1 for each in ran)


async def test_a_provider_runs_with_the_arguments_and_variables_of_its_runtime_configuration(
    plane: ControlPlane, tmp_path: Path
) -> None:
    publish(tmp_path / "data", "v1")
    container = {
        "name": "package-runtime",
        "args": ["--poll=1m", "--debug"],
        "env": [{"name": "REGION", "value": "north"}],
        "resources": {"limits": {"cpu": "500m"}},
        "livenessProbe": {"exec": {"command": ["true"]}},
    }
    await plane.client.create(
        {
            "apiVersion": RUNTIME_CONFIG.api_version,
            "kind": RUNTIME_CONFIG.kind,
            "metadata": {"name": "mine"},
            "spec": {"deploymentTemplate": {"spec": {"template": {"spec": {"containers": [container]}}}}},
        }
    )
    provider = await install(plane, "v1", runtimeConfigRef={"name": "mine"})
    await until_condition(plane.client, provider, "Healthy")
    assert (await made_by(plane, "one"))["told"] == ["north", "--poll=1m", "--debug"]
    [revision] = (await plane.client.list(PROVIDER_REVISION)).items
    told = str((condition_of(revision, "RuntimeHealthy") or {})["message"])
    assert "does not apply on this machine: livenessProbe" in told


async def test_a_provider_with_objects_is_protected_if_a_gate_says_so(tmp_path: Path) -> None:
    gates = FeatureGates({"ProviderDeletionProtection": True})
    async with open_control_plane(Settings(data=tmp_path / "data", features=gates)) as plane:
        publish(tmp_path / "data", "v1")
        await until_condition(plane.client, await install(plane, "v1"), "Healthy")
        await made_by(plane, "one")

        async def usages() -> list[Object]:
            labels = "crossplane.io/provider-protection=true"
            return (await plane.client.list(CLUSTER_USAGE, labels=labels)).items

        async def protected() -> Object | None:
            return next(iter(await usages()), None)

        usage = await eventually(protected, "a usage")
        await until_condition(plane.client, usage, "Ready")
        assert usage["spec"]["of"]["resourceRef"] == {"name": "widgets"}
        assert usage["spec"]["reason"] == "Provider has active managed resources of type Widget.widgets.example.org"
        assert usage["metadata"]["labels"]["pkg.crossplane.io/package"] == "widgets"
        with pytest.raises(ApiError, match="active managed resources"):
            await plane.client.delete(PROVIDER, "widgets")
        await plane.client.delete(CLUSTER_USAGE, usage["metadata"]["name"])
        again = await eventually(protected, "the usage is brought again")
        await until_condition(plane.client, again, "Ready")
        await plane.client.delete(WIDGET, "one")

        async def released() -> bool:
            return not await usages()

        await eventually(released, "no usage is left")
        await plane.client.delete(PROVIDER, "widgets")


async def test_two_providers_of_one_package_do_not_share_its_kinds(plane: ControlPlane, tmp_path: Path) -> None:
    publish(tmp_path / "data", "v1")
    first = await install(plane, "v1")
    await until_condition(plane.client, first, "Healthy")
    second = await install(plane, "v1", name="gadgets")
    second = await until_condition(plane.client, second, "Healthy", "False")
    assert "cannot establish control of object: CustomResourceDefinition widgets.widgets.example.org" in str(
        (condition_of(second, "Healthy") or {})["message"]
    )
    assert (await made_by(plane, "one"))["by"] == "widgets"
    assert (condition_of(await plane.client.get(PROVIDER, "widgets"), "Healthy") or {})["status"] == "True"
