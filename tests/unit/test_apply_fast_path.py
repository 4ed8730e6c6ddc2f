"""Stating about the same fields again: where the short way answers, the general one leads to the same bytes."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from planform.apimachinery import apply as ssa
from planform.apimachinery import last_applied
from planform.apimachinery import managed_fields as mf
from planform.apimachinery.apply_fast_path import claim, fast_apply, overlap
from planform.apimachinery.typed import TypedError, compile_type, fits, type_errors
from planform.errors import ApplyConflict, BadRequest
from tests.harness.embedded import embedded_engine, version, widget_crd

Object = dict[str, Any]
VERSION = "example.org/v1"
TEXT: Object = {"type": "string"}
ITEM: Object = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": TEXT,
        "v": TEXT,
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
        "deep": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
}
PORT: Object = {
    "type": "object",
    "required": ["port"],
    "properties": {"port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}, "name": TEXT},
}
SPEC: Object = {
    "text": TEXT,
    "count": {"type": "integer"},
    "ratio": {"type": "number"},
    "flag": {"type": "boolean"},
    "either": {"x-kubernetes-int-or-string": True},
    "struct": {"type": "object", "properties": {"x": TEXT, "y": TEXT}},
    "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"x": TEXT}}},
    "sets": {
        "type": "object",
        "additionalProperties": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
    },
    "atomMap": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "number"}},
    "atom": {"type": "array", "items": {"type": "number"}},
    "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"x-kubernetes-int-or-string": True}},
    "list": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": ITEM,
    },
    "ports": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["port", "protocol"],
        "items": PORT,
    },
    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}
SCHEMA: Object = {
    "type": "object",
    "properties": {
        "spec": {"type": "object", "properties": SPEC},
        "status": {
            "type": "object",
            "properties": {"list": SPEC["list"], "free": SPEC["free"], "count": SPEC["count"]},
        },
    },
}
NODE = compile_type(SCHEMA)
SCALARS = (0, 1, 2, 1.0, 2.5, True, False, "", "1", "a", "ä\ud7ff")
MANAGERS = ("a", "b", last_applied.KUBECTL)


class Author:
    """Writes configurations: new ones, and the last one of a manager with other values, with fewer fields or more, or
    with something odd in it."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def config(self, subresource: str) -> Object:
        fields = ("list", "free", "count") if subresource else tuple(SPEC)
        chosen = self.draw.sample(fields, self.draw.randint(1, min(4, len(fields))))
        part = {name: self.value(name) for name in chosen}
        config = {"apiVersion": VERSION, "kind": "Widget", "metadata": {"name": "w"}}
        return config | ({"status": part} if subresource else {"metadata": self.metadata(), "spec": part})

    def metadata(self) -> Object:
        metadata: Object = {"name": "w"}
        if self.odds(0.3):
            metadata["labels"] = {self.draw.choice("xy"): self.text()}
        if self.odds(0.2):
            metadata["finalizers"] = self.draw.sample(("f/1", "f/2"), 1)
        if self.odds(0.2):
            metadata["ownerReferences"] = [{"uid": self.draw.choice("12"), "name": self.text(), "controller": True}]
        if self.odds(0.2):
            metadata["uid"] = "u"
        return metadata

    def value(self, name: str) -> Any:
        draw = self.draw
        match name:
            case "text":
                return self.text()
            case "count":
                return draw.choice((0, 1, 2, 1.0))
            case "ratio":
                return draw.choice((0, 1, 1.0, 2.5))
            case "flag":
                return draw.choice((True, False))
            case "either":
                return draw.choice((0, 1, 1.0, "a", "1"))
            case "struct":
                return {key: self.text() for key in draw.sample("xy", draw.randint(0, 2))}
            case "map":
                return {key: {"x": self.text()} if self.odds(0.7) else {} for key in draw.sample("xy", 1)}
            case "sets":
                return {key: draw.sample("ab", draw.randint(0, 2)) for key in draw.sample("xy", 1)}
            case "atomMap":
                return {key: draw.choice((1, 1.0, 2)) for key in draw.sample("xy", draw.randint(0, 2))}
            case "atom":
                return [draw.choice((1, 1.0, 2)) for _ in range(draw.randint(0, 2))]
            case "set":
                return draw.sample(("a", "b", 1), draw.randint(0, 2))
            case "list":
                return [self.item(key) for key in draw.sample("pqr", draw.randint(0, 3))]
            case "ports":
                return [self.port(number) for number in draw.sample((1, 2), draw.randint(0, 2))]
        return {key: self.anything(2) for key in draw.sample("xyz", draw.randint(0, 2))}

    def item(self, key: str) -> Object:
        item: Object = {"name": key}
        if self.odds(0.6):
            item["v"] = self.text()
        if self.odds(0.3):
            item["tags"] = self.draw.sample("ab", self.draw.randint(0, 2))
        if self.odds(0.3):
            item["deep"] = {"n": self.draw.choice((1, 2))}
        return item

    def port(self, number: int) -> Object:
        return {"port": number} | self.draw.choice(
            ({}, {"protocol": "TCP"}, {"protocol": "UDP"}, {"name": self.text()})
        )

    def anything(self, depth: int) -> Any:
        if depth and self.odds(0.5):
            if self.odds(0.4):
                return [self.anything(depth - 1) for _ in range(self.draw.randint(0, 2))]
            return {key: self.anything(depth - 1) for key in self.draw.sample("xy", self.draw.randint(0, 2))}
        return self.draw.choice((*SCALARS, None))

    def text(self) -> str:
        return self.draw.choice(("1", "2", "3"))

    def odds(self, probability: float) -> bool:
        return self.draw.random() < probability

    def again(self, config: Object) -> Object:
        """The same fields, most of them with the same values."""
        return orjson.loads(orjson.dumps(self._again(copy.deepcopy(config), ())))  # type: ignore[no-any-return]

    def _again(self, value: Any, path: tuple[str, ...]) -> Any:
        if isinstance(value, dict):
            return {name: self._again(below, (*path, name)) for name, below in value.items()}
        if isinstance(value, list):
            items = [self._again(item, (*path, "[]")) for item in value]
            return items if self.odds(0.9) else items[::-1]
        keys = ("name", "port", "protocol", "uid", "apiVersion", "kind")
        if path[-1] in keys or "set" in path or "tags" in path or "finalizers" in path or self.odds(0.7):
            return value
        if "free" in path:
            return self.draw.choice(SCALARS)
        if isinstance(value, bool):
            return self.draw.choice((True, False))
        if isinstance(value, (int, float)):
            return self.draw.choice((value, float(value), value + 1))
        return self.text() if isinstance(value, str) else value

    def less(self, config: Object) -> Object:
        """Without some of its fields and items."""
        places = [place for part in ("metadata", "spec", "status") for place in _containers(config.get(part))]
        for _ in range(self.draw.randint(1, 3)):
            place = self.draw.choice(places)
            if isinstance(place, list) and place:
                place.pop(self.draw.randrange(len(place)))
            elif names := [name for name in place if name not in ("name", "port", "uid")]:
                del place[self.draw.choice(names)]
        return config

    def more(self, config: Object, subresource: str) -> Object:
        """With more fields, and with more items in its lists."""
        return self._more(config, self.config(subresource))  # type: ignore[no-any-return]

    def _more(self, value: Any, other: Any) -> Any:
        if isinstance(value, dict) and isinstance(other, dict):
            return {**other, **{name: self._more(below, other.get(name)) for name, below in value.items()}}
        if isinstance(value, list) and isinstance(other, list) and self.odds(0.5):
            return [*value, *(item for item in other if item not in value)]
        return value

    def odd(self, config: Object) -> Object:
        """Something that may be wrong, at a place that exists."""
        places = list(_containers(config))
        place = self.draw.choice(places)
        oddity = self.draw.choice(
            (None, {}, [], "x", 1, True, 1e300, {"zork": 1}, [None], 2**70, float("nan"), "\ud800")
        )
        if isinstance(place, list):
            place.insert(0, oddity)
        elif place and self.odds(0.4):
            del place[self.draw.choice(list(place))]
        else:
            place[self.draw.choice([*place, "zork"])] = oddity
        return config

    def rewrite_ownership(self, live: Object) -> None:
        """As a client may: some owner has more or fewer fields, or last wrote in another version."""
        if not live["metadata"].get("managedFields"):
            return
        entry = self.draw.choice(live["metadata"]["managedFields"])
        if self.odds(0.2):
            entry["apiVersion"] = "example.org/v0"
        places = [place for place in _containers(entry["fieldsV1"]) if place] or [entry["fieldsV1"]]
        place = self.draw.choice(places)
        element = self.draw.choice(list(place) or ["f:spec"])
        if len(place) > 1 and self.odds(0.4):
            del place[element]
        else:
            place[self.draw.choice((".", "f:x", "f:name", element))] = self.draw.choice(({}, {"f:x": {}}))
        entry["fieldsV1"] = mf.decode(entry["fieldsV1"])


def _containers(value: Any) -> Iterator[Any]:
    if isinstance(value, (dict, list)):
        yield value
        for below in value.values() if isinstance(value, dict) else value:
            yield from _containers(below)


def outcome(live: Object | None, config: Object, **options: Any) -> tuple[Object | None, str]:
    """The object, and everything that can be read off the call: its bytes, or the refusal with all it says."""
    before = repr((live, config))
    try:
        result = ssa.apply(live, config, node=NODE, api_version=VERSION, status_subresource=True, **options)
        said = orjson.dumps(result).decode()
    except (ApplyConflict, TypedError, TypeError, ValueError, AttributeError) as error:
        result, said = None, f"{type(error).__name__}: {error} {getattr(error, 'details', '')}"
    assert repr((live, config)) == before, "an input was changed"
    return result, said


class Short:
    """The short ways, which can be closed, and how often one of them led somewhere."""

    def __init__(self) -> None:
        self.answered = 0
        self.closed = False

    def fast_apply(self, *args: Any) -> Any:
        return None if self.closed else self._noted(fast_apply(*args))

    def claim(self, *args: Any) -> Any:
        return None if self.closed else claim(*args)

    def _noted(self, found: Any) -> Any:
        self.answered += found is not None
        return found


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Short:
    made = Short()
    monkeypatch.setattr(ssa, "fast_apply", made.fast_apply)
    monkeypatch.setattr(ssa, "claim", made.claim)
    return made


@pytest.mark.parametrize("block", range(4))
def test_the_short_way_leads_where_the_general_one_does(block: int, short: Short) -> None:
    seen: Counter[str] = Counter()
    for seed in range(block * 100, block * 100 + 100):
        author = Author(seed)
        live: Object | None = None
        last: dict[tuple[str, str], Object] = {}
        for step in range(20):
            manager = author.draw.choice(MANAGERS)
            subresource = author.draw.choice(("", "", "status")) if live else ""
            config = last.get((manager, subresource))
            sort = author.draw.choice(("new", "odd", "again", "again", "less", "less", "more")) if config else "new"
            if sort == "new" or config is None:
                others = [known for (_, place), known in last.items() if place == subresource]
                own = not others or author.odds(0.5)  # else both want the same, and own it together
                config = author.config(subresource) if own else copy.deepcopy(author.draw.choice(others))
            else:
                config = author.again(config)
                if sort == "odd":
                    config = author.odd(config)
                elif sort == "less":
                    config = author.less(config)
                elif sort == "more":
                    config = author.more(config, subresource)
            options = {
                "manager": manager,
                "subresource": subresource,
                "force": author.odds(0.6),
                "now": f"t{step}",
                "sets_fit": True,
            }
            answered = short.answered
            result, said = outcome(live, config, **options)
            shared, said_sharing = outcome(live, config, **options, share=True)
            seen[f"{sort} {'restated' if short.answered > answered else 'merged'} {'ok' if result else 'refused'}"] += 1
            short.closed = True
            _, expected = outcome(live, config, **options)
            short.closed = False
            assert said == expected == said_sharing, (seed, step)
            if not said.startswith("TypeError"):
                assert fits(NODE, config) is (not type_errors(NODE, config)), (seed, step)
            mine = {id(part) for part in _containers(config)}
            assert not any(id(part) in mine for part in _containers(shared)), (
                "the result has parts of the configuration"
            )
            if result is None:
                continue
            live = orjson.loads(said)
            if sort != "odd":
                last[manager, subresource] = config
            if author.odds(0.15):
                live = _updated(author, live, f"t{step}")
            if author.odds(0.15):
                author.rewrite_ownership(live)
    for sort in ("new", "again", "less", "more"):
        assert seen[f"{sort} restated ok"] > 30 and seen[f"{sort} merged ok"], seen  # or this proves little
    assert seen["again restated refused"] and seen["odd merged refused"]


def _updated(author: Author, live: Object, now: str) -> Object:
    """Somebody else changes the object in another way, and becomes an owner."""
    new: Object = orjson.loads(orjson.dumps(author._again(live, ("",))))
    new["metadata"]["managedFields"] = live["metadata"].get("managedFields", [])
    if author.odds(0.3):
        sent = {"apiVersion": VERSION, "spec": new.get("spec", {})}
        new["metadata"]["annotations"] = {last_applied.ANNOTATION: orjson.dumps(sent).decode()}
    new["metadata"]["managedFields"] = ssa.track_update(
        live, new, node=NODE, manager="u", api_version=VERSION, now=now, status_subresource=True, sets_fit=True
    )
    return new


def widget(spec: Object, **metadata: Any) -> Object:
    return {"apiVersion": VERSION, "kind": "Widget", "metadata": {"name": "w", **metadata}, "spec": spec}


P = 'k:{"name":"p"}'
ITEM_P: Object = {".": {}, "f:name": {}, "f:v": {}}


def test_fields_that_are_owned_already_get_their_new_values() -> None:
    live = widget({"text": "1", "list": [{"name": "p", "v": "1"}], "free": {"x": {"y": 1}}, "count": 1}, uid="u")
    config = widget({"text": "2", "list": [{"name": "p", "v": "1"}], "free": {"x": {"y": True}}})
    owned = {"f:spec": {"f:free": {"f:x": {".": {}, "f:y": {}}}, "f:list": {P: ITEM_P}, "f:text": {}}}
    found = fast_apply(NODE, live, config, owned)
    assert found is not None
    after, written, claimed = found
    assert after == widget({**config["spec"], "count": 1}, uid="u")
    assert written == {"f:spec": {"f:free": {"f:x": {"f:y": {}}}, "f:text": {}}}
    assert claimed is owned
    assert after["spec"]["list"] is live["spec"]["list"]


def test_fields_and_items_that_are_not_stated_again_go_and_new_ones_come() -> None:
    live = widget({"text": "1", "count": 1, "list": [{"name": "q", "v": "1"}, {"name": "p", "v": "1"}], "atom": [1]})
    config = widget({"list": [{"name": "p"}, {"name": "r", "v": "1"}], "atom": [1], "struct": {"x": "1"}})
    items = {P: ITEM_P, 'k:{"name":"q"}': ITEM_P}
    found = fast_apply(NODE, live, config, {"f:spec": {"f:atom": {}, "f:count": {}, "f:list": items}})
    assert found is not None
    after, written, claimed = found
    assert after == widget({**config["spec"], "text": "1"})
    gone: Object = {'k:{"name":"q"}': {}, P: {"f:v": {}}, 'k:{"name":"r"}': {}}
    assert written == {"f:spec": {"f:count": {}, "f:list": gone, "f:struct": {}}}
    items = {P: {".": {}, "f:name": {}}, 'k:{"name":"r"}': ITEM_P}
    assert claimed == {"f:spec": {"f:atom": {}, "f:list": items, "f:struct": {"f:x": {}}}} == claim(NODE, config)
    assert after["spec"]["atom"] is live["spec"]["atom"]


def test_a_list_below_an_undeclared_name_is_claimed_itself() -> None:
    live = config = widget({"sets": {"x": ["a"]}})
    owned: Object = {"f:spec": {"f:sets": {"f:x": {".": {}, 'v:"a"': {}}}}}
    assert fast_apply(NODE, live, config, {}) == (live, {}, owned)
    found = fast_apply(NODE, live, config, owned)
    assert found is not None and found[2] is owned


def test_sets_overlap_at_a_place_that_was_written_or_below_it() -> None:
    owned: Object = {"f:spec": {"f:struct": {"f:x": {}}, "f:text": {}}}
    taking: list[Object] = [{"f:spec": {"f:struct": {}}}, {"f:spec": {"f:text": {}}}, {"f:spec": {}}]
    assert all(overlap(owned, written) for written in taking)
    leaving: list[Object] = [{}, {"f:status": {}}, {"f:spec": {"f:struct": {"f:y": {}}, "f:text": {"f:x": {}}}}]
    assert not any(overlap(owned, written) for written in leaving)


LEFT_ALONE: dict[str, tuple[Object, Object, Object]] = {
    "the last field of a structure": ({"struct": {"x": "1"}}, {"struct": {}}, {"f:struct": {"f:x": {}}}),
    "a field that went without its item": (
        {"list": [{"name": "p", "v": "1"}, {"name": "q", "v": "1"}]},
        {"list": [{"name": "p", "v": "1"}]},
        {"f:list": {P: ITEM_P, 'k:{"name":"q"}': {"f:v": {}}}},
    ),
    "new items before those that are there": (
        {"list": [{"name": "p", "v": "1"}]},
        {"list": [{"name": "q"}, {"name": "p", "v": "1"}]},
        {"f:list": {P: ITEM_P}},
    ),
    "an item less that is gone already": (
        {"list": [{"name": "p", "v": "1"}]},
        {"list": [{"name": "p", "v": "1"}]},
        {"f:list": {P: ITEM_P, 'k:{"name":"q"}': ITEM_P}},
    ),
    "a field less that is gone already": ({"text": "1"}, {"text": "2"}, {"f:count": {}, "f:text": {}}),
    "an empty list less": ({"set": [], "text": "1"}, {"text": "1"}, {"f:set": {"v:1": {}}, "f:text": {}}),
    "a field that is gone": ({}, {"text": "2"}, {"f:text": {}}),
    "a field of the wrong type": ({"text": "1"}, {"text": 1}, {"f:text": {}}),
    "an undeclared field": ({"zork": "1"}, {"zork": "1"}, {"f:zork": {}}),
    "null": ({"text": "1"}, {"text": None}, {"f:text": {}}),
    "a value where it owns what is below": ({"text": "1"}, {"text": "1"}, {"f:text": {"f:x": {}}}),
    "a value where a map is": ({"free": {"x": {"y": 1}}}, {"free": {"x": 1}}, {"f:free": {"f:x": {}}}),
    "a map where a value is": ({"free": {"x": 1}}, {"free": {"x": {}}}, {"f:free": {"f:x": {}}}),
    "items in another order": (
        {"list": [{"name": "p", "v": "1"}, {"name": "q", "v": "1"}]},
        {"list": [{"name": "q", "v": "1"}, {"name": "p", "v": "1"}]},
        {"f:list": {P: ITEM_P, 'k:{"name":"q"}': ITEM_P}},
    ),
    "an item twice": (
        {"list": [{"name": "p", "v": "1"}] * 2},
        {"list": [{"name": "p", "v": "1"}] * 2},
        {"f:list": {P: ITEM_P}},
    ),
    "no more items": ({"list": []}, {"list": []}, {"f:list": {P: ITEM_P}}),
    "a wrong type in an atomic list": ({"atom": ["x"]}, {"atom": ["x"]}, {"f:atom": {}}),
    "what is not JSON": ({"text": "1"}, {"text": "\ud800"}, {"f:text": {}}),
    "a number too large for JSON": ({"count": 1}, {"count": 2**70}, {"f:count": {}}),
}


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_the_general_way_is_for(case: str) -> None:
    live, config, owned = LEFT_ALONE[case]
    assert fast_apply(NODE, widget(live), widget(config), {"f:spec": owned}) is None


def test_the_general_way_is_for_metadata_that_are_not_those_of_the_object() -> None:
    live = widget({"text": "1"}, uid="u", generation=1)
    owned: Object = {"f:spec": {"f:text": {}}}
    assert fast_apply(NODE, live, widget({"text": "2"}, uid="u", generation=1), owned) is not None
    oddities: list[Object] = [
        {"uid": "v"},
        {"uid": None},
        {"selfLink": "s"},
        {"generation": True},
        {"managedFields": []},
        {"zork": 1},
    ]
    for odd in oddities:
        assert fast_apply(NODE, live, widget({"text": "2"}, **odd), owned) is None, odd


async def test_applying_again_through_the_engine_goes_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def general(*_: Any) -> None:
        raise AssertionError("merged in general")

    async with embedded_engine() as engine:
        await engine.establish(widget_crd(version("v1", SPEC)))
        metadata = {"name": "w", "namespace": "default", "labels": {"a": "b"}}
        config = widget({"text": "1", "count": 1, "list": [{"name": "p"}], "free": {"x": [1]}}) | {"metadata": metadata}
        status = {**config, "status": {"x": {"y": 1}}}
        await engine.client.apply(config, manager="a")
        monkeypatch.setattr(ssa, "merge", general)
        after = await engine.client.apply(status, manager="a", subresource="status")
        assert after["status"] == status["status"]
        config["spec"] |= {"count": 2, "free": {"x": [2]}}
        after = await engine.client.apply(config, manager="a")
        assert after["spec"] == config["spec"] and after["metadata"]["generation"] == 2
        for stated in ({"x": {"y": 2}, "z": 1}, {"x": {"y": 2}}):
            status["status"] = stated
            after = await engine.client.apply(status, manager="a", subresource="status")
            assert after["status"] == stated
        with pytest.raises(AssertionError):
            await engine.client.apply(config | {"spec": {"text": "2"}}, manager="b", force=True)
        with pytest.raises(BadRequest):
            await engine.client.apply(config | {"spec": {"text": 1}}, manager="a")
