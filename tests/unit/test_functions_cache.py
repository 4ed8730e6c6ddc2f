"""Which answers are kept, for how long, and which never; and what a step may read."""

from __future__ import annotations

import dataclasses

import pytest

from planform.clock import VirtualClock
from planform.functions.cache import CacheOutcome, Kept, ResponseCache
from planform.functions.read_policy import AllowedResource, Pattern, PatternInvalid
from planform.functions.runner import FunctionRevision
from planform.functions.sending import observed_digest, tag_of
from planform.functions.values import (
    FunctionRequest,
    FunctionResponse,
    Resource,
    ResourceSelector,
    Result,
    Severity,
    State,
)
from planform.telemetry.metrics import MetricsRegistry

PURE = FunctionRevision("fn", "fn-1", "sha256:1", deterministic=True)
OTHER = FunctionRevision("fn", "fn-2", "sha256:2", deterministic=True)
MOODY = FunctionRevision("moody", "moody-1", "sha256:3")
ASKED = FunctionRequest(tag="t")


def answer(tag: str = "t", ttl: float | None = None, *results: Result) -> FunctionResponse:
    return FunctionResponse(tag=tag, ttl=ttl, results=list(results))


@pytest.mark.parametrize(
    ("revision", "request_", "response", "kept"),
    [
        (PURE, ASKED, answer(), Kept.KEPT),
        (PURE, ASKED, answer("t", 0.0), Kept.KEPT),
        (MOODY, ASKED, answer("t", 5.0), Kept.KEPT),
        (MOODY, ASKED, answer(), Kept.NO_TTL),
        (MOODY, ASKED, answer("t", 0.0), Kept.NO_TTL),
        (MOODY, ASKED, answer("t", -1.0), Kept.NO_TTL),
        (PURE, ASKED, answer("u"), Kept.OTHER_TAG),
        (PURE, ASKED, answer(""), Kept.OTHER_TAG),
        (PURE, FunctionRequest(), answer(""), Kept.EMPTY_TAG),
        (PURE, ASKED, answer("t", None, Result(Severity.FATAL, "no")), Kept.FATAL),
        (PURE, ASKED, answer("t", None, Result(Severity.WARNING, "hm")), Kept.KEPT),
    ],
)
def test_only_answers_that_stay_true_are_kept(
    revision: FunctionRevision, request_: FunctionRequest, response: FunctionResponse, kept: Kept
) -> None:
    cache = ResponseCache(VirtualClock())
    assert cache.put(revision, request_, response) is kept
    assert (cache.get(revision, request_)[0] is not None) is (kept is Kept.KEPT)


async def test_an_answer_is_given_with_the_rest_of_its_ttl_until_that_has_passed() -> None:
    clock = VirtualClock()
    cache = ResponseCache(clock)
    cache.put(MOODY, ASKED, answer("t", 60.0))
    await clock.advance(45)
    found, outcome = cache.get(MOODY, ASKED)
    assert found is not None
    assert (found.ttl, outcome) == (15.0, CacheOutcome.HIT)
    await clock.advance(15)
    assert cache.get(MOODY, ASKED) == (None, CacheOutcome.EXPIRED)
    assert cache.get(MOODY, ASKED) == (None, CacheOutcome.NOT_CACHED)
    assert cache.bytes == 0


async def test_a_ttl_beyond_a_day_is_cut_and_a_sweep_drops_only_what_expired() -> None:
    clock = VirtualClock()
    cache = ResponseCache(clock)
    cache.put(MOODY, ASKED, answer("t", 1e9))
    cache.put(PURE, ASKED, answer())
    await clock.advance(24 * 3600)
    assert cache.sweep() == 1
    assert cache.get(PURE, ASKED)[1] is CacheOutcome.HIT


def test_another_revision_never_meets_an_old_answer() -> None:
    cache = ResponseCache(VirtualClock())
    cache.put(PURE, ASKED, answer())
    assert cache.get(OTHER, ASKED) == (None, CacheOutcome.NOT_CACHED)


def test_the_cache_is_bounded_and_forgets_what_was_used_least_lately() -> None:
    cache = ResponseCache(VirtualClock(), max_entries=2)
    for tag in "ab":
        cache.put(PURE, FunctionRequest(tag=tag), answer(tag))
    cache.get(PURE, FunctionRequest(tag="a"))
    cache.put(PURE, FunctionRequest(tag="c"), answer("c"))
    assert [cache.get(PURE, FunctionRequest(tag=tag))[0] is not None for tag in "abc"] == [True, False, True]
    small = ResponseCache(VirtualClock(), max_bytes=2000)
    big = dataclasses.replace(answer(), context={"x": "y" * 3000})
    assert small.put(PURE, ASKED, big) is Kept.TOO_LARGE
    for number in range(20):
        tag = str(number)
        small.put(PURE, FunctionRequest(tag=tag), answer(tag))
    assert small.bytes <= 2000


def test_hits_misses_and_their_reasons_are_counted() -> None:
    metrics = MetricsRegistry()
    cache = ResponseCache(VirtualClock(), metrics=metrics)
    cache.get(PURE, ASKED)
    cache.put(PURE, ASKED, answer())
    cache.get(PURE, ASKED)
    text = metrics.render()
    name = "function_run_function_response_cache_lookups_total"
    assert f'{name}{{function_name="fn",reason="NotCached"}} 1' in text
    assert f'{name}{{function_name="fn",reason="Hit"}} 1' in text
    assert "function_run_function_response_cache_entries 1" in text


def request(**fields: object) -> FunctionRequest:
    return dataclasses.replace(FunctionRequest(), **fields)  # type: ignore[arg-type]


BASE = request(credentials={"aws": {"k": b"1"}}, required_resources={"a": [Resource({"x": 1})]})


@pytest.mark.parametrize(
    "changed",
    [
        request(credentials={"aws": {"k": b"2"}}, required_resources=BASE.required_resources),
        request(credentials=BASE.credentials, required_resources={"a": [Resource({"x": 2})]}),
        request(credentials=BASE.credentials, required_resources={"a": []}),
        dataclasses.replace(BASE, input={"kind": "In"}),
        dataclasses.replace(BASE, context={"a": None}),
        dataclasses.replace(BASE, desired=State(resources={"a": Resource({})})),
        dataclasses.replace(BASE, required_schemas={"a": None}),
        dataclasses.replace(BASE, extra_resources={"a": []}),
    ],
)
def test_everything_that_is_sent_is_in_the_tag(changed: FunctionRequest) -> None:
    digest = observed_digest(State())
    assert tag_of(BASE, digest) == tag_of(dataclasses.replace(BASE), digest)
    assert tag_of(BASE, digest) != tag_of(changed, digest)
    assert tag_of(BASE, digest) != tag_of(BASE, observed_digest(State(Resource({"a": 1}))))


def test_the_order_of_keys_is_not_in_the_tag_and_what_json_cannot_say_gives_none() -> None:
    digest = observed_digest(State())
    one, other = request(context={"a": 1, "b": 2}), request(context={"b": 2, "a": 1})
    assert tag_of(one, digest) == tag_of(other, digest)
    assert tag_of(request(context={"a": object()}), digest) == ""
    assert tag_of(one, observed_digest(State(Resource({"a": 1 << 80})))) == ""


def by_name(name: str) -> ResourceSelector:
    return ResourceSelector("v1", "A", name)


def by_labels(**labels: str) -> ResourceSelector:
    return ResourceSelector("v1", "A", "", labels)


ANY = AllowedResource("v1", "A")
NAMED = AllowedResource("v1", "A", Pattern("app-.*"))
LABELLED = AllowedResource("v1", "A", None, {"env": Pattern("(dev|prod)"), "team": Pattern("*")})


@pytest.mark.parametrize(
    ("entry", "selector", "allowed"),
    [
        (ANY, by_name("x"), True),
        (ANY, by_labels(a="b"), True),
        (ANY, ResourceSelector("v1", "A"), True),
        (ANY, ResourceSelector("v2", "A", "x"), False),
        (ANY, ResourceSelector("v1", "B", "x"), False),
        (NAMED, by_name("app-1"), True),
        (NAMED, by_name("my-app-1"), False),
        (NAMED, by_name("app-1\nx"), False),
        (NAMED, by_labels(a="b"), False),
        (NAMED, ResourceSelector("v1", "A"), False),
        (AllowedResource("v1", "A", Pattern("*")), by_name("anything"), True),
        (AllowedResource("v1", "A", Pattern("a|b")), by_name("bc"), False),
        (LABELLED, by_labels(env="dev", team="x"), True),
        (LABELLED, by_labels(env="dev", team="x", more="y"), True),
        (LABELLED, by_labels(env="develop", team="x"), False),
        (LABELLED, by_labels(env="dev"), False),
        (LABELLED, by_name("x"), False),
        (LABELLED, ResourceSelector("v1", "A"), False),
    ],
)
def test_an_entry_allows_what_it_matches_whole(
    entry: AllowedResource, selector: ResourceSelector, allowed: bool
) -> None:
    assert entry.allows(selector) is allowed


OLD, NEW = (f"apiextensions.crossplane.io/{version}" for version in ("v1alpha1", "v1beta1"))


@pytest.mark.parametrize(("allowed", "asked"), [(OLD, NEW), (NEW, OLD), (OLD, OLD), (NEW, NEW)])
def test_an_environment_config_is_one_kind_in_both_of_its_versions(allowed: str, asked: str) -> None:
    entry = AllowedResource(allowed, "EnvironmentConfig", None, {"env": Pattern("dev")})
    assert entry.allows(ResourceSelector(asked, "EnvironmentConfig", "", {"env": "dev"}))
    assert not entry.allows(ResourceSelector(asked, "EnvironmentConfig", "", {"env": "prod"}))
    assert not entry.allows(ResourceSelector(asked, "Composition", "", {"env": "dev"}))


def test_patterns_take_linear_time_and_broken_ones_are_refused() -> None:
    assert not Pattern("(a+)+b").matches("a" * 5000)
    with pytest.raises(PatternInvalid, match="is not a pattern"):
        Pattern("[")
