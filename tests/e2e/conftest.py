"""One control plane for all end-to-end tests of a worker, and a namespace of its own for each test."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.e2e.control_plane import Program, RunningPlane, manifest, running_plane
from tests.e2e.registries import serving_registry
from tests.e2e.widgets import WIDGETS


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPlane]:
    with running_plane(tmp_path_factory.mktemp("plane")) as running:
        yield running


@pytest.fixture
def namespace(plane: RunningPlane, request: pytest.FixtureRequest) -> str:
    """A namespace that only this test uses; it goes away with the plane."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())[:60].strip("-")
    plane.kubectl("create", "namespace", name)
    return name


@pytest.fixture
def kubectl(plane: RunningPlane, namespace: str) -> Program:
    """kubectl as the administrator, in the test's namespace."""
    return plane.kubectl.with_("--namespace", namespace)


@pytest.fixture
def planform(plane: RunningPlane, namespace: str) -> Program:
    """The command line, whose kubeconfig leads into the test's namespace."""
    kubeconfig = plane.directory / f"{namespace}.kubeconfig"
    kubeconfig.write_text(plane.kubeconfig.read_text())
    kubeconfig.chmod(0o600)
    plane.kubectl("--kubeconfig", str(kubeconfig), "config", "set-context", "--current", "--namespace", namespace)
    return plane.planform.with_(env={"KUBECONFIG": str(kubeconfig)})


@pytest.fixture(scope="session")
def widgets(plane: RunningPlane) -> None:
    """The Widget kind is served."""
    plane.kubectl("apply", "-f", "-", stdin=manifest(WIDGETS))
    plane.kubectl("wait", "--for=condition=Established", "crd/widgets.e2e.planform.dev", "--timeout=10s")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry that everybody may use."""
    with serving_registry(tmp_path_factory.mktemp("registry")) as served:
        yield served


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry that asks who one is."""
    with serving_registry(tmp_path_factory.mktemp("guarded"), with_login=True) as served:
        yield served
