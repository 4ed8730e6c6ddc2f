"""What is secret in a run: whatever came from a Secret, under whatever name, and nothing that everybody can read."""

from __future__ import annotations

import base64
import io
import logging

import pytest

from planform.errors import Invalid, PlanformError
from planform.functions.errors import FunctionFailed
from planform.functions.values import FunctionRequest, Object, Resource, State
from planform.journal.masking import NOTHING_SECRET, masked_error
from planform.pipeline.run_secrets import RunSecrets
from planform.telemetry.logs import set_up_logging
from planform.telemetry.masking import MASK, masked, masked_by

XR = {"apiVersion": "t/v1", "kind": "XR", "metadata": {"name": "orders-db", "namespace": "team-a"}}


def secret(**data: str) -> Resource:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return Resource({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": encoded})


def test_secrets_of_every_origin_are_masked() -> None:
    secrets = RunSecrets(
        State(
            Resource(XR, {"own": b"from-own-details"}),
            {"db": Resource({}, {"k": b"from-details"}), "s": secret(k="observed-secret")},
        )
    )
    secrets.sent({"k": b"from-credentials"})
    secrets.asked([FunctionRequest(required_resources={"r": [secret(k="required-secret")]})])
    secrets.asked([FunctionRequest(extra_resources={"r": [secret(k="extra-secret")]})])
    secrets.desired(
        State(
            Resource({}, {"p": b"published-detail"}),
            {"new": Resource({"apiVersion": "v1", "kind": "Secret", "stringData": {"k": "desired-secret"}})},
        )
    )
    for value in (
        "from-own-details",
        "from-details",
        "observed-secret",
        "from-credentials",
        "required-secret",
        "extra-secret",
        "published-detail",
        "desired-secret",
        base64.b64encode(b"from-credentials").decode(),
    ):
        assert secrets.text(f"with {value}!") == f"with {MASK}!", value


def test_secrets_that_other_objects_wrap_are_masked() -> None:
    def wrapping(manifest: Object) -> Resource:
        return Resource({"apiVersion": "k/v1", "kind": "Object", "spec": {"forProvider": {"manifest": manifest}}})

    listed = {"apiVersion": "v1", "kind": "List", "items": [{"a": 1}, secret(k="in-a-list").resource]}
    secrets = RunSecrets(State(Resource(XR), {"o": wrapping(secret(k="observed-within").resource)}))
    secrets.asked([FunctionRequest(required_resources={"r": [wrapping(secret(k="required-within").resource)]})])
    secrets.desired(State(resources={"o": wrapping(listed)}))
    for value in ("observed-within", "required-within", "in-a-list"):
        assert secrets.text(f"with {value}!") == f"with {MASK}!", value


def test_names_of_what_the_run_is_about_stay_readable() -> None:
    secrets = RunSecrets(State(Resource(XR), {"main-database": Resource({"metadata": {"name": "orders-db-x1"}})}))
    secrets.sent(
        {"database": b"orders-db", "host": b"orders-db-x1", "which": b"main-database", "password": b"hunter22"}
    )
    assert secrets.text('orders-db-x1 of orders-db ("main-database"): hunter22') == (
        f'orders-db-x1 of orders-db ("main-database"): {MASK}'
    )


def test_a_run_without_secrets_masks_nothing() -> None:
    secrets = RunSecrets(State(Resource(XR), {}))
    assert secrets.mask is NOTHING_SECRET
    assert secrets.text("anything") == "anything"


@pytest.mark.parametrize("kind", [FunctionFailed, Invalid])
def test_an_error_says_nothing_secret_nor_do_its_causes(kind: type[PlanformError]) -> None:
    secrets = RunSecrets(State(Resource(XR), {}))
    secrets.sent({"password": b"hunter22"})
    try:
        try:
            raise ValueError("hunter22 was refused")
        except ValueError as cause:
            error = kind("cannot log in with hunter22")
            error.hint = "try another than hunter22"
            raise error from cause
    except PlanformError as caught:
        told = masked_error(caught, secrets.mask)
    assert str(told) == f"cannot log in with {MASK}"
    assert told.hint == f"try another than {MASK}"
    assert told.__cause__ is None and told.__context__ is None


def test_what_is_logged_inside_a_run_is_masked_and_afterwards_not() -> None:
    stream = io.StringIO()
    logger = logging.getLogger("planform.test")
    root = logging.getLogger("planform")
    before = list(root.handlers), root.level, root.propagate
    set_up_logging(stream, format="json")
    secrets = RunSecrets(State(Resource(XR), {}))
    with masked_by(secrets.text):
        secrets.sent({"password": b"hunter22"})
        logger.warning("with %s", "hunter22", extra={"given": "hunter22"})
        assert masked("hunter22") == MASK
    logger.warning("with hunter23")
    root.handlers[:], root.level, root.propagate = before
    assert "hunter22" not in stream.getvalue()
    assert "hunter23" in stream.getvalue()
