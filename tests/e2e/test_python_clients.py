"""Client libraries of others create, read, change, watch and delete: `kubernetes`, `kr8s` and `lightkube`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import kr8s
import kubernetes
import lightkube
import pytest
from kr8s.objects import ConfigMap as Kr8sConfigMap
from kr8s.objects import new_class
from kubernetes.client import ApiClient, CoreV1Api, CustomObjectsApi, V1ConfigMap, V1ObjectMeta
from kubernetes.client.exceptions import ApiException
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap as LightConfigMap
from lightkube.types import CascadeType, PatchType

from tests.e2e.control_plane import PATIENCE_SECONDS, RunningPlane
from tests.e2e.widgets import GROUP, widget

pytestmark = pytest.mark.xdist_group("e2e")


@pytest.fixture(autouse=True)
def no_machine_settings(plane: RunningPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """These libraries run in the test's process: keep proxies and kubeconfigs of the machine away from them."""
    for variable in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "KUBECONFIG", "SSL_CERT_FILE"):
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(variable.lower(), raising=False)
    monkeypatch.setenv("HOME", str(plane.directory))


# -- kubernetes


@pytest.fixture
def official(plane: RunningPlane) -> Iterator[ApiClient]:
    with kubernetes.config.new_client_from_config(str(plane.kubeconfig)) as client:
        yield client


def test_kubernetes_client_does_crud_and_watch(official: ApiClient, namespace: str) -> None:
    core = CoreV1Api(official)
    body = V1ConfigMap(metadata=V1ObjectMeta(name="c", labels={"by": "kubernetes"}), data={"a": "1"})
    created = core.create_namespaced_config_map(namespace, body)
    assert created.metadata.uid
    with pytest.raises(ApiException) as conflict:
        core.create_namespaced_config_map(namespace, body)
    assert (conflict.value.status, conflict.value.reason) == (409, "Conflict")

    created.data["a"] = "2"
    replaced = core.replace_namespaced_config_map("c", namespace, created)
    assert int(replaced.metadata.resource_version) > int(created.metadata.resource_version)
    with pytest.raises(ApiException, match="the object has been modified"):
        core.replace_namespaced_config_map("c", namespace, created)
    core.patch_namespaced_config_map("c", namespace, {"data": {"b": "3"}})
    listed = core.list_namespaced_config_map(namespace, label_selector="by=kubernetes")
    assert [item.data for item in listed.items] == [{"a": "2", "b": "3"}]

    stream = kubernetes.watch.Watch().stream(
        core.list_namespaced_config_map,
        namespace,
        resource_version=created.metadata.resource_version,
        timeout_seconds=int(PATIENCE_SECONDS),
    )
    seen = [next(stream)["type"], next(stream)["type"]]
    core.delete_namespaced_config_map("c", namespace)
    seen.append(next(stream)["type"])
    assert seen == ["MODIFIED", "MODIFIED", "DELETED"]
    with pytest.raises(ApiException) as gone:
        core.read_namespaced_config_map("c", namespace)
    assert gone.value.status == 404


def test_kubernetes_client_knows_custom_and_dynamic_kinds(official: ApiClient, namespace: str, widgets: None) -> None:
    custom = CustomObjectsApi(official)
    custom.create_namespaced_custom_object(GROUP, "v1", namespace, "widgets", widget("a"))
    custom.patch_namespaced_custom_object_status(GROUP, "v1", namespace, "widgets", "a", {"status": {"phase": "Ready"}})
    dynamic = kubernetes.dynamic.DynamicClient(official)
    api = dynamic.resources.get(api_version=f"{GROUP}/v1", kind="Widget")
    found = api.get(name="a", namespace=namespace)
    assert (found.spec.replicas, found.status.phase) == (1, "Ready")
    applied = widget("b", colour="green")
    api.server_side_apply(body=applied, name="b", namespace=namespace, field_manager="tests", force_conflicts=True)
    assert {item.metadata.name for item in api.get(namespace=namespace).items} == {"a", "b"}
    api.delete(name="a", namespace=namespace)
    assert [item.metadata.name for item in api.get(namespace=namespace).items] == ["b"]


# -- kr8s


def test_kr8s_does_crud_and_watch(plane: RunningPlane, namespace: str) -> None:
    api = kr8s.api(kubeconfig=str(plane.kubeconfig))
    made = Kr8sConfigMap(
        {"metadata": {"name": "c", "namespace": namespace, "labels": {"by": "kr8s"}}, "data": {"a": "1"}}, api=api
    )
    made.create()
    assert made.exists()
    made.patch({"data": {"a": "2"}})
    made.label({"tier": "web"})
    made.annotate({"note": "hello"})
    again = Kr8sConfigMap.get("c", namespace=namespace, api=api)
    assert again.raw["data"] == {"a": "2"}
    assert dict(again.labels) == {"by": "kr8s", "tier": "web"}
    found = list(api.get("configmaps", namespace=namespace, label_selector="tier=web"))
    assert [obj.name for obj in found] == ["c"]

    seen: list[tuple[str, str]] = []
    begun = threading.Event()

    def follow() -> None:
        for kind, obj in api.watch("configmaps", namespace=namespace, label_selector="by=kr8s"):
            seen.append((kind, obj.name))
            begun.set()
            if kind == "DELETED":
                return

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    assert begun.wait(PATIENCE_SECONDS)
    made.delete()
    follower.join(PATIENCE_SECONDS)
    assert seen == [("ADDED", "c"), ("DELETED", "c")]
    assert not made.exists()


def test_kr8s_scales_and_waits_for_custom_kinds(plane: RunningPlane, namespace: str, widgets: None) -> None:
    api = kr8s.api(kubeconfig=str(plane.kubeconfig))
    kind = new_class("Widget", f"{GROUP}/v1", namespaced=True, scalable=True)
    made = kind({**widget("a"), "metadata": {"name": "a", "namespace": namespace}}, api=api)
    made.create()
    made.scale(3)
    made.refresh()
    assert made.raw["spec"]["replicas"] == 3
    made.patch({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, subresource="status")
    made.wait("condition=Ready", timeout=PATIENCE_SECONDS)
    made.delete()
    made.wait("delete", timeout=PATIENCE_SECONDS)


# -- lightkube


@pytest.fixture
def light(plane: RunningPlane, namespace: str) -> lightkube.Client:
    config = lightkube.KubeConfig.from_file(str(plane.kubeconfig))
    return lightkube.Client(config=config, namespace=namespace, field_manager="lightkube", trust_env=False)


def test_lightkube_does_crud_and_watch(light: lightkube.Client) -> None:
    body = LightConfigMap(metadata=ObjectMeta(name="c", labels={"by": "lightkube"}), data={"a": "1"})
    created = light.create(body)
    created.data["a"] = "2"
    light.replace(created)
    light.patch(LightConfigMap, "c", {"data": {"b": "3"}}, patch_type=PatchType.MERGE)
    assert light.get(LightConfigMap, "c").data == {"a": "2", "b": "3"}
    assert [item.metadata.name for item in light.list(LightConfigMap, labels={"by": "lightkube"})] == ["c"]
    applied = light.apply(
        LightConfigMap(apiVersion="v1", kind="ConfigMap", metadata=ObjectMeta(name="d"), data={"x": "1"})
    )
    assert applied.data == {"x": "1"}

    watch = light.watch(LightConfigMap, labels={"by": "lightkube"}, server_timeout=int(PATIENCE_SECONDS))
    assert next(watch)[0] == "ADDED"
    light.delete(LightConfigMap, "c", cascade=CascadeType.BACKGROUND)
    assert next(watch)[0] == "DELETED"
    with pytest.raises(ApiError) as gone:
        light.get(LightConfigMap, "c")
    assert gone.value.status.reason == "NotFound"
    assert gone.value.status.details.name == "c"


def test_lightkube_handles_generic_kinds(light: lightkube.Client, widgets: None) -> None:
    kind: Any = create_namespaced_resource(GROUP, "v1", "Widget", "widgets")
    light.create(kind(metadata={"name": "a"}, spec={"colour": "red"}))
    light.patch(kind.Status, "a", {"status": {"phase": "Ready"}}, patch_type=PatchType.MERGE)
    assert light.get(kind, "a").status == {"phase": "Ready"}
    with pytest.raises(ApiError, match="Unsupported value"):
        light.patch(kind, "a", {"spec": {"colour": "pink"}}, patch_type=PatchType.MERGE)
