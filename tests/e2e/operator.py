"""An operator as kopf's users write them: it makes a page for each widget, follows changes, and cleans up.

`test_kopf.py` starts it with `kopf run`; it knows nothing of the server it runs on.
"""

# kopf's types are not shown to mypy here, so its decorators have none.
# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import kopf
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

GROUP, VERSION, PLURAL = "e2e.planform.dev", "v1", "widgets"


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    config.load_kube_config()
    settings.posting.level = 20
    settings.watching.server_timeout = 60


@kopf.on.create(GROUP, VERSION, PLURAL)
def make_page(spec: kopf.Spec, name: str, namespace: str, patch: kopf.Patch, body: kopf.Body, **_: Any) -> None:
    page: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{name}-page"},
        "data": {"colour": spec["colour"]},
    }
    kopf.adopt(page)
    client.CoreV1Api().create_namespaced_config_map(namespace, page)
    kopf.info(body, reason="Made", message=f"made a {spec['colour']} page")
    patch.status["phase"] = "Ready"


@kopf.on.update(GROUP, VERSION, PLURAL, field="spec.colour")
def paint(old: str, new: str, name: str, namespace: str, patch: kopf.Patch, **_: Any) -> None:
    client.CoreV1Api().patch_namespaced_config_map(f"{name}-page", namespace, {"data": {"colour": new}})
    patch.status["phase"] = f"Repainted from {old}"


@kopf.on.delete(GROUP, VERSION, PLURAL)
def say_goodbye(name: str, namespace: str, **_: Any) -> None:
    farewell = {"metadata": {"name": f"{name}-farewell"}}
    try:
        client.CoreV1Api().create_namespaced_config_map(namespace, farewell)
    except ApiException as error:
        if error.status != 409:
            raise


@kopf.timer(GROUP, VERSION, PLURAL, interval=0.5)
def tick(status: kopf.Status, patch: kopf.Patch, **_: Any) -> None:
    patch.status["ticks"] = status.get("ticks", 0) + 1
