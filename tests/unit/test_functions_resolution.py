"""Which revision of a function runs."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planform.functions.errors import (
    FunctionNotFound,
    MissingCapability,
    ResolutionError,
    VersionInactive,
    VersionNotFound,
    VersionNotReady,
    VersionRemoved,
)
from planform.functions.resolution import Catalogue, Default, Lifecycle, Request, Rule, Version, resolve
from planform.functions.semver import parse_semver


def version(number: int, **fields: Any) -> Version:
    return Version("fn", f"fn-{number}", digest=f"sha256:{number}", number=number, **fields)


def phase(semver: str, **fields: Any) -> Version:
    return Version("Wait", semver, semver=semver, capabilities=frozenset({"phase"}), **fields)


THREE = (version(1, labels={"channel": "old"}), version(2, labels={"channel": "alpha"}), version(3))


@pytest.mark.parametrize(
    ("versions", "request_", "chosen", "rule"),
    [
        pytest.param(THREE, Request("fn"), "fn-3", Rule.LATEST, id="the highest number without any wish"),
        pytest.param(THREE, Request("fn", ref="fn-1"), "fn-1", Rule.REF, id="a name"),
        pytest.param(THREE, Request("fn", selector={"channel": "alpha"}), "fn-2", Rule.SELECTOR, id="labels"),
        pytest.param(
            THREE, Request("fn", ref="fn-1", selector={"channel": "alpha"}), "fn-1", Rule.REF, id="a name beats labels"
        ),
        pytest.param(THREE, Request("fn", selector={}), "fn-3", Rule.SELECTOR, id="no labels match everything"),
        pytest.param(
            (version(1), version(2, ready=False)), Request("fn"), "fn-1", Rule.LATEST, id="a ready one before a newer"
        ),
        pytest.param(
            (version(1, ready=False), version(2, ready=False)), Request("fn"), "fn-2", Rule.LATEST, id="none is ready"
        ),
        pytest.param((version(1), version(2, active=False)), Request("fn"), "fn-1", Rule.LATEST, id="inactive is out"),
        pytest.param(
            (version(1, labels={"planform.dev/stable": "true"}), version(2)),
            Request("fn"),
            "fn-1",
            Rule.STABLE,
            id="the mark beats the number",
        ),
        pytest.param(
            (version(1, labels={"planform.dev/stable": "true"}), version(2, labels={"a": "b"})),
            Request("fn", selector={"a": "b"}),
            "fn-2",
            Rule.SELECTOR,
            id="labels beat the mark",
        ),
        pytest.param(THREE, Request("fn", lock="fn-2", ref="fn-1"), "fn-2", Rule.LOCK, id="a lock beats all"),
        pytest.param(
            (phase("v0.0.0"), phase("v1.0.0", stable=True), phase("v1.1.0")),
            Request("Wait", "phase", default=Default.UNVERSIONED),
            "v1.0.0",
            Rule.STABLE,
            id="a phase takes the stable version",
        ),
        pytest.param(
            (phase("v0.0.0"), phase("v1.0.0", stable=True)),
            Request("Wait", "phase", pin="0.0.0", hint="v1.0.0", default=Default.UNVERSIONED),
            "v0.0.0",
            Rule.PIN,
            id="a pin beats a hint, whatever its spelling",
        ),
        pytest.param(
            (phase("v0.0.0"), phase("v1.0.0", stable=True)),
            Request("Wait", "phase", hint="v0", default=Default.UNVERSIONED),
            "v0.0.0",
            Rule.HINT,
            id="a hint beats the mark, and may be short",
        ),
        pytest.param(
            (phase("v0.0.0"), phase("v1.0.0", stable=True)),
            Request("Wait", "phase", hint="v7.0.0", default=Default.UNVERSIONED),
            "v1.0.0",
            Rule.STABLE,
            id="an unknown hint falls through",
        ),
        pytest.param(
            (phase("v0.0.0"), phase("v2.0.0")),
            Request("Wait", "phase", default=Default.UNVERSIONED),
            "v0.0.0",
            Rule.UNVERSIONED,
            id="without a mark code is unversioned",
        ),
    ],
)
def test_the_rules_choose_in_their_order(
    versions: tuple[Version, ...], request_: Request, chosen: str, rule: Rule
) -> None:
    resolution = resolve(Catalogue(versions), request_)
    assert (resolution.version.id, resolution.rule) == (chosen, rule)
    assert resolution.revision.name == chosen


@pytest.mark.parametrize(
    ("versions", "request_", "error", "text"),
    [
        pytest.param(THREE, Request("fm"), FunctionNotFound, "no such function is installed", id="unknown function"),
        pytest.param(THREE, Request("fn", ref="fn-9"), VersionNotFound, 'name "fn-9"', id="a name that is not there"),
        pytest.param(
            (*THREE, Version("other", "other-1")),
            Request("fn", ref="other-1"),
            VersionNotFound,
            'fn-3: not the revision "other-1"',
            id="a revision of another function",
        ),
        pytest.param(
            THREE, Request("fn", selector={"channel": "x"}), VersionNotFound, "labels channel=x", id="labels of nobody"
        ),
        pytest.param(
            (version(1, active=False, labels={"a": "b"}), version(2)),
            Request("fn", selector={"a": "b"}),
            VersionInactive,
            "fn-1: inactive",
            id="labels of an inactive one do not fall back",
        ),
        pytest.param(
            (version(1, active=False),), Request("fn"), VersionInactive, "no active revision", id="none active"
        ),
        pytest.param(
            (version(1, reachable=False),), Request("fn"), VersionNotReady, "no endpoint yet", id="no endpoint"
        ),
        pytest.param(
            (version(1, stable=True, ready=False), version(2)),
            Request("fn"),
            VersionNotReady,
            "marked stable and not ready",
            id="no silent jump past the stable one",
        ),
        pytest.param(
            (version(1), version(2, capabilities=frozenset({"operation"}))),
            Request("fn", "composition"),
            MissingCapability,
            "it has: operation",
            id="a newer one that lost the capability fails loudly",
        ),
        pytest.param(
            (phase("v0.0.0", lifecycle=Lifecycle.REMOVED, note="use v1.0.0"), phase("v1.0.0", stable=True)),
            Request("Wait", "phase", pin="v0.0.0"),
            VersionRemoved,
            "use v1.0.0",
            id="a removed pin",
        ),
        pytest.param(
            (phase("v0.0.0", lifecycle=Lifecycle.REMOVED), phase("v1.0.0", stable=True)),
            Request("Wait", "phase", hint="v0.0.0"),
            VersionRemoved,
            "preferred version",
            id="a removed hint is explicit use",
        ),
        pytest.param(THREE, Request("fn", pin="v1"), VersionNotFound, "three parts", id="a pin must be whole"),
        pytest.param(
            (phase("v2.0.0"),),
            Request("Wait", "phase", default=Default.UNVERSIONED),
            VersionNotFound,
            "no v0.0.0",
            id="only previews",
        ),
    ],
)
def test_what_cannot_be_met_is_refused_by_name(
    versions: tuple[Version, ...], request_: Request, error: type[ResolutionError], text: str
) -> None:
    with pytest.raises(error) as caught:
        resolve(Catalogue(versions), request_)
    assert text in str(caught.value)
    assert caught.value.hint
    assert caught.value.retryable is (error is VersionNotReady)


@pytest.mark.parametrize(
    ("wanted", "suggested"),
    [
        pytest.param("function-greeet", 'did you mean "function-greet"? ', id="a letter too many"),
        pytest.param("greet", 'did you mean "function-greet"? ', id="without its prefix"),
        pytest.param("function-polish", "", id="alike in nothing but the prefix"),
    ],
)
def test_a_typo_gets_a_suggestion(wanted: str, suggested: str) -> None:
    known = [Version("function-greet", "greet-1"), Version("function-python", "python-1")]
    with pytest.raises(FunctionNotFound) as caught:
        resolve(Catalogue(known), Request(wanted))
    assert caught.value.hint == f"{suggested}To see all: planform function list"


def test_with_the_gate_off_the_choice_is_ignored_with_a_warning() -> None:
    resolution = resolve(Catalogue(THREE), Request("fn", ref="fn-1", selectors_enabled=False))
    assert resolution.version.id == "fn-3"
    assert "FunctionRevisionSelectors" in resolution.warnings[0]


def test_deprecated_versions_run_with_a_warning() -> None:
    resolution = resolve(
        Catalogue([phase("v0.0.0", lifecycle=Lifecycle.DEPRECATED, note="removed in 0.4")]),
        Request("Wait", "phase", pin="v0.0.0"),
    )
    assert resolution.warnings == ('version "v0.0.0" is deprecated: removed in 0.4',)


def test_packages_without_capabilities_may_compose() -> None:
    assert resolve(Catalogue([version(1)]), Request("fn", "Composition")).version.id == "fn-1"


VERSIONS = st.lists(
    st.builds(
        version,
        st.integers(1, 6),
        active=st.booleans(),
        ready=st.booleans(),
        reachable=st.booleans(),
        labels=st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy"), max_size=2),
    ),
    unique_by=lambda each: each.number,
    min_size=1,
)
REQUESTS = st.builds(
    Request,
    st.just("fn"),
    ref=st.sampled_from(["", "", "fn-1", "fn-2"]),
    selector=st.none() | st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy"), max_size=2),
)


@given(VERSIONS, REQUESTS, st.randoms())
def test_what_is_chosen_meets_every_constraint_whatever_the_order(
    versions: list[Version], request_: Request, rng: random.Random
) -> None:
    shuffled = versions[:]
    rng.shuffle(shuffled)
    one, other = (
        outcome(lambda: resolve(Catalogue(versions), request_)),
        outcome(lambda: resolve(Catalogue(shuffled), request_)),
    )
    assert one == other
    meets = [
        each
        for each in versions
        if each.active
        and each.reachable
        and (
            each.id == request_.ref
            if request_.ref
            else all(each.labels.get(key) == value for key, value in (request_.selector or {}).items())
        )
    ]
    best = max(meets, key=lambda each: (each.ready, each.number), default=None)
    assert (one == best.id) if best else issubclass(error_of(one), ResolutionError)


def outcome(decide: Callable[[], Any]) -> object:
    try:
        return decide().version.id
    except ResolutionError as error:
        return type(error), str(error)


def error_of(result: object) -> type:
    assert isinstance(result, tuple)
    kind: type = result[0]
    return kind


@pytest.mark.parametrize(
    "ordered", [["1.0.0-alpha", "v1.0.0-alpha.2", "1.0.0-alpha.10", "1.0.0-alpha.b", "1.0.0-rc.1", "1.0.0", "1.0.1"]]
)
def test_versions_are_ordered_as_semver_says(ordered: list[str]) -> None:
    parsed = [parse_semver(text) for text in ordered]
    assert parsed == sorted(parsed, key=lambda each: each or ())


@pytest.mark.parametrize("text", ["", "1", "v1.2", "1.2.3.4", "01.2.3", "a.b.c", "1.2.3-"])
def test_what_is_no_version_is_not_taken_for_one(text: str) -> None:
    assert parse_semver(text) is None
