"""Maps. `set`, `unset` and the merges change the map they are given, as Go's do; what has no order is sorted."""

from __future__ import annotations

from typing import Any, Final

from planform.gotemplate.errors import CallFailed
from planform.gotemplate.functions import Library
from planform.gotemplate.runtime import State
from planform.gotemplate.sprig.strings import string_value
from planform.gotemplate.values import NilMap, Record, Strings, Value, type_name

dicts: Final = Library()

Map = dict[str, Any]


@dicts.add("func(...interface {}) map[string]interface {}", "dict", stateful=True)
def dict_(state: State, *values: Value) -> Map:
    meter = state.meter()
    made: Map = {}
    for index in range(0, len(values), 2):
        made[string_value(values[index], meter)] = values[index + 1] if index + 1 < len(values) else ""
    return made


@dicts.add("func(map[string]interface {}, string) interface {}")
def get(mapping: Map, key: str) -> Value:
    return mapping.get(key, "")


@dicts.add("func(map[string]interface {}, string, interface {}) map[string]interface {}", "set", stateful=True)
def set_(state: State, mapping: Map, key: str, value: Value) -> Map:
    if isinstance(mapping, NilMap):
        raise CallFailed("assignment to entry in nil map")
    if key not in mapping:
        state.reserve_items(len(mapping) + 1 if len(mapping) >= state.limits.items else 1)
    mapping[key] = value
    return mapping


@dicts.add("func(map[string]interface {}, string) map[string]interface {}")
def unset(mapping: Map, key: str) -> Map:
    mapping.pop(key, None)
    return mapping


@dicts.add("func(map[string]interface {}, string) bool", "hasKey")
def has_key(mapping: Map, key: str) -> bool:
    return key in mapping


@dicts.add("func(string, ...map[string]interface {}) []interface {}")
def pluck(key: str, *mappings: Map) -> list[Value]:
    return [mapping[key] for mapping in mappings if key in mapping]


@dicts.add("func(...map[string]interface {}) []string", stateful=True)
def keys(state: State, *mappings: Map) -> Strings:
    state.reserve_items(sum(map(len, mappings)))
    return Strings(key for mapping in mappings for key in sorted(mapping))


@dicts.add("func(map[string]interface {}) []interface {}", stateful=True)
def values(state: State, mapping: Map) -> list[Value]:
    state.reserve_items(len(mapping))
    return [mapping[key] for key in sorted(mapping)]


@dicts.add("func(map[string]interface {}, ...string) map[string]interface {}")
def pick(mapping: Map, *wanted: str) -> Map:
    return {key: mapping[key] for key in wanted if key in mapping}


@dicts.add("func(map[string]interface {}, ...string) map[string]interface {}", stateful=True)
def omit(state: State, mapping: Map, *unwanted: str) -> Map:
    state.reserve_items(len(mapping))
    return {key: value for key, value in mapping.items() if key not in unwanted}


@dicts.add("func(...interface {}) (interface {}, error)")
def dig(*path_default_and_map: Value) -> Value:
    """The value at the end of a path of keys, or the default if one of them is not there."""
    if len(path_default_and_map) < 3:
        raise CallFailed("dig needs at least three arguments")
    *path, fallback, value = path_default_and_map
    step = _as_map(value)
    for key in path:
        if not isinstance(key, str):
            raise CallFailed(_conversion(key, "string"))
    for key in path[:-1]:
        if key not in step:
            return fallback
        step = _as_map(step[key])
    return step.get(path[-1], fallback)


def _as_map(value: Value) -> Map:
    if type(value) not in (dict, NilMap):
        raise CallFailed(_conversion(value, "map[string]interface {}"))
    mapping: Map = value
    return mapping


def _conversion(value: Value, go_type: str) -> str:
    got = "nil" if value is None else type_name(value)
    return f"interface conversion: interface {{}} is {got}, not {go_type}"


# --- merging ---------------------------------------------------------------------------------------------------------


@dicts.add("func(map[string]interface {}, ...map[string]interface {}) interface {}", "merge", stateful=True)
@dicts.add(
    "func(map[string]interface {}, ...map[string]interface {}) (interface {}, error)", "mustMerge", stateful=True
)
def merge(state: State, target: Map, *sources: Map) -> Map:
    """Fill in what `target` lacks or has empty; what is first wins."""
    return _merged(state, target, sources, overwrite=False)


@dicts.add("func(map[string]interface {}, ...map[string]interface {}) interface {}", "mergeOverwrite", stateful=True)
@dicts.add(
    "func(map[string]interface {}, ...map[string]interface {}) (interface {}, error)",
    "mustMergeOverwrite",
    stateful=True,
)
def merge_overwrite(state: State, target: Map, *sources: Map) -> Map:
    """What is last wins."""
    return _merged(state, target, sources, overwrite=True)


def _merged(state: State, target: Map, sources: tuple[Map, ...], *, overwrite: bool) -> Map:
    for source in sources:
        if isinstance(target, NilMap) and not isinstance(source, NilMap):
            target = {}
        state.weigh(target, source)
        _merge_into(target, source, overwrite)
    return target


def _merge_into(target: Map, source: Map, overwrite: bool) -> None:
    fills_empty_map = not target
    for key, value in list(source.items()):
        if value is None:
            if overwrite:
                target[key] = None
            continue
        present = target.get(key)
        if isinstance(value, dict):
            if isinstance(present, dict):
                _merge_into(present, value, overwrite)
                if present:
                    continue
        elif isinstance(value, list):
            if overwrite or fills_empty_map:
                target[key] = value
            if present:
                continue
        if overwrite or not present:
            target[key] = value


# --- copies ----------------------------------------------------------------------------------------------------------


@dicts.add("func(interface {}) interface {}", "deepCopy", stateful=True)
@dicts.add("func(interface {}) (interface {}, error)", "mustDeepCopy", stateful=True)
def deep_copy(state: State, value: Value) -> Value:
    if value is None:
        raise CallFailed("reflect: call of reflect.Value.Type on zero Value")
    state.weigh(value)
    return _copied(value)


def _copied(value: Value) -> Value:
    if isinstance(value, dict):
        return type(value)((key, _copied(item)) for key, item in value.items())
    if isinstance(value, list):
        return type(value)(map(_copied, value))
    return value.go_copy() if isinstance(value, Record) else value
