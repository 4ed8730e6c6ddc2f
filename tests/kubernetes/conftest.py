"""A real cluster of this suite's own whose API server keeps an audit log, and replicas as processes on it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.harness.auditing import Audit
from tests.harness.kubernetes import RealKubernetes, real_kubernetes


@dataclass(frozen=True)
class Audited:
    """The cluster and its log."""

    cluster: RealKubernetes
    audit: Audit


@pytest.fixture(scope="session")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    directory = tmp_path_factory.mktemp("audited")
    audit = Audit(directory)
    with real_kubernetes(directory, unsafe_no_fsync=True, api_flags=audit.flags()) as cluster:
        yield Audited(cluster, audit)


@pytest.fixture
def unique() -> str:
    """A word for names and API groups that no other test has."""
    return f"t{uuid.uuid4().hex[:8]}"
