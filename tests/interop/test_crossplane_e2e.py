"""Crossplane's own end-to-end tests pass: the binary that its authors' code makes, unchanged, drives `planform up`.

Ten of them run with every test run, and all that apply with `make test-long`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.registries import serving_registry
from tests.harness.programs import programs
from tests.interop.crossplane_e2e.loopback import Loopback, own_loopback, serving_hosts
from tests.interop.crossplane_e2e.packages import publish, unpack_tree
from tests.interop.crossplane_e2e.running import LIMIT_SECONDS, SUITE, prepare, run
from tests.unit.signing import key_pair

pytest.importorskip("crossplane.function")

pytestmark = [pytest.mark.xdist_group("crossplane-e2e"), pytest.mark.timeout(LIMIT_SECONDS + 120)]

APPLICABLE = [name for name, about in SUITE.items() if "not" not in about]
TRIES = 4
QUICK = [name for name in APPLICABLE if SUITE[name].get("quick")]


@dataclass(frozen=True)
class Stage:
    """Everything that is the same for every test."""

    loopback: Loopback
    tree: Path
    binary: Path


def staged(directory: Path, *, providers: bool) -> Iterator[Stage]:
    """A registry with all packages, and the tree with what is ours; without providers it is there much sooner."""
    programs("crossplane-e2e", "crossplane-e2e-tree", *(("provider-nop",) if providers else ()))
    tree = unpack_tree(directory / "tree")
    private, public = key_pair()
    with serving_registry(directory / "registry") as address:
        digests = publish(address, directory / "blobs", tree, private, providers=providers)
    binary = prepare(tree, digests, public)
    data, net = directory / "registry" / "data", directory / "net"
    with own_loopback(net) as loopback, serving_hosts(loopback, data, net):
        yield Stage(loopback, tree, binary)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    yield from staged(tmp_path_factory.mktemp("crossplane-e2e"), providers=False)


@pytest.fixture(scope="module")
def stage_with_providers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    yield from staged(tmp_path_factory.mktemp("crossplane-e2e-providers"), providers=True)


def check(name: str, stage: Stage, directory: Path) -> None:
    about = SUITE[name]
    for attempt in range(TRIES if "again" in about else 1):
        place = directory / str(attempt)
        outcome = run(name, stage.loopback, stage.tree, stage.binary, place, about.get("flags", ()))
        if outcome.passed or about.get("again", "") not in outcome.output:
            break
    assert outcome.passed, f"{outcome.output[-6000:]}\n\nthe control plane: {outcome.plane_log}"


@pytest.mark.parametrize("name", QUICK)
def test_it_passes(name: str, stage: Stage, tmp_path: Path) -> None:
    check(name, stage, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in APPLICABLE if name not in QUICK])
def test_it_passes_too(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    providers = SUITE[name].get("packages") == "providers"
    check(name, request.getfixturevalue("stage_with_providers" if providers else "stage"), tmp_path)


def test_the_table_names_every_test_of_the_suite() -> None:
    binary = programs("crossplane-e2e") / "crossplane-e2e"
    found = set(re.findall(rb"test/e2e\.(Test[A-Z]\w+)", binary.read_bytes()))
    assert {name.decode() for name in found} - {"TestMain"} == set(SUITE)
    assert (len(APPLICABLE), len(SUITE) - len(APPLICABLE), len(QUICK)) == (46, 10, 10)
