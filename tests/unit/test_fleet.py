"""What the controller of an XRD remembers of its XRs: who is woken by what, and which changes are its own."""

from __future__ import annotations

from typing import Any

import pytest

from planform.api.kinds import gvk
from planform.client.informer import Change, ObjectKey
from planform.clock import VirtualClock
from planform.controllers.composites import fleet as fleets
from planform.controllers.composites.fleet import ANY_COMPOSITION, Definition, Fleet

XR = ObjectKey("default", "one")


def a_fleet() -> Fleet:
    kind = gvk("example.org/v1", "App")
    return Fleet(Definition("apps.example.org", 1, {}, kind, "modern", namespaced=True), VirtualClock())


def bucket(version: int, name: str = "a") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "resourceVersion": str(version)}
    return {"apiVersion": "example.org/v1", "kind": "Bucket", "metadata": metadata}


def told(version: int, name: str = "a") -> Change:
    return Change("MODIFIED", bucket(version, name))


def test_what_is_told_up_to_the_version_that_a_pass_wrote_is_an_echo() -> None:
    fleet = a_fleet()
    assert not fleet.is_echo(told(1))
    with fleet.own_write(bucket(1)) as done:
        assert fleet.is_echo(told(7)), "while it is being written, whatever is told of it"
        done(bucket(5))
    assert fleet.is_echo(told(5)) and not fleet.is_echo(told(6))
    assert not fleet.is_echo(told(5, "another"))


def test_a_write_that_failed_makes_no_echo() -> None:
    fleet = a_fleet()
    with pytest.raises(ValueError), fleet.own_write(bucket(1)):
        raise ValueError
    assert not fleet.is_echo(told(1))


def test_of_many_writes_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleets, "_REMEMBERED_WRITES", 2)
    fleet = a_fleet()
    for name in ("a", "b", "a", "c"):
        with fleet.own_write(bucket(1, name)) as done:
            done(bucket(2, name))
    assert [fleet.is_echo(told(2, name)) for name in ("a", "b", "c")] == [True, False, True]


def test_an_xr_stays_a_user_of_its_functions_while_it_is_not_known_what_it_runs() -> None:
    fleet = a_fleet()
    fleet.follow(XR, "uid", "apps", {"f"})
    fleet.follow(XR, "uid", ANY_COMPOSITION)
    assert list(fleet.users(["f"])) == [XR] and not list(fleet.users(["g"]))
    assert list(fleet.followers("other")) == [XR], "any may be the one"
    fleet.follow(XR, "uid", "apps", {"g"})
    assert not list(fleet.users(["f"])) and list(fleet.users(["g"])) == [XR]
    assert not list(fleet.followers("other")) and list(fleet.followers("apps")) == [XR]
    fleet.follow(XR, "uid", "apps", ())
    assert not list(fleet.users(["f", "g"]))
