"""Writes that leave parts of an object alone share these with the stored one: nobody may ever notice.

The same writes go to two engines, of which one shares nothing. Both must answer and store the same.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import orjson
import pytest

from planform.api.kinds import GroupVersionKind
from planform.apimachinery.merging import share_unchanged
from planform.apiserver.admission.chain import Admission
from planform.apiserver.local import LocalClient
from planform.apiserver.verbs import applies, writes
from planform.client.protocol import Patch, PatchType
from planform.clock import VirtualClock
from planform.errors import ApiError
from planform.store import Key
from tests.harness.embedded import Embedded, embedded_engine, version, widget_crd

Object = dict[str, Any]
WIDGET = GroupVersionKind("example.org", "v1", "Widget")
TEXT: Object = {"type": "string", "pattern": "^[a-z]*$"}
NAMED: Object = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "v": TEXT, "n": {"type": "integer", "default": 1}},
}


def spec(*, tight: bool) -> Object:
    """What a Widget's spec has; the tight one refuses some of what the other took."""
    text = TEXT | ({"maxLength": 2} if tight else {})
    list_map = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    return {
        "text": text,
        "maybe": {"type": "string", "nullable": True},
        "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
        "struct": {
            "type": "object",
            "properties": {
                "text": text,
                "n": {"type": "integer", "default": 3},
                "flag": {"type": "boolean"},
                "ratio": {"type": "integer" if tight else "number"},
            },
            "default": {},
        },
        "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"text": text}}},
        "named": {"type": "array", "items": NAMED, **list_map},
        "atom": {"type": "array", "items": {"type": "object", "properties": {"text": text}}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "ruled": {
            "type": "object",
            "properties": {"low": {"type": "integer"}, "high": {"type": "integer"}},
            "x-kubernetes-validations": [
                {"rule": "!has(self.low) || !has(self.high) || self.low <= self.high", "message": "upside down"},
                {"rule": "!has(oldSelf.low) || has(self.low)", "message": "low stays"},
            ],
        },
    }


class Author:
    """Makes up writes for one object, some of them wrong."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def value(self, name: str) -> Any:
        draw = self.draw
        if draw.random() < 0.06:
            return draw.choice((None, 1, 1.0, True, "X", [], {}, {"zork": 1}, [None]))
        text = draw.choice(("", "a", "bc", "def"))
        match name:
            case "text" | "maybe" | "mode":
                return text if name != "mode" else draw.choice("ab")
            case "struct":
                numbers = {"n": draw.choice((1, 1, 2.0, True)), "ratio": draw.choice((1, 1.0, 2.5))}
                return self.some({"text": text, "flag": draw.choice((True, False)), **numbers})
            case "map":
                return {key: self.some({"text": text, "zork": 1}) for key in draw.sample("xy", draw.randint(0, 2))}
            case "named":
                return [
                    {"name": key, **self.some({"v": text, "n": 2})} for key in draw.sample("pqr", draw.randint(0, 3))
                ]
            case "atom":
                return [self.some({"text": text}) for _ in range(draw.randint(0, 2))]
            case "ruled":
                return self.some({"low": draw.randint(0, 2), "high": draw.randint(0, 2)})
        return {key: draw.choice((1, True, 1.0, "1", None, {"deep": [1, {}]}, [1])) for key in draw.sample("xyz", 2)}

    def some(self, fields: Object) -> Object:
        return {name: value for name, value in fields.items() if self.draw.random() < 0.6}

    def spec(self, maximum: int) -> Object:
        return {
            name: self.value(name) for name in self.draw.sample(list(spec(tight=False)), self.draw.randint(0, maximum))
        }

    def metadata(self) -> Object:
        return self.some({"labels": self.some({"a": "b", "c": "d"}), "annotations": {"x": self.draw.choice("12")}})

    def json_patch(self) -> list[Object]:
        name, other = self.draw.sample(list(spec(tight=False)), 2)
        source, target = f"/spec/{name}", f"/spec/{other}"
        return [
            self.draw.choice(
                (
                    {"op": "add", "path": target, "value": self.value(other)},
                    {"op": "remove", "path": target},
                    {"op": "move", "from": source, "path": "/spec/free/moved"},
                    {"op": "copy", "from": source, "path": "/spec/free/copied"},
                    {"op": "copy", "from": "/spec/struct", "path": "/spec/map/z"},
                    {"op": "move", "from": "/spec/struct", "path": "/spec/map/z"},
                    {"op": "add", "path": "/spec/atom/-", "value": {"text": "a"}},
                    {"op": "replace", "path": "/metadata/labels", "value": {"e": "f"}},
                )
            )
            for _ in range(self.draw.randint(1, 2))
        ]


async def write(client: LocalClient, seed: int, stored: Object) -> Object:
    """One write, decided by the seed and by what is stored."""
    author = Author(seed)
    name, manager = stored["metadata"]["name"], author.draw.choice("uv")
    subresource = author.draw.choice(("", "", "status"))
    part = {"status": {"x": author.value("free")}} if subresource else {"spec": author.spec(3)}
    config: Object = {
        "apiVersion": "example.org/v1",
        "kind": "Widget",
        "metadata": {"name": name, "namespace": "default"},
    }
    match author.draw.choice(("merge", "merge", "json", "update", "update", "apply", "apply")):
        case "merge":
            patch = Patch(PatchType.MERGE, {"metadata": author.metadata(), **part})
        case "json":
            patch = Patch(PatchType.JSON, author.json_patch())
        case "update":
            sent = copy.deepcopy(stored)
            sent["metadata"] |= author.metadata()
            for place, value in part.items():
                sent[place] = {**(sent.get(place) or {}), **value}
            return await client.update(sent, subresource=subresource, manager=manager)
        case _:
            config["metadata"] |= author.metadata() if not subresource else {}
            force = author.draw.random() < 0.7
            return await client.apply(config | part, manager=manager, force=force, subresource=subresource)
    return await client.patch(WIDGET, name, patch, namespace="default", subresource=subresource, manager=manager)


async def said(client: LocalClient, seed: int, stored: Object) -> tuple[Object | None, str]:
    try:
        obj = await write(client, seed, stored)
    except ApiError as error:
        return None, f"{type(error).__name__}: {error} {error.details}"
    return obj, encoded(obj)


def encoded(obj: Object) -> str:
    """Its bytes, but for what differs between any two engines."""
    metadata = {name: value for name, value in obj["metadata"].items() if name not in ("uid", "resourceVersion")}
    return orjson.dumps({**obj, "metadata": metadata}).decode()


def stored_in(engine: Embedded, name: str) -> Object:
    entry = engine.core.store.head(Key("widgets.example.org", "default", name))
    assert entry is not None
    obj: Object = orjson.loads(entry.value)
    return obj


def spoil(value: Any) -> None:
    """Change whatever can be changed in an answer: it is the caller's."""
    if isinstance(value, dict):
        for below in value.values():
            spoil(below)
        value["spoilt"] = True
    elif isinstance(value, list):
        for below in value:
            spoil(below)
        value.append("spoilt")


@pytest.mark.parametrize("block", range(3))
async def test_an_engine_that_shares_answers_and_stores_like_one_that_does_not(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sharing = True
    really_may = writes.may_share
    for module in (writes, applies):
        monkeypatch.setattr(module, "may_share", lambda served, entry: sharing and really_may(served, entry))
    outcomes: Counter[str] = Counter()
    async with AsyncExitStack() as stack:
        one, other = [await stack.enter_async_context(embedded_engine(clock=VirtualClock())) for _ in range(2)]
        for tight in (False, True):
            for engine in (one, other):
                await engine.establish(widget_crd(version("v1", spec(tight=tight))))
            for number in range(12):
                name = f"w{number}"
                start = {"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {}}
                if not tight:
                    for engine in (one, other):
                        await engine.client.create(start | {"metadata": {"name": name, "namespace": "default"}})
                for step in range(15):
                    seed = hash((block, tight, number, step))
                    sharing = True
                    obj, found = await said(one.client, seed, stored_in(one, name))
                    sharing = False
                    _, expected = await said(other.client, seed, stored_in(other, name))
                    assert found == expected, (block, tight, number, step)
                    spoil(obj)
                    assert encoded(stored_in(one, name)) == encoded(stored_in(other, name))
                    outcomes["ok" if obj else found.split(":")[0]] += 1
    assert outcomes["ok"] > 150 and outcomes["Invalid"] > 10


async def test_what_an_older_schema_admitted_is_brought_into_shape_and_no_longer_owned() -> None:
    def struct(*, nullable: bool) -> Object:
        properties = {"maybe": {"type": "string", "nullable": nullable}, "text": {"type": "string"}}
        return {"struct": {"type": "object", "properties": properties}}

    async with embedded_engine() as engine:
        await engine.establish(widget_crd(version("v1", struct(nullable=True))))
        metadata = {"name": "w", "namespace": "default"}
        spec = {"struct": {"maybe": None, "text": "a"}}
        obj = {"apiVersion": "example.org/v1", "kind": "Widget", "metadata": metadata, "spec": spec}
        made = await engine.client.create(obj)
        assert made["spec"] == spec
        await engine.establish(widget_crd(version("v1", struct(nullable=False))))
        patch = Patch(PatchType.MERGE, {"metadata": {"labels": {"a": "b"}}})
        after = await engine.client.patch(WIDGET, "w", patch, namespace="default", manager="other")
        assert after["spec"] == {"struct": {"text": "a"}}
        assert after["metadata"]["generation"] == 2
        owned = {entry["manager"]: entry["fieldsV1"] for entry in after["metadata"]["managedFields"]}
        assert owned["planform"]["f:spec"] == {".": {}, "f:struct": {".": {}, "f:text": {}}}


async def test_what_a_plugin_puts_into_the_metadata_counts_as_written() -> None:
    class Marks:
        def admit(self, admission: Admission, /) -> None:
            if admission.new is not None:
                admission.new["metadata"]["annotations"] = {"marked": admission.operation}

    async with embedded_engine() as engine:
        await engine.establish(widget_crd(version("v1", spec(tight=False))))
        for sort in ("update", "patch"):
            engine.core.admission = ()
            metadata = {"name": sort, "namespace": "default"}
            obj = {"apiVersion": "example.org/v1", "kind": "Widget", "metadata": metadata, "spec": {"text": "a"}}
            stored = await engine.client.create(obj)
            engine.core.admission = (Marks(),)
            if sort == "update":
                after = await engine.client.update(stored, manager="marker")
            else:
                nothing = Patch(PatchType.MERGE, {})
                after = await engine.client.patch(WIDGET, sort, nothing, namespace="default", manager="marker")
            assert after["metadata"]["annotations"] == {"marked": "UPDATE"}
            owned = {entry["manager"]: entry["fieldsV1"] for entry in after["metadata"]["managedFields"]}
            assert owned["marker"] == {"f:metadata": {"f:annotations": {".": {}, "f:marked": {}}}}


async def test_what_a_json_patch_copies_is_pruned_only_where_it_is_unknown() -> None:
    async with embedded_engine() as engine:
        await engine.establish(widget_crd(version("v1", spec(tight=False))))
        metadata = {"name": "w", "namespace": "default"}
        obj = {"apiVersion": "example.org/v1", "kind": "Widget", "metadata": metadata, "spec": {"map": {}}}
        await engine.client.create(obj)
        patch = Patch(PatchType.JSON, [{"op": "copy", "from": "/spec/struct", "path": "/spec/map/x"}])
        after = await engine.client.patch(WIDGET, "w", patch, namespace="default")
        assert after["spec"] == {"map": {"x": {}}, "mode": "a", "struct": {"n": 3}}


def _containers(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict):
        yield path, value
        for name, below in value.items():
            yield from _containers(below, (*path, name))
    elif isinstance(value, list):
        yield path, value


def test_all_that_is_the_same_is_shared_and_nothing_else() -> None:
    for seed in range(300):
        author = Author(seed)
        old = {"spec": author.spec(6)}
        new = copy.deepcopy(old)
        new["spec"] |= author.spec(2)
        expected, before = orjson.dumps(new), orjson.dumps(old)
        share_unchanged(old, new)
        assert orjson.dumps(new) == expected and orjson.dumps(old) == before
        known = dict(_containers(old))
        for path, part in _containers(new):
            same = path in known and orjson.dumps(part) == orjson.dumps(known[path])
            assert (part is known.get(path)) == same or not path
