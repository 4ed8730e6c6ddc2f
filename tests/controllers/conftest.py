"""`context`: a ControllerContext on each engine. Each test starts the controllers it is about on `context.manager`."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest

from planform.reconcile.context import ControllerContext
from tests.harness.contexts import embedded_context, kubernetes_context
from tests.harness.kubernetes import RealKubernetes

ENGINES = [
    "embedded",
    pytest.param("kubernetes", marks=[pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes")]),
]


LONG_ON_KUBERNETES = pytest.mark.parametrize(
    "context",
    [
        "embedded",
        pytest.param(
            "kubernetes", marks=[pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes"), pytest.mark.long]
        ),
    ],
    indirect=True,
)
"""For tests that take their time, and whose claim another one makes on a cluster."""


@pytest.fixture(params=ENGINES)
async def context(request: pytest.FixtureRequest) -> AsyncIterator[ControllerContext]:
    if request.param == "kubernetes":
        cluster: RealKubernetes = request.getfixturevalue("kubernetes_engine")
        async with kubernetes_context(cluster) as context:
            yield context
    else:
        async with embedded_context() as context:
            yield context


@pytest.fixture
def unique() -> str:
    """A word for names and API groups that no other test has."""
    return f"t{uuid.uuid4().hex[:8]}"
