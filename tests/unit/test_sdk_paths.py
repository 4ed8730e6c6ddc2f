"""Field paths: how they are read and what they reach."""

from __future__ import annotations

from typing import Any

import pytest

from planform_sdk import paths
from planform_sdk.paths import PathError


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("spec", ("spec",)),
        ("spec.ports[0].name", ("spec", "ports", 0, "name")),
        ("metadata.annotations[example.org/team]", ("metadata", "annotations", "example.org/team")),
        ("data['a.b']", ("data", "a.b")),
        ('data["0"]', ("data", "0")),
        ("[0][1]", (0, 1)),
    ],
)
def test_paths_are_split_into_keys_and_indexes(path: str, steps: tuple[str | int, ...]) -> None:
    assert paths.parse(path) == steps


@pytest.mark.parametrize("path", ["", ".a", "a..b", "a.", "a[", "a[]", "a['']", "a[0]b"])
def test_bad_paths_are_refused_by_name(path: str) -> None:
    with pytest.raises(PathError, match="field path"):
        paths.parse(path)


@pytest.mark.parametrize(
    ("path", "found"),
    [("a.b[1].c", 7), ("a.b[5]", "-"), ("a.x.y", "-"), ("a.b.c", "-"), ("n", None), ("m[1]", "one")],
)
def test_what_is_not_there_gives_the_default(path: str, found: Any) -> None:
    value = {"a": {"b": [0, {"c": 7}]}, "n": None, "m": {"1": "one"}}
    assert paths.get(value, path, "-") == found


def test_setting_makes_the_way() -> None:
    value: dict[str, Any] = {"gone": None}
    paths.set(value, "spec.ports[0].name", "http")
    paths.set(value, "spec.ports[0].port", 80)
    paths.set(value, "spec.ports[1]", {})
    paths.set(value, "gone.back", 1)
    assert value == {"spec": {"ports": [{"name": "http", "port": 80}, {}]}, "gone": {"back": 1}}


@pytest.mark.parametrize("path", ["a[1]", "s.x", "a.key"])
def test_setting_what_cannot_be_is_refused(path: str) -> None:
    with pytest.raises(PathError, match="cannot put"):
        paths.set({"a": [], "s": "text"}, path, 1)


def test_deleting_removes_what_is_there_and_ignores_what_is_not() -> None:
    value = {"a": {"b": 1, "c": [1, 2]}}
    for path in ("a.b", "a.c[0]", "a.c[9]", "x.y"):
        paths.delete(value, path)
    assert value == {"a": {"c": [2]}}


def test_merging_goes_into_objects_and_replaces_the_rest() -> None:
    value = {"a": {"x": 1, "l": [1]}, "s": 1}
    paths.merge(value, {"a": {"y": 2, "l": [2]}, "s": {"t": 1}})
    assert value == {"a": {"x": 1, "y": 2, "l": [2]}, "s": {"t": 1}}
