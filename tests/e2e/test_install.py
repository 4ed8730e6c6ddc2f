"""The controllers are put on a real cluster, changed there and taken off again, and their rights suffice."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

from planform.api.kinds import Object, gvk_of
from planform.api.names import COMPOSITION as COMPOSITION_KIND
from planform.api.names import SECRET, XRD
from planform.cli.cluster.chart import find_chart, render
from planform.cli.main import main
from planform.client.kubeconfig import write_kubeconfig
from planform.client.protocol import Client
from planform.clock import SystemClock, micro_timestamp
from planform.cluster.registration import VALIDATING
from planform.cluster.takeover import CROSSPLANE_LEASE
from tests.controllers.stage import ANYTHING
from tests.e2e.control_plane import Done, Program, planform
from tests.harness.contexts import eventually, kubernetes_context, read, until_condition
from tests.harness.kubernetes import RealKubernetes

pytestmark = [pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes")]


class Quickly(Protocol):
    """Runs a command of planform; another exit code than the given one is a failure."""

    def __call__(self, *arguments: str, code: int = 0) -> Done: ...


@pytest.fixture
def command(kubernetes_engine: RealKubernetes, tmp_path: Path) -> Program:
    return planform(tmp_path, KUBECONFIG=str(kubernetes_engine.kubeconfig))


@pytest.fixture
def quickly(
    kubernetes_engine: RealKubernetes, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Quickly:
    """The same command in this process, which need not be started: gives what it says on stderr, or prints."""
    monkeypatch.setenv("KUBECONFIG", str(kubernetes_engine.kubeconfig))

    def run(*arguments: str, code: int = 0) -> Done:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        said = capsys.readouterr()
        assert ended.value.code == code, said
        return Done(code, said.out, said.err)

    return run


@pytest.fixture
def namespace(kubernetes_engine: RealKubernetes) -> Iterator[str]:
    """Where a test installs; nothing of it is left on the cluster, which is shared."""
    name = f"planform-{uuid.uuid4().hex[:8]}"
    yield name
    everywhere = "clusterroles,clusterrolebindings,validatingwebhookconfigurations,mutatingwebhookconfigurations"
    kubernetes_engine.kubectl("delete", everywhere, "-l", "app.kubernetes.io/name=planform")
    kubernetes_engine.kubectl("delete", "namespace", name, "--ignore-not-found", "--wait=false")


def test_the_api_server_takes_every_object_of_the_chart_as_it_is(
    kubernetes_engine: RealKubernetes, tmp_path: Path
) -> None:
    """Each is validated as strictly as the server can, and none is stored."""
    objects = render(find_chart(), {}, namespace="default")
    file = tmp_path / "objects.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    strictly = ("apply", "--server-side", "--dry-run=server", "--validate=strict")
    applied = kubernetes_engine.kubectl(*strictly, "-f", str(file))
    assert applied.count("serverside-applied (server dry run)") == len(objects)


def test_an_installation_is_made_changed_and_taken_off(
    kubernetes_engine: RealKubernetes, quickly: Quickly, namespace: str
) -> None:
    place = ("--namespace", namespace)
    planned = quickly("install", *place, "--dry-run").err
    assert f"Deployment planform in {namespace}: created (dry run)" in planned
    assert "namespaces" not in kubernetes_engine.kubectl("get", "namespace", namespace, "-o", "name", check=False)
    written = list(yaml.safe_load_all(quickly("install", *place, "--dry-run", "-o", "yaml").out))
    assert {obj["kind"] for obj in written} >= {"Namespace", "Deployment", "ClusterRole", "Service", "Secret"}
    assert "not installed" in quickly("upgrade", *place, code=2).err

    installed = quickly("install", *place, "--image", "registry:5000/planform:1.2", "--no-wait").err
    assert f"Deployment planform in {namespace}: created" in installed
    assert "installed in namespace" in quickly("install", *place, code=2).err

    _check_restricted_pods(kubernetes_engine, namespace)

    # The image stays, and only what differs is changed; a role that is not wanted any more goes.
    turned = quickly("upgrade", *place, "--set", "replicas=3", "--set", "rbac.blueprints=false", "--no-wait").err
    changes = {line for line in turned.splitlines() if line.endswith((": changed", ": created", ": deleted"))}
    assert changes == {
        f"Deployment planform in {namespace}: changed",
        "ClusterRole planform:blueprints: deleted",
    }
    shown = kubernetes_engine.kubectl("-n", namespace, "get", "deployment", "planform", "-o", "json")
    deployed = json.loads(shown)
    assert deployed["spec"]["replicas"] == 3
    assert deployed["spec"]["template"]["spec"]["containers"][0]["image"] == "registry:5000/planform:1.2"

    # A Secret that the controllers have filled is not emptied.
    filled = base64.b64encode(b"certificate").decode()
    patch = json.dumps({"data": {"tls.crt": filled}})
    kubernetes_engine.kubectl("-n", namespace, "patch", "secret", "planform-tls-client", "-p", patch)
    again = quickly("upgrade", *place, "--no-wait").err
    assert not any(line.endswith((": changed", ": created", ": deleted")) for line in again.splitlines())
    assert filled in kubernetes_engine.kubectl("-n", namespace, "get", "secret", "planform-tls-client", "-o", "json")

    # There is no node here: waiting ends when the time does, and says what is missing.
    waited = quickly("upgrade", *place, "--timeout", "1s", code=3).err
    assert "replicas are" in waited

    gone = quickly("uninstall", *place).err
    assert f"Deployment planform in {namespace}: deleted" in gone
    left = kubernetes_engine.kubectl("get", "clusterroles,clusterrolebindings", "-l", "app.kubernetes.io/name=planform")
    assert left == ""
    assert "compositions" in kubernetes_engine.kubectl("get", "crd", "-o", "name"), "CRDs stay"


def _check_restricted_pods(cluster: RealKubernetes, namespace: str) -> None:
    """The namespace allows the pods of the Deployment, and none that may do more."""
    deployed = json.loads(cluster.kubectl("-n", namespace, "get", "deployment", "planform", "-o", "json"))
    pod = {"apiVersion": "v1", "kind": "Pod", **deployed["spec"]["template"]}
    pod["metadata"] = {**pod["metadata"], "name": "as-deployed"}
    create = ("-n", namespace, "create", "--dry-run=server", "-f", "-")
    assert "created" in cluster.kubectl(*create, stdin=json.dumps(pod))
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    assert cluster.kubectl(*create, stdin=json.dumps(pod), check=False) == ""


def secret(cluster: RealKubernetes, namespace: str, name: str) -> Object:
    found: Object = json.loads(cluster.kubectl("-n", namespace, "get", "secret", name, "-o", "json"))
    return found


async def test_the_rights_of_the_chart_suffice_for_the_controllers(
    kubernetes_engine: RealKubernetes, command: Program, namespace: str, tmp_path: Path
) -> None:
    """They run here with the arguments and the account that the chart gives them."""
    command("install", "--namespace", namespace, "--no-wait")
    token = kubernetes_engine.kubectl("-n", namespace, "create", "token", "planform").strip()
    kubeconfig = tmp_path / "controllers.kubeconfig"
    authority = kubernetes_engine.ca_file.read_bytes()
    write_kubeconfig(kubeconfig, name="controllers", server=kubernetes_engine.url, ca=authority, token=token)
    here = ("--kubeconfig", str(kubeconfig), "--namespace", namespace, "--data", str(tmp_path / "data"))
    listen = ("--listen", "127.0.0.1:0", "--webhook-listen", "127.0.0.1:0", "--function-runtime", "kubernetes")

    prepared = command("controllers", *here, "--prepare", "--function-runtime", "kubernetes").err
    assert f"Secret {namespace}/planform-tls-client: good" in prepared
    filled = secret(kubernetes_engine, namespace, "planform-tls-client")
    assert set(filled["data"]) == {"ca.crt", "tls.crt", "tls.key"}
    command("controllers", *here, "--prepare", "--function-runtime", "kubernetes")
    again = secret(kubernetes_engine, namespace, "planform-tls-client")
    assert again["metadata"]["resourceVersion"] == filled["metadata"]["resourceVersion"], "nothing is due yet"

    with command.following("controllers", *here, *listen) as controllers:
        controllers.until("works: all controllers run")
        async with kubernetes_context(kubernetes_engine) as admin:
            client = admin.client
            for obj in (DEFINITION, COMPOSITION):
                await client.apply(obj, manager="team")
            await until_condition(client, {**DEFINITION, "apiVersion": XRD.api_version}, "Offered")
            claim = await client.create(CLAIM)
            ready = await until_condition(client, claim, "Ready")
            assert ready["spec"]["resourceRef"]["name"].startswith("mine-")
            await _filled(client, "planform-webhook-tls", namespace)
            asked = await client.get(VALIDATING, "planform")
            assert asked["webhooks"], "the API server asks before it writes"
            refused = command("uninstall", "--namespace", namespace, code=1).err
            assert "1 Shop.install.example.org" in refused
            await _gone(client, claim)
            await client.delete(COMPOSITION_KIND, COMPOSITION["metadata"]["name"])
            await _gone(client, {**DEFINITION, "apiVersion": XRD.api_version})

    def may(*question: str) -> bool:
        asked = ("--kubeconfig", str(kubeconfig), "auth", "can-i", *question)
        return kubernetes_engine.kubectl(*asked, check=False).strip() == "yes"

    for runs in ("deployments", "services", "serviceaccounts", "networkpolicies.networking.k8s.io", "secrets"):
        assert may("create", runs, "-n", namespace), f"functions need {runs}"
    for more in (("list", "secrets", "-A"), ("create", "deployments", "-n", "kube-system"), ("delete", "nodes")):
        assert not may(*more), f"it has the right to {' '.join(more)}"


def test_controllers_do_not_start_beside_a_crossplane_that_works(
    kubernetes_engine: RealKubernetes, command: Program
) -> None:
    renewed = micro_timestamp(SystemClock().now())
    spec = {"holderIdentity": "somebody", "leaseDurationSeconds": 60, "renewTime": renewed}
    kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    lease = {**kind, "metadata": {"name": CROSSPLANE_LEASE}, "spec": spec}
    kubernetes_engine.kubectl("-n", "default", "create", "-f", "-", stdin=json.dumps(lease))
    try:
        flags = ("--namespace", "default", "--listen", "127.0.0.1:0")
        refused = command("controllers", *flags, code=1).err
        assert 'Crossplane in namespace "default" (lease held by "somebody")' in refused
        assert "--take-over" in refused
        # Other tests may have Rollouts under way on this cluster.
        assert command("controllers", "--give-back", "--force").err == "", "nothing was taken"
    finally:
        kubernetes_engine.kubectl("-n", "default", "delete", "lease", CROSSPLANE_LEASE)


async def _gone(client: Client, obj: Object) -> None:
    kind, name, place = gvk_of(obj), obj["metadata"]["name"], obj["metadata"].get("namespace") or ""
    await client.delete(kind, name, namespace=place)

    async def gone() -> bool:
        return await read(client, kind, name, place) is None

    await eventually(gone, f"{obj['kind']} {name} is gone")


async def _filled(client: Client, secret: str, namespace: str) -> None:
    async def filled() -> bool:
        return bool((await client.get(SECRET, secret, namespace=namespace)).get("data"))

    await eventually(filled, f"Secret {secret} is filled")


def _names(kind: str) -> dict[str, str]:
    return {"kind": kind, "plural": f"{kind.lower()}s"}


DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.crossplane.io/v1",
    "kind": "CompositeResourceDefinition",
    "metadata": {"name": "xshops.install.example.org"},
    "spec": {
        "group": "install.example.org",
        "names": _names("XShop"),
        "claimNames": _names("Shop"),
        "connectionSecretKeys": ["colour"],
        "versions": [
            {
                "name": "v1",
                "served": True,
                "referenceable": True,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": ANYTHING}}},
            }
        ],
    },
}
COMPOSITION: dict[str, Any] = {
    "apiVersion": "apiextensions.crossplane.io/v1",
    "kind": "Composition",
    "metadata": {"name": "shops"},
    "spec": {
        "compositeTypeRef": {"apiVersion": "install.example.org/v1", "kind": "XShop"},
        "mode": "Resources",
        "writeConnectionSecretsToNamespace": "default",
        "resources": [
            {
                "name": "shelf",
                "base": {
                    "apiVersion": "nop.crossplane.io/v1alpha1",
                    "kind": "ClusterNopResource",
                    "spec": {
                        "forProvider": {
                            "conditionAfter": [
                                {"time": "0s", "conditionType": "Ready", "conditionStatus": "True"},
                                {"time": "0s", "conditionType": "Synced", "conditionStatus": "True"},
                            ]
                        }
                    },
                },
                "connectionDetails": [{"name": "colour", "type": "FromValue", "value": "red"}],
            }
        ],
    },
}
CLAIM: dict[str, Any] = {
    "apiVersion": "install.example.org/v1",
    "kind": "Shop",
    "metadata": {"name": "mine", "namespace": "default"},
    "spec": {"writeConnectionSecretToRef": {"name": "mine-login"}},
}
