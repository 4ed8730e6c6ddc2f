"""The index that turns a change of any object into the XRs to look at again."""

from __future__ import annotations

import random
from typing import Any

from planform.api.kinds import gvk
from planform.composition.dependencies import Dependency, DependencyIndex, Named, Selected, Watched

CONFIG_MAP = gvk("v1", "ConfigMap")


def obj(name: str, namespace: str = "here", **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}}


def named(name: str, namespace: str = "here") -> Named:
    return Named("v1", "ConfigMap", namespace, name)


def selected(namespace: str = "", **labels: str) -> Selected:
    return Selected("v1", "ConfigMap", namespace, tuple(sorted(labels.items())))


def woken(index: DependencyIndex[str], *args: Any, **labels: str) -> list[str]:
    return sorted(index.interested(obj(*args, **labels), CONFIG_MAP))


def test_an_xr_is_woken_by_name_by_labels_and_by_all_of_a_kind_in_the_namespaces_it_means() -> None:
    index: DependencyIndex[str] = DependencyIndex()
    index.track("by-name", [named("a")])
    index.track("by-labels", [selected(app="x", tier="1")])
    index.track("here-by-labels", [selected("here", app="x")])
    index.track("all", [selected()])
    index.track("all-there", [selected("there")])
    assert woken(index, "a") == ["all", "by-name"]
    assert woken(index, "a", "there") == ["all", "all-there"]
    assert woken(index, "b", app="x", tier="1") == ["all", "by-labels", "here-by-labels"]
    assert woken(index, "b", "there", app="x", tier="2") == ["all", "all-there"]
    assert not list(index.interested(obj("a"), gvk("v1", "Secret")))


def test_the_version_of_a_kind_does_not_matter_but_its_group_does() -> None:
    index: DependencyIndex[str] = DependencyIndex()
    index.track("xr", [Named("example.org/v1", "Thing", "", "a")])
    thing = {"metadata": {"name": "a"}}
    assert list(index.interested(thing, gvk("example.org/v2", "Thing"))) == ["xr"]
    assert not list(index.interested(thing, gvk("example.com/v1", "Thing")))


def test_an_xr_that_depends_on_an_object_in_several_ways_is_woken_once() -> None:
    index: DependencyIndex[str] = DependencyIndex()
    index.track("xr", [named("a"), selected(app="x"), selected("here"), selected()])
    assert list(index.interested(obj("a", app="x"), CONFIG_MAP)) == ["xr"]


def test_tracking_again_replaces_and_the_last_reference_drops_the_watch() -> None:
    index: DependencyIndex[str] = DependencyIndex()
    index.track("one", [named("a"), named("b")])
    index.track("two", [named("a")])
    assert index.watched() == {Watched(CONFIG_MAP, "")}
    index.track("one", [named("c")])
    assert (woken(index, "a"), woken(index, "b"), woken(index, "c")) == (["two"], [], ["one"])
    index.forget("one")
    assert index.watched() == {Watched(CONFIG_MAP, "")} and len(index) == 1
    index.forget("two")
    index.forget("nobody")
    assert not index.watched() and not len(index) and not index.of("two")


def test_secrets_are_watched_only_in_the_namespaces_that_somebody_means() -> None:
    index: DependencyIndex[str] = DependencyIndex()
    index.track("xr", [Named("v1", "Secret", "here", "a"), Named("v1", "Secret", "there", "a"), named("a")])
    secret = gvk("v1", "Secret")
    assert index.watched() == {Watched(secret, "here"), Watched(secret, "there"), Watched(CONFIG_MAP, "")}


def test_whatever_is_tracked_and_forgotten_the_index_answers_as_a_plain_search_would() -> None:
    rng = random.Random(5)
    index: DependencyIndex[int] = DependencyIndex()
    model: dict[int, frozenset[Dependency]] = {}
    choices: list[Dependency] = [named(name, space) for name in "ab" for space in ("here", "there")]
    choices += [selected(space, **labels) for space in ("", "here") for labels in ({}, {"x": "1"}, {"x": "2"})]
    for _ in range(500):
        xr = rng.randrange(6)
        wanted = frozenset(rng.sample(choices, rng.randrange(4)))
        index.track(xr, wanted)
        model[xr] = wanted
        found = obj(rng.choice("ab"), rng.choice(("here", "there")), x=rng.choice("12"))
        expected = {key for key, each in model.items() if any(_means(one, found["metadata"]) for one in each)}
        assert set(index.interested(found, CONFIG_MAP)) == expected
        assert bool(index.watched()) == any(model.values())


def _means(dependency: Dependency, metadata: dict[str, Any]) -> bool:
    if isinstance(dependency, Named):
        return (dependency.namespace, dependency.name) == (metadata["namespace"], metadata["name"])
    return dependency.namespace in ("", metadata["namespace"]) and all(
        metadata["labels"].get(key) == value for key, value in dependency.labels
    )
