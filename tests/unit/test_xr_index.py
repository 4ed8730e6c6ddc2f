"""What the controller of an XRD remembers of its XRs: who is woken by what, and which changes are its own."""

from __future__ import annotations

from typing import Any

import pytest

from planform.api.kinds import gvk
from planform.client.informer import InformerEvent, ObjectKey
from planform.clock import VirtualClock
from planform.xrs import index as fleets
from planform.xrs.index import ANY_COMPOSITION, Definition, XrIndex

XR = ObjectKey("default", "one")


def a_fleet() -> XrIndex:
    kind = gvk("example.org/v1", "App")
    return XrIndex(Definition("apps.example.org", 1, {}, kind, "modern", namespaced=True), VirtualClock())


def bucket(version: int, name: str = "a") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "resourceVersion": str(version)}
    return {"apiVersion": "example.org/v1", "kind": "Bucket", "metadata": metadata}


def told(version: int, name: str = "a") -> InformerEvent:
    return InformerEvent("MODIFIED", bucket(version, name))


def test_what_is_told_up_to_the_version_that_a_pass_wrote_is_an_echo() -> None:
    xr_index = a_fleet()
    assert not xr_index.is_self_triggered(told(1))
    with xr_index.tracked_write(bucket(1)) as done:
        assert xr_index.is_self_triggered(told(7)), "while it is being written, whatever is told of it"
        done(bucket(5))
    assert xr_index.is_self_triggered(told(5)) and not xr_index.is_self_triggered(told(6))
    assert not xr_index.is_self_triggered(told(5, "another"))


def test_a_write_that_failed_makes_no_echo() -> None:
    xr_index = a_fleet()
    with pytest.raises(ValueError), xr_index.tracked_write(bucket(1)):
        raise ValueError
    assert not xr_index.is_self_triggered(told(1))


def test_of_many_writes_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleets, "_REMEMBERED_WRITES", 2)
    xr_index = a_fleet()
    for name in ("a", "b", "a", "c"):
        with xr_index.tracked_write(bucket(1, name)) as done:
            done(bucket(2, name))
    assert [xr_index.is_self_triggered(told(2, name)) for name in ("a", "b", "c")] == [True, False, True]


def test_an_xr_stays_a_user_of_its_functions_while_it_is_not_known_what_it_runs() -> None:
    xr_index = a_fleet()
    xr_index.follow(XR, "uid", "apps", {"f"})
    xr_index.follow(XR, "uid", ANY_COMPOSITION)
    assert list(xr_index.users(["f"])) == [XR] and not list(xr_index.users(["g"]))
    assert list(xr_index.followers("other")) == [XR], "any may be the one"
    xr_index.follow(XR, "uid", "apps", {"g"})
    assert not list(xr_index.users(["f"])) and list(xr_index.users(["g"])) == [XR]
    assert not list(xr_index.followers("other")) and list(xr_index.followers("apps")) == [XR]
    xr_index.follow(XR, "uid", "apps", ())
    assert not list(xr_index.users(["f", "g"]))
