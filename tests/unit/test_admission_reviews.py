"""Admission reviews on the wire: what plugins see of them, and what the API server is answered."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest

from planform.apiserver.admission.chain import Admission
from planform.client.protocol import Propagation
from planform.cluster.reviews import parse, validate
from planform.errors import BadRequest, Conflict


class Plugin:
    """Notes what it is asked, then warns, amends or refuses."""

    def __init__(self, refusal: Conflict | None = None, warning: str = "", annotation: str = "") -> None:
        self.refusal, self.warning, self.annotation = refusal, warning, annotation
        self.asked: list[Admission] = []

    def admit(self, admission: Admission, /) -> None:
        self.asked.append(admission)
        if self.warning:
            admission.request.warn(self.warning)
        if self.annotation and admission.new is not None:
            admission.new["metadata"]["annotations"] = {"a": self.annotation}
        if self.refusal is not None:
            raise self.refusal


def body(operation: str = "DELETE", **request: Any) -> bytes:
    widget = {"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": "a", "uid": "u1"}}
    which = {"object": widget} if operation == "CREATE" else {"oldObject": widget}
    asked = {
        "uid": "r1",
        "kind": {"group": "example.org", "version": "v1", "kind": "Widget"},
        "resource": {"group": "example.org", "version": "v1", "resource": "widgets"},
        "operation": operation,
        "name": "a",
        "namespace": "default",
        "userInfo": {"username": "alice", "groups": ["users"]},
        **which,
        **request,
    }
    return orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked})


def answered(content: bytes, *plugins: Plugin) -> dict[str, Any]:
    response: dict[str, Any] = orjson.loads(validate(*parse(content), plugins).encode())["response"]
    return response


def test_a_plugin_sees_who_wants_to_delete_what_and_how() -> None:
    plugin = Plugin()
    options = {"propagationPolicy": "Foreground"}
    assert answered(body(options=options, dryRun=True), plugin) == {"uid": "r1", "allowed": True}
    (asked,) = plugin.asked
    assert (asked.operation, asked.kind.resource, asked.namespace, asked.name) == (
        "DELETE",
        "widgets.example.org",
        "default",
        "a",
    )
    assert (asked.request.user.name, asked.request.dry_run) == ("alice", True)
    assert (asked.new, asked.propagation) == (None, Propagation.FOREGROUND)
    assert asked.old is not None and asked.old["metadata"]["uid"] == "u1"


def test_the_first_refusal_decides_and_warnings_reach_the_user() -> None:
    later = Plugin()
    response = answered(body(), Plugin(warning="mind"), Plugin(refusal=Conflict("in use")), later)
    assert response["allowed"] is False
    assert (response["status"]["code"], response["status"]["message"]) == (409, "in use")
    assert response["warnings"] == ["mind"]
    assert later.asked == []


def test_what_a_plugin_amends_becomes_a_patch() -> None:
    response = answered(body("CREATE"), Plugin(annotation="b"))
    assert response["patchType"] == "JSONPatch"
    assert orjson.loads(base64.b64decode(response["patch"])) == [
        {"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}}
    ]


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b'{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{}}', body("CONNECT")],
    ids=["nothing", "no review", "another version", "an operation we did not ask for"],
)
def test_what_is_no_review_is_refused(content: bytes) -> None:
    with pytest.raises(BadRequest, match="not an AdmissionReview"):
        parse(content)
