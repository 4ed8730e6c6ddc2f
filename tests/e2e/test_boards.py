"""The shipped board and alert rules, in a real Prometheus that scrapes a control plane at work."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from planform.api.kinds import Object
from tests.e2e.control_plane import RunningPlane, manifest, running_plane
from tests.harness.function_server import function_server
from tests.harness.metrics_target import metrics_target
from tests.harness.prometheus import Prometheus, prometheus

pytestmark = [pytest.mark.programs, pytest.mark.xdist_group("boards")]

FILES = Path(__file__).parents[2] / "deploy" / "helm" / "planform" / "files"
BOARD: Object = json.loads((FILES / "dashboard.json").read_text())
RULES: Object = yaml.safe_load((FILES / "alerts.yaml").read_text())
QUERIES = [(panel["title"], target["expr"]) for panel in BOARD["panels"] for target in panel["targets"]]
ROLLOUT = "rollout.planform.dev/v1alpha1"


def test_every_panel_has_a_place_of_its_own_and_asks_the_chosen_data_source() -> None:
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in BOARD["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(places)
    assert {panel["datasource"]["uid"] for panel in BOARD["panels"]} == {"${datasource}"}


def xrd() -> Object:
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    return {
        "apiVersion": "apiextensions.crossplane.io/v2",
        "kind": "CompositeResourceDefinition",
        "metadata": {"name": "boards.example.org"},
        "spec": {
            "group": "example.org",
            "scope": "Namespaced",
            "names": {"kind": "Board", "plural": "boards"},
            "versions": [{"name": "v1", "served": True, "referenceable": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def composition(text: str) -> Object:
    annotations = "".join(
        f"\n    gotemplating.fn.crossplane.io/{name}: {value!r}"
        for name, value in (("composition-resource-name", "it"), ("ready", "True"))
    )
    template = f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  annotations:{annotations}\ndata:\n  text: {text}\n"
    templating = {
        "step": "render",
        "functionRef": {"name": "function-go-templating"},
        "input": {
            "apiVersion": "gotemplating.fn.crossplane.io/v1beta1",
            "kind": "GoTemplate",
            "source": "Inline",
            "inline": {"template": template},
        },
    }
    return {
        "apiVersion": "apiextensions.crossplane.io/v1",
        "kind": "Composition",
        "metadata": {"name": "boards"},
        "spec": {
            "mode": "Pipeline",
            "compositeTypeRef": {"apiVersion": "example.org/v1", "kind": "Board"},
            "pipeline": [templating, {"step": "ask", "functionRef": {"name": "asked"}}],
        },
    }


def functions(target: str) -> list[Object]:
    kind = {"apiVersion": "pkg.crossplane.io/v1", "kind": "Function"}
    package = "xpkg.crossplane.io/crossplane-contrib/function-go-templating:v0.11.0"
    return [
        {**kind, "metadata": {"name": "function-go-templating"}, "spec": {"package": package}},
        {
            **kind,
            "metadata": {"name": "asked", "annotations": {"planform.dev/endpoint": target}},
            "spec": {"package": "example.org/acme/fn:v1"},
        },
    ]


def change(receiver: str) -> list[Object]:
    """A policy, a window and a Blueprint with an action that has ended: something of everything that is counted."""
    return [
        {
            "apiVersion": ROLLOUT,
            "kind": "RolloutPolicy",
            "metadata": {"name": "boards"},
            "spec": {
                "for": {"compositions": {"names": ["boards"]}},
                "waves": [{"name": "canary", "max": 1}, {"name": "all", "approval": {"count": 1}}],
                "gates": [{"name": "all", "cel": "wave.xrs.size() > 0", "interval": "1s"}],
                "notify": [{"url": f"http://{receiver}/hook"}],
            },
        },
        {
            "apiVersion": ROLLOUT,
            "kind": "ChangeWindow",
            "metadata": {"name": "always"},
            "spec": {"effect": "Allow", "recurring": [{"from": "00:00", "to": "24:00"}]},
        },
        {
            "apiVersion": "cr.kanister.io/v1alpha1",
            "kind": "Blueprint",
            "metadata": {"name": "notes", "namespace": "default"},
            "actions": {"say": {"phases": [{"func": "Echo", "name": "say", "args": {"message": "hello"}}]}},
        },
        {
            "apiVersion": "cr.kanister.io/v1alpha1",
            "kind": "ActionSet",
            "metadata": {"name": "notes", "namespace": "default"},
            "spec": {
                "actions": [
                    {
                        "name": "say",
                        "blueprint": "notes",
                        "object": {
                            "kind": "Namespace",
                            "name": "default",
                            "apiVersion": "v1",
                            "resource": "namespaces",
                        },
                    }
                ]
            },
        },
    ]


@dataclass(frozen=True)
class Watched:
    """A control plane at work, and the Prometheus that scrapes it."""

    plane: RunningPlane
    prometheus: Prometheus


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    directory = tmp_path_factory.mktemp("boards")
    with (
        function_server(directory, "fn") as served,
        metrics_target("") as receiver,
        running_plane(directory / "plane", "--rollout-addresses", "127.0.0.1") as plane,
        prometheus(directory, **scraping(plane, directory)) as asked,
    ):
        plane.kubectl("apply", "-f", "-", stdin=manifest(xrd(), *functions(served.target), composition("one")))
        plane.kubectl("wait", "--for=condition=Established", "xrd/boards.example.org", "--timeout=30s")
        xrs = [
            {
                "apiVersion": "example.org/v1",
                "kind": "Board",
                "metadata": {"name": f"b{n}", "namespace": "default"},
                "spec": {},
            }
            for n in range(3)
        ]
        plane.kubectl("apply", "-f", "-", stdin=manifest(*xrs))
        plane.kubectl("wait", "--for=condition=Ready", "boards.example.org", "--all", "--timeout=60s")
        plane.kubectl("apply", "-f", "-", stdin=manifest(*change(receiver)))
        plane.kubectl("wait", "--for=jsonpath={.status.open}=true", "changewindow/always", "--timeout=30s")
        plane.kubectl("apply", "-f", "-", stdin=manifest(composition("two")))
        asked.until("planform_rollout_phase > 0")
        plane.kubectl("wait", "--for=jsonpath={.status.waiting.for}=Approval", "rollouts", "--all", "--timeout=60s")
        yield Watched(plane, asked)


def scraping(plane: RunningPlane, directory: Path) -> dict[str, Any]:
    """How Prometheus proves who it is: as the administrator of this plane."""
    config = yaml.safe_load(plane.kubeconfig.read_text())
    [cluster], [user] = ([each[kind] for each in config[f"{kind}s"]] for kind in ("cluster", "user"))
    tls: dict[str, str] = {}
    for name, held in (
        ("ca_file", cluster.get("certificate-authority-data")),
        ("cert_file", user.get("client-certificate-data")),
        ("key_file", user.get("client-key-data")),
    ):
        if held:
            (directory / name).write_bytes(base64.b64decode(held))
            tls[name] = str(directory / name)
    token = {"authorization": {"credentials": user["token"]}} if user.get("token") else {}
    return {
        "targets": [plane.url.removeprefix("https://")],
        "rules": FILES / "alerts.yaml",
        "scrape": {"scheme": "https", "tls_config": tls, **token},
    }


@pytest.mark.parametrize(("panel", "query"), QUERIES, ids=[f"{title}" for title, _ in QUERIES])
def test_every_query_of_the_board_gives_data(watched: Watched, panel: str, query: str) -> None:
    filled = query.replace("$__rate_interval", "1m").replace("$__range", "10m")
    if "outcome=~" in filled:  # nothing has failed here, and that is as it should be
        filled = filled.replace('outcome=~"error|retry|gave_up"', 'outcome!=""')
    assert watched.prometheus.until(filled, seconds=60), panel


def test_every_alert_is_loaded_and_healthy_and_its_expression_can_be_asked(watched: Watched) -> None:
    loaded = watched.prometheus.get("/api/v1/rules")["data"]["groups"]
    rules = {rule["name"]: rule for group in loaded for rule in group["rules"]}
    assert set(rules) == {rule["alert"] for group in RULES["groups"] for rule in group["rules"]}
    assert {rule["health"] for rule in rules.values()} <= {"ok", "unknown"}
    for rule in rules.values():
        watched.prometheus.query(rule["query"])


def test_no_alert_fires_where_all_is_well(watched: Watched) -> None:
    firing = watched.prometheus.get("/api/v1/alerts")["data"]["alerts"]
    assert [each["labels"] for each in firing if each["state"] == "firing"] == []
