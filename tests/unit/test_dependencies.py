"""What packages need of each other, and which version is chosen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planform.functions.semver import parse_semver
from planform.packages.dependencies import (
    Ask,
    Entry,
    Need,
    NoVersionFits,
    choose_version,
    cycle_of,
    dependency_status_of,
    meets,
    needs,
)
from planform.packages.xpkg import Dependency

DIGEST = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64


def entry(source: str, version: str = "v1.0.0", **needed: str) -> Entry:
    dependencies = tuple(
        Dependency(package, "Function", "pkg.crossplane.io/v1", constraint) for package, constraint in needed.items()
    )
    return Entry(f"{source}-{version}", "Configuration", "pkg.crossplane.io/v1", source, version, dependencies)


def need(*constraints: str, installed: tuple[str, ...] = ()) -> Need:
    asks = tuple(Ask(f"p{number}", each) for number, each in enumerate(constraints))
    return Need("fn", "Function", "pkg.crossplane.io/v1", asks, installed)


@pytest.mark.parametrize(
    ("version", "constraint", "fits"),
    [
        ("v1.2.3", ">=v1.0.0", True),
        ("1.2.3", "^1.2", True),
        ("v2.0.0", "^1.2", False),
        ("v1.2.3", "~1.2.0", True),
        ("v1.3.0", "1.2.x", False),
        ("v1.3.0", ">=1.2, <1.4", True),
        ("v1.3.0", "<1 || >=1.3", True),
        ("v1.3.0", "1.2 - 1.4", True),
        ("v1.3.0-rc.1", ">=v1.2.0", False),
        ("v1.3.0-rc.1", ">=v1.2.0-0", True),
        ("v1", "v1.0.0", False),
        ("latest", "*", False),
        (DIGEST, DIGEST, True),
        (OTHER, DIGEST, False),
        (DIGEST, ">=v1", False),
    ],
)
def test_what_fits(version: str, constraint: str, fits: bool) -> None:
    assert meets(version, constraint) is fits


def test_of_what_is_not_installed_the_highest_version_that_fits_all_is_chosen() -> None:
    tags = ["v1.0.0", "v1.9.0", "v1.10.0", "v2.0.0", "latest", "v1", "v1.11.0-rc.1"]
    assert choose_version(need(">=v1.0.0", "<v2"), tags) == "v1.10.0"


def test_of_what_is_installed_the_nearest_version_upwards_is_chosen() -> None:
    tags = ["v1.0.0", "v1.1.0", "v1.2.0", "v1.3.0"]
    assert choose_version(need(">=v1.2.0", installed=("v1.0.0",)), tags) == "v1.2.0"


def test_only_if_nothing_above_fits_is_it_downgraded_and_then_as_little_as_can_be() -> None:
    tags = ["v1.0.0", "v1.1.0", "v2.0.0"]
    assert choose_version(need("<v2", installed=("v2.0.0",)), tags) == "v1.1.0"


def test_a_digest_is_taken_as_it_is() -> None:
    assert choose_version(need(DIGEST, DIGEST), ["v1.0.0"]) == DIGEST


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ((DIGEST, ">=v1"), f"fn: a digest cannot be told to fit: p0 needs {DIGEST}; p1 needs >=v1"),
        ((DIGEST, OTHER), f"fn: a digest cannot be told to fit: p0 needs {DIGEST}; p1 needs {OTHER}"),
        (
            ("<v1.0.0", ">=v1.0.0"),
            "fn has no version that fits: p0 needs <v1.0.0; p1 needs >=v1.0.0; the newest there are: v1.1.0, v1.0.0",
        ),
    ],
)
def test_a_conflict_names_everybody_who_asks(asked: tuple[str, ...], message: str) -> None:
    with pytest.raises(NoVersionFits) as raised:
        choose_version(need(*asked), ["v1.0.0", "v1.1.0", "latest"])
    assert raised.value.message == message


def test_only_tags_that_are_no_versions_are_said_to_be_none() -> None:
    with pytest.raises(NoVersionFits) as raised:
        choose_version(need(">=v1"), ["latest", "v1", "main"])
    assert raised.value.message.endswith("the newest there are: none")


def test_a_diamond_is_met_by_one_version_or_any_of_several() -> None:
    top = entry("top", left=">=v1", right=">=v1")
    left, right = entry("left", base=">=v1.1.0"), entry("right", base="<v1.3.0")
    assert needs([top, left, right, entry("base", "v1.2.0")]) == []
    [wrong] = needs([top, left, right, entry("base", "v1.3.0")])
    assert (wrong.source, wrong.installed) == ("base", ("v1.3.0",))
    assert [str(each) for each in wrong.asks] == ["left needs >=v1.1.0", "right needs <v1.3.0"]
    assert needs([top, left, right, entry("base", "v1.0.0"), entry("base", "v1.3.0")]) == []


def test_a_cycle_is_said_of_those_on_it_and_of_nobody_else() -> None:
    entries = [entry("a", b=">=v1"), entry("b", c=">=v1"), entry("c", a=">=v1"), entry("d", e="*"), entry("e")]
    assert cycle_of("a", entries) == ("a", "b", "c", "a")
    assert dependency_status_of(entries[0], entries).problem == "it needs itself: a -> b -> c -> a"
    assert dependency_status_of(entries[3], entries).problem == ""
    assert needs(entries) == []


def test_a_package_may_need_what_needs_itself() -> None:
    entries = [entry("a", a=">=v1")]
    assert cycle_of("a", entries) == ("a", "a")
    assert dependency_status_of(entries[0], entries).found == 0


def test_what_is_missing_is_counted_through_all_that_is_needed() -> None:
    top = entry("top", left=">=v1", lost=">=v1")
    entries = [top, entry("left", "v1.0.0", deep=">=v1")]
    dependency_status = dependency_status_of(top, entries)
    assert (dependency_status.found, dependency_status.installed, dependency_status.invalid) == (3, 1, 0)
    assert dependency_status.problem == "missing dependencies: deep, lost"
    many = entry("many", **{f"p{number}": "*" for number in range(5)})
    assert dependency_status_of(many, [many]).problem == "missing dependencies: p0, p1, p2 and 2 more"


def test_a_version_that_does_not_fit_is_named() -> None:
    top = entry("top", base="^1")
    dependency_status = dependency_status_of(top, [top, entry("base", "v2.0.0")])
    assert (dependency_status.found, dependency_status.installed, dependency_status.invalid) == (1, 1, 1)
    assert dependency_status.problem == "incompatible dependencies: base is v2.0.0 and must be ^1"


versions = st.builds("v{}.{}.{}".format, *(st.integers(0, 3) for _ in range(3)))
ranges = st.builds("{}{}".format, st.sampled_from([">=", "<=", "^", "~", "!="]), versions)


@given(st.lists(ranges, min_size=1, max_size=3), st.lists(versions, max_size=8), st.lists(versions, max_size=1))
def test_what_is_chosen_meets_every_constraint_or_nothing_does(
    asked: list[str], tags: list[str], installed: list[str]
) -> None:
    fitting = [tag for tag in tags if all(meets(tag, each) for each in asked)]
    try:
        chosen = choose_version(need(*asked, installed=tuple(installed)), tags)
    except NoVersionFits:
        assert fitting == []
        return
    assert chosen in fitting
    above = [tag for tag in fitting if installed and _rank(tag) >= _rank(installed[0])]
    assert _rank(chosen) == (min(map(_rank, above)) if above else max(map(_rank, fitting)))


def _rank(tag: str) -> tuple[object, ...]:
    parsed = parse_semver(tag)
    assert parsed is not None
    return parsed[:3]
