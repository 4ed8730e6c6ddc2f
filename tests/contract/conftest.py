"""Fixtures of the contract suite: each case runs once on each engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract import kinds
from tests.contract.engines import Engine, embedded, on_kubernetes
from tests.harness.kubernetes import RealKubernetes

ENGINES = [
    pytest.param("embedded", marks=pytest.mark.xdist_group("embedded")),
    pytest.param("kubernetes", marks=[pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes")]),
]


@pytest.fixture(scope="session", params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A running engine that serves the shared CRDs."""
    if request.param == "embedded":
        with embedded(tmp_path_factory.mktemp("embedded")) as started:
            yield _prepared(started)
    else:
        cluster: RealKubernetes = request.getfixturevalue("kubernetes_engine")
        yield _prepared(on_kubernetes(cluster))


@pytest.fixture
def ns(engine: Engine) -> str:
    """A namespace of the test's own."""
    return engine.new_namespace()


def _prepared(engine: Engine) -> Engine:
    kinds.establish(engine, kinds.WIDGETS, kinds.MULTIS, kinds.PLAINS, kinds.PLANETS)
    return engine
