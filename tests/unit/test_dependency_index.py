"""The index that turns a change of any object into the XRs to look at again."""

from __future__ import annotations

from typing import Any

import pytest

from planform.api.kinds import gvk
from planform.xrs.dependencies import Dependency, DependencyIndex, Named, Selected, Watched

CONFIG_MAP = gvk("v1", "ConfigMap")
BUCKET = gvk("s3.example.org/v1", "Bucket")


def named(name: str, namespace: str = "home") -> Named:
    return Named("v1", "ConfigMap", namespace, name)


def selected(namespace: str = "", **labels: str) -> Selected:
    return Selected("v1", "ConfigMap", namespace, tuple(sorted(labels.items())))


def config_map(name: str, namespace: str = "home", **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}}


def tracked(**dependencies: Dependency) -> DependencyIndex[str]:
    index = DependencyIndex[str]()
    for xr, dependency in dependencies.items():
        index.track(xr, [dependency])
    return index


def woken(index: DependencyIndex[str], obj: dict[str, Any]) -> list[str]:
    return sorted(index.interested(obj, CONFIG_MAP))


@pytest.mark.parametrize(
    ("dependency", "obj", "wakes"),
    [
        pytest.param(named("a"), config_map("a"), True, id="its name"),
        pytest.param(named("a"), config_map("b"), False, id="another name"),
        pytest.param(named("a"), config_map("a", "away"), False, id="its name in another namespace"),
        pytest.param(named("a", ""), config_map("a"), False, id="a cluster-scoped name, and an object in a namespace"),
        pytest.param(named("a", ""), {"metadata": {"name": "a"}}, True, id="a cluster-scoped object"),
        pytest.param(selected(of="x"), config_map("a", of="x", more="y"), True, id="its labels among others"),
        pytest.param(selected(of="x"), config_map("a", of="y"), False, id="another value of the label"),
        pytest.param(selected(of="x", more="y"), config_map("a", of="x"), False, id="only some of the labels"),
        pytest.param(selected(of="x"), config_map("a", "away", of="x"), True, id="labels in any namespace"),
        pytest.param(selected("home", of="x"), config_map("a", of="x"), True, id="labels in this namespace"),
        pytest.param(selected("home", of="x"), config_map("a", "away", of="x"), False, id="labels in another one"),
        pytest.param(selected(), config_map("a"), True, id="no matcher, and so all of the kind"),
        pytest.param(selected("home"), config_map("a", "away"), False, id="all of a namespace, and another one"),
        pytest.param(Selected(BUCKET.api_version, "Bucket", "", ()), config_map("a"), False, id="all of another kind"),
    ],
)
def test_a_change_wakes_whoever_depends_on_the_object(dependency: Dependency, obj: dict[str, Any], wakes: bool) -> None:
    assert woken(tracked(xr=dependency), obj) == (["xr"] if wakes else [])


def test_another_version_of_the_kind_is_the_same_object() -> None:
    index = tracked(xr=Named("s3.example.org/v1beta1", "Bucket", "", "b"))
    assert list(index.interested({"metadata": {"name": "b"}}, BUCKET)) == ["xr"]


def test_an_xr_that_depends_on_an_object_in_several_ways_is_woken_once() -> None:
    index = DependencyIndex[str]()
    index.track("xr", [named("a"), named("a"), selected(), selected(of="x"), selected("home", of="x")])
    index.track("other", [selected(of="x")])
    assert woken(index, config_map("a", of="x")) == ["other", "xr"]


def test_tracking_replaces_all_that_was_known_of_the_xr_and_of_no_other() -> None:
    index = tracked(one=named("a"), two=named("a"))
    index.track("one", [named("b"), selected(of="x")])
    assert (woken(index, config_map("a")), woken(index, config_map("b", of="x"))) == (["two"], ["one"])
    index.add("one", named("c"))
    assert index.of("one") == {named("b"), named("c"), selected(of="x")}
    index.forget("one")
    index.forget("one")
    assert (woken(index, config_map("b", of="x")), woken(index, config_map("c"))) == ([], [])
    assert (len(index), index.of("one")) == (1, frozenset())


def test_a_kind_is_watched_until_the_last_reference_to_it_goes() -> None:
    index = DependencyIndex[str]()
    assert index.watched() == frozenset()
    index.track("one", [named("a"), selected(of="x")])
    index.track("two", [named("b", "away")])
    everywhere = {Watched(CONFIG_MAP, "")}
    assert index.watched() == everywhere
    index.track("one", [selected(of="x")])
    index.forget("two")
    assert index.watched() == everywhere, "one reference is left"
    index.track("one", [])
    assert index.watched() == frozenset()


def test_secrets_are_watched_only_where_somebody_depends_on_one() -> None:
    index = tracked(one=Named("v1", "Secret", "home", "a"), two=Named("v1", "Secret", "away", "b"))
    assert {each.namespace for each in index.watched()} == {"home", "away"}
    index.forget("two")
    assert {each.namespace for each in index.watched()} == {"home"}
