"""The audit log: what an event says, what it never says, and what happens when the disk does not keep up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from planform.apiserver.auth.audit import AuditLog
from planform.apiserver.auth.authentication import ImpersonatingUser
from planform.apiserver.verbs.requests import ANONYMOUS, Attributes, User
from planform.apiserver.wire.http import HttpRequest, HttpResponse
from planform.app import Settings, open_control_plane
from planform.client.kubeconfig import find_connection
from planform.client.kubernetes import KubernetesClient
from planform.clock import SystemClock, VirtualClock
from planform.errors import Invalid

ALICE = User("alice", ("dev", "system:authenticated"), "u1")
GET_POD = Attributes("get", "", "v1", "pods", "log", "default", "web")


def asking(target: bytes = b"/api/v1/namespaces/default/pods/web/log", **headers: bytes) -> HttpRequest:
    named = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    return HttpRequest("GET", target, named, b"top-secret-body", None, "127.0.0.1")


def events(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit" / "audit.log"


async def test_an_event_says_who_did_what_from_where_and_how_it_ended(path: Path) -> None:
    async with AuditLog(path, clock=VirtualClock()) as audit:
        audit.answered(asking(user_agent=b"kubectl/1.37"), ALICE, GET_POD, HttpResponse(200, b"the log"))
    (event,) = events(path)
    assert event.pop("auditID")
    assert event == {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "stage": "ResponseComplete",
        "requestURI": "/api/v1/namespaces/default/pods/web/log",
        "verb": "get",
        "user": {"username": "alice", "uid": "u1", "groups": ["dev", "system:authenticated"]},
        "sourceIPs": ["127.0.0.1"],
        "userAgent": "kubectl/1.37",
        "objectRef": {
            "resource": "pods",
            "namespace": "default",
            "name": "web",
            "apiVersion": "v1",
            "subresource": "log",
        },
        "responseStatus": {"metadata": {}, "code": 200},
        "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z",
        "stageTimestamp": "2026-01-01T00:00:00.000000Z",
    }


async def test_what_admission_wants_to_be_said_is_said(tmp_path: Path) -> None:
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}]
    policy = {
        "matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": "has(object.data)", "message": "no data"}],
        "auditAnnotations": [{"key": "who", "valueExpression": "'it is ' + request.userInfo.username"}],
    }
    about = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "p"}}
    binding = {"policyName": "p", "validationActions": ["Audit"]}
    path, clock = tmp_path / "audit.log", SystemClock()
    async with open_control_plane(Settings(data=tmp_path / "data", audit_log=path)) as plane:
        await plane.client.create({**about, "kind": "ValidatingAdmissionPolicy", "spec": policy})
        await plane.client.create({**about, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding})
        connection = find_connection(clock=clock, path=plane.kubeconfig)
        async with KubernetesClient(connection, clock=clock, rng=Random(7)) as client:
            named = {"name": "bare", "namespace": "default"}
            await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": named})
    [event] = [each for each in events(path) if each["verb"] == "create" and "annotations" in each]
    failures = orjson.loads(event["annotations"].pop("validation.policy.admission.k8s.io/validation_failure"))
    assert [(each["policy"], each["message"]) for each in failures] == [("p", "no data")]
    assert event["annotations"] == {"p/who": "it is planform-admin"}


async def test_no_body_header_or_quoted_value_reaches_the_log(path: Path) -> None:
    refused = Invalid('Secret "s" is invalid: data: Invalid value: "hunter2"')
    failure = HttpResponse(422, orjson.dumps(refused.to_status()))
    async with AuditLog(path, clock=VirtualClock()) as audit:
        audit.answered(asking(authorization=b"Bearer hunter2", cookie=b"hunter2"), ALICE, GET_POD, failure)
        audit.answered(asking(), ALICE, GET_POD, HttpResponse(404, b"404 page not found\n"))
    content = orjson.dumps(events(path))
    assert b"hunter2" not in content
    assert b"top-secret" not in content
    invalid, missing = events(path)
    assert invalid["responseStatus"] == {"metadata": {}, "status": "Failure", "reason": "Invalid", "code": 422}
    assert missing["responseStatus"] == {"metadata": {}, "status": "Failure", "code": 404}


async def test_whoever_acts_for_somebody_is_named_as_well(path: Path) -> None:
    user = ImpersonatingUser("bob", ("qa",), by=ALICE)
    async with AuditLog(path, clock=VirtualClock()) as audit:
        audit.answered(asking(), user, GET_POD, HttpResponse(200))
    (event,) = events(path)
    assert event["user"]["username"] == "alice"
    assert event["impersonatedUser"] == {"username": "bob", "groups": ["qa"]}


async def test_paths_refused_requests_and_streams_are_logged_too(path: Path) -> None:
    async def lines() -> AsyncIterator[bytes]:
        yield b"{}"

    async with AuditLog(path, clock=VirtualClock()) as audit:
        audit.answered(asking(b"/metrics"), ANONYMOUS, Attributes("get", path="/metrics"), HttpResponse(403, b"{}"))
        audit.answered(asking(b"/\xff"), ANONYMOUS, None, HttpResponse(400, b"{}"))
        audit.answered(asking(b"/api/v1/pods?watch=1"), ALICE, GET_POD, HttpResponse(200, chunks=lines()))
        audit.answered(asking(b"/" + b"x" * 100_000), ANONYMOUS, None, HttpResponse(400, b"{}"))
    path_event, bad, stream, long = events(path)
    assert "objectRef" not in path_event
    assert bad["verb"] == "get"
    assert stream["stage"] == "ResponseStarted"
    assert len(long["requestURI"]) == 4096


async def test_every_event_is_written_in_order_before_the_log_is_left(path: Path) -> None:
    async with AuditLog(path, clock=VirtualClock()) as audit:
        for number in range(3000):
            audit.answered(asking(b"/%d" % number), ALICE, GET_POD, HttpResponse(200))
            if number % 500 == 0:
                await asyncio.sleep(0)
    assert [event["requestURI"] for event in events(path)] == [f"/{number}" for number in range(3000)]
    assert {found.stat().st_mode & 0o777 for found in _siblings(path)} == {0o600}


async def test_files_rotate_by_size_and_the_oldest_goes(path: Path) -> None:
    async with AuditLog(path, clock=VirtualClock(), max_bytes=1500, backups=2) as audit:
        for number in range(12):
            audit.answered(asking(b"/%d" % number), ALICE, GET_POD, HttpResponse(200))
            await audit.flush()
    assert sorted(found.name for found in _siblings(path)) == ["audit.log", "audit.log.1", "audit.log.2"]
    assert all(found.stat().st_size <= 1500 for found in _siblings(path))
    assert events(path)[-1]["requestURI"] == "/11"
    kept = [event["requestURI"] for name in (".2", ".1", "") for event in events(path.with_name("audit.log" + name))]
    assert kept == [f"/{number}" for number in range(12 - len(kept), 12)]


def _siblings(path: Path) -> list[Path]:
    return list(path.parent.iterdir())


async def test_beyond_the_buffer_events_are_lost_counted_and_reported(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with AuditLog(path, clock=VirtualClock(), buffered=10) as audit:
        for number in range(25):
            audit.answered(asking(b"/%d" % number), ALICE, GET_POD, HttpResponse(200))
    assert len(events(path)) == 10
    assert audit.lost == 15
    assert "lacks 15 events" in caplog.text


async def test_a_disk_that_refuses_loses_events_and_nothing_else(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with AuditLog(path, clock=VirtualClock()) as audit:
        _block(path)
        audit.answered(asking(), ALICE, GET_POD, HttpResponse(200))
        await audit.flush()
        assert audit.lost == 1
        _unblock(path)
        audit.answered(asking(), ALICE, GET_POD, HttpResponse(200))
    assert len(events(path)) == 1
    assert "cannot write the audit log" in caplog.text


def _block(path: Path) -> None:
    """A directory where the file should be: it cannot be opened for writing."""
    path.mkdir()


def _unblock(path: Path) -> None:
    path.rmdir()
