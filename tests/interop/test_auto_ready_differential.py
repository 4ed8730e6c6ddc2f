"""The built-in auto-ready decides as the published Go function does, but for what improvements.yaml lists."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from planform.builtin.auto_ready import function
from planform.functions.values import FunctionRequest, Object, Ready, Resource, State
from tests.interop.published import PublishedFunction, serving

SEEDS = range(100)
ENTRIES = [
    entry
    for entry in yaml.safe_load((Path(__file__).parent / "improvements.yaml").read_text())
    if entry["function"] == "auto-ready"
]
KINDS = (
    *(("v1", kind) for kind in ("ConfigMap", "Secret", "ServiceAccount", "Namespace", "Service", "Pod")),
    ("v1", "PersistentVolumeClaim"),
    *(("apps/v1", kind) for kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")),
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
    ("networking.k8s.io/v1", "Ingress"),
    ("example.org/v1", "Thing"),
)
CONDITIONS = (
    *("Ready", "Available", "Complete", "Failed", "Suspended", "ReplicaFailure", "ScalingActive", "ScalingLimited"),
    *("FailedGetScale", "Synced"),
)

pytestmark = pytest.mark.xdist_group("go-auto-ready")


@pytest.fixture
async def published(tmp_path: Path) -> AsyncIterator[PublishedFunction]:
    async with serving("function-auto-ready", tmp_path) as served:
        yield served


def observed(pick: random.Random) -> Object:
    """A resource in a state that Kubernetes could show, or nearly."""
    api_version, kind = pick.choice(KINDS)
    count = pick.choice((1, 1, 2))
    spec: dict[str, Any] = {"replicas": count, "type": pick.choice(("ClusterIP", "LoadBalancer"))}
    spec["restartPolicy"] = pick.choice(("Always", "Always", "Never"))
    spec["suspend"] = pick.random() < 0.2
    counters = (
        *("updatedReplicas", "availableReplicas", "readyReplicas", "currentReplicas", "desiredNumberScheduled"),
        *("numberReady", "updatedNumberScheduled", "numberAvailable"),
    )
    status: dict[str, Any] = {each: count if pick.random() < 0.9 else 1 for each in counters if pick.random() < 0.95}
    status |= {"currentRevision": "a", "updateRevision": pick.choice("aab"), "observedGeneration": pick.choice((1, 2))}
    status["phase"] = pick.choice(("Bound", "Running", "Succeeded", "Pending"))
    if pick.random() < 0.5:
        status["loadBalancer"] = {"ingress": [{"ip": "10.0.0.1"}] if pick.random() < 0.7 else []}
    if pick.random() < 0.7:
        status["lastScheduleTime"] = f"2024-01-0{pick.randint(1, 3)}T00:00:00Z"
    if pick.random() < 0.7:
        status["lastSuccessfulTime"] = f"2024-01-0{pick.randint(1, 3)}T00:00:00Z"
    chosen = pick.sample(CONDITIONS, pick.randint(0, 4))
    status["conditions"] = [
        {"type": each, "status": pick.choice(("True", "True", "False")), "lastTransitionTime": "2024-01-01T00:00:00Z"}
        for each in chosen
    ]
    metadata = {"name": "r", "generation": pick.choice((1, 2))}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec, "status": status}


def request(seed: int) -> FunctionRequest:
    pick = random.Random(seed)
    names = [f"r{number}" for number in range(6)]
    found = {name: observed(pick) for name in names}
    return FunctionRequest(
        observed=State(resources={name: Resource(found[name]) for name in names if pick.random() < 0.9}),
        desired=State(
            resources={
                name: Resource(
                    {"apiVersion": found[name]["apiVersion"], "kind": found[name]["kind"]},
                    ready=pick.choice((Ready.UNSPECIFIED, Ready.UNSPECIFIED, Ready.TRUE, Ready.FALSE)),
                )
                for name in names
            }
        ),
        tag="tag",
    )


async def test_a_hundred_generated_requests_have_the_same_answer_from_both(published: PublishedFunction) -> None:
    ready = 0
    for seed in SEEDS:
        asked = request(seed)
        ours, theirs = function(asked), await published(asked)
        assert ours.desired == theirs.desired, f"seed {seed}"
        ready += sum(
            each.ready is Ready.TRUE and asked.desired.resources[name].ready is Ready.UNSPECIFIED
            for name, each in ours.desired.resources.items()
        )
    assert ready > len(SEEDS), "many resources must be found ready"


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["name"])
async def test_what_we_do_otherwise_is_as_listed(entry: Object, published: PublishedFunction) -> None:
    assert entry["why"] and entry["upstream"] != entry["planform"]
    thing = {"apiVersion": entry["observed"]["apiVersion"], "kind": entry["observed"]["kind"]}
    asked = FunctionRequest(
        observed=State(resources={"thing": Resource(entry["observed"])}),
        desired=State(resources={"thing": Resource(thing)}),
    )
    assert (await published(asked)).desired.resources["thing"].ready.name == entry["upstream"]
    assert function(asked).desired.resources["thing"].ready.name == entry["planform"]
