"""`bench`: a workbench on each engine. Each test starts the controllers it is about on `bench.plane`."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest

from planform.controllers.workbench import Workbench
from tests.harness.kubernetes import RealKubernetes
from tests.harness.planes import embedded_bench, kubernetes_bench

ENGINES = [
    "embedded",
    pytest.param("kubernetes", marks=[pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes")]),
]


LONG_ON_KUBERNETES = pytest.mark.parametrize(
    "bench",
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
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Workbench]:
    if request.param == "kubernetes":
        cluster: RealKubernetes = request.getfixturevalue("kubernetes_engine")
        async with kubernetes_bench(cluster) as bench:
            yield bench
    else:
        async with embedded_bench() as bench:
            yield bench


@pytest.fixture
def unique() -> str:
    """A word for names and API groups that no other test has."""
    return f"t{uuid.uuid4().hex[:8]}"
