"""`toYaml` and `fromYaml` as the Go function has them: YAML 1.2's idea of what is no text, four spaces, sorted keys."""

from __future__ import annotations

import base64
import math
import re
from typing import Any, Final

import yaml

from planform.builtin.go_templating.conditions import ResourceCondition
from planform.gotemplate import FunctionError, Int, NilList, NilMap, Record
from planform.gotemplate.floats import format_float
from planform.gotemplate.gotime import Time
from planform.gotemplate.runtime import State
from planform.gotemplate.values import Uint64, Value, from_bytes, type_name

_INDENT: Final = 4
_TEXT_TAG: Final = "tag:yaml.org,2002:str"
_INTEGER: Final = re.compile(r"[-+]?(?:0[bB][01_]+|0[oO]?[0-7_]+|0[xX][0-9a-fA-F_]+|(?:0|[1-9][0-9_]*))").fullmatch
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?").fullmatch
_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}
_NOT_TEXT_TO_OTHERS: Final = frozenset(
    spelled for word in ("y", "n", "yes", "no", "on", "off") for spelled in (word, word.capitalize(), word.upper())
)
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt ].*)?").fullmatch
_SIXTIES: Final = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?").fullmatch


def to_yaml(state: State, value: Value) -> str:
    """A document with a line break at its end."""
    state.weigh(value)
    text: str = yaml.dump(
        _plain(value), Dumper=_Dumper, default_flow_style=False, allow_unicode=True, indent=_INDENT, width=math.inf
    )
    text = text.removesuffix("...\n")
    state.reserve_text(len(text))
    return text


def from_yaml(state: State, text: str) -> Value:
    """The value of one document; dates stay texts."""
    state.reserve_text(len(text) * 8)  # reading YAML is slow
    try:
        return yaml.load(text, Loader=_Loader)  # a SafeLoader
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise FunctionError(f"yaml: {line}{error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise FunctionError(f"yaml: {error}") from None


class _Dumper(yaml.SafeDumper):
    """Leaves it to the representers below what is quoted: to the emitter, every scalar is text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """To the next multiple of four, but within an item of a list only past its dash."""
        self.indents.append(self.indent)
        if self.indent is None:
            self.indent = _INDENT if flow else 0
        elif self.sequence_context:
            self.indent += 2
        else:
            self.indent = _INDENT * (self.indent // _INDENT + 1)


class _Loader(yaml.SafeLoader):
    """Without YAML 1.1's words and dates; whole numbers are Go's `int`."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = set()
        for key, _ in node.value:
            if key.value in keys and not key.tag.endswith(":merge"):
                raise yaml.constructor.ConstructorError(
                    None, None, f'mapping key "{key.value}" already defined', key.start_mark
                )
            keys.add(key.value)
        return {_key_text(key): value for key, value in super().construct_mapping(node, deep=True).items()}

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        """What is marked as a text is one, quotes or not."""
        parser: Any = self
        marked = parser.peek_event().tag == _TEXT_TAG
        node: yaml.ScalarNode = super().compose_scalar_node(anchor)
        if marked and node.style is None:
            node.style = "'"
        return node

    def scan_to_next_token(self) -> None:
        """Also past tabs, where they are no indentation."""
        super().scan_to_next_token()
        while self.peek() == "\t" and (self.flow_level or not self.allow_simple_key):
            self.forward()
            super().scan_to_next_token()


def _key_text(key: Any) -> str:
    """Keys of maps are texts here, those that are none in YAML's spelling."""
    return "null" if key is None else str(key).lower() if isinstance(key, bool) else str(key)


def _construct_scalar(loader: _Loader, node: yaml.ScalarNode) -> Value:
    if node.style is not None:
        return node.value
    if node.value in _WORDS:
        return _WORDS[node.value]
    return _number(node.value)


def _construct_marked_number(loader: _Loader, node: yaml.ScalarNode) -> Value:
    found = _WORDS.get(node.value, _number(node.value))
    if isinstance(found, str) or found is None:
        kind = node.tag.rpartition(":")[2]
        problem = f"cannot decode !!str `{node.value}` as a !!{kind}"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
    return float(found) if node.tag.endswith(":float") else found


def _construct_binary(loader: _Loader, node: yaml.ScalarNode) -> Value:
    try:
        return from_bytes(base64.b64decode("".join(node.value.split()), validate=True))
    except ValueError:
        problem = "!!binary value contains invalid base64 data"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None


def _construct_foreign(loader: _Loader, tag: str, node: yaml.Node) -> Value:
    """What has a mark of its author's own is what it is without it; a scalar is a text."""
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return str(node.value)


def _number(text: str) -> Value:
    plain = text.replace("_", "")
    if len(plain) <= 66 and _INTEGER(text):
        digits = plain.lstrip("+-")
        octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
        try:
            whole = int(digits, 8 if octal else 0) * (-1 if plain[0] == "-" else 1)
        except ValueError:
            return text
        if -(2**63) <= whole < 2**64:
            return Int(whole) if whole < 2**63 else Uint64(whole)
        return float(whole) if digits.isdigit() and not octal else text
    if _FLOAT(text):
        return float(text)
    return text


def _plain(value: Value) -> Any:
    """What PyYAML's dumper is to see; records are shown as in JSON."""
    if isinstance(value, (NilMap, NilList)):
        return {} if isinstance(value, NilMap) else []
    if isinstance(value, dict):
        return {key: _plain(value[key]) for key in value}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, (str, bool)) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value
    if isinstance(value, bytes):
        return list(value)
    if isinstance(value, ResourceCondition):
        return _Struct({key: _plain(member) for key, member in value.yaml_value().items()})
    if isinstance(value, Time):
        return _Moment(value.go_json())
    if isinstance(value, Record):
        return value.go_json()
    raise FunctionError(f"cannot marshal type: {type_name(value)}")


class _Struct(dict[str, Any]):
    """A Go struct, whose members keep their order."""


def _represent_struct(dumper: yaml.SafeDumper, struct: _Struct) -> yaml.MappingNode:
    return dumper.represent_mapping("tag:yaml.org,2002:map", list(struct.items()))


class _Moment(str):
    """A point in time, which stands without quotes."""

    __slots__ = ()


def _represent_moment(dumper: yaml.SafeDumper, moment: _Moment) -> yaml.ScalarNode:
    return dumper.represent_scalar(_TEXT_TAG, str(moment))


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if _reads_as_other(text) else "|" if "\n" in text else None
    return dumper.represent_scalar(_TEXT_TAG, text, style=style)


def _reads_as_other(text: str) -> bool:
    return bool(
        text in _WORDS
        or text in _NOT_TEXT_TO_OTHERS
        or not isinstance(_number(text), str)
        or _DATE(text)
        or _SIXTIES(text)
    )


def _represent_number(dumper: yaml.SafeDumper, number: float) -> yaml.ScalarNode:
    if isinstance(number, int):
        text = str(number)
    elif math.isfinite(number):
        text = format_float(number, "g", None)
    else:
        text = ".nan" if math.isnan(number) else ".inf" if number > 0 else "-.inf"
    return dumper.represent_scalar(_TEXT_TAG, text)


def _represent_constant(dumper: yaml.SafeDumper, constant: bool | None) -> yaml.ScalarNode:
    return dumper.represent_scalar(_TEXT_TAG, {None: "null", True: "true", False: "false"}[constant])


_Dumper.yaml_implicit_resolvers = {}
_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(_Moment, _represent_moment)
_Dumper.add_representer(_Struct, _represent_struct)
_Dumper.add_representer(int, _represent_number)
_Dumper.add_representer(float, _represent_number)
_Dumper.add_representer(bool, _represent_constant)
_Dumper.add_representer(type(None), _represent_constant)
_Loader.yaml_implicit_resolvers = {"<": [("tag:yaml.org,2002:merge", re.compile(r"<<$"))]}
_Loader.add_constructor(_TEXT_TAG, _construct_scalar)
_Loader.add_constructor("tag:yaml.org,2002:int", _construct_marked_number)
_Loader.add_constructor("tag:yaml.org,2002:float", _construct_marked_number)
_Loader.add_constructor("tag:yaml.org,2002:binary", _construct_binary)
_Loader.add_multi_constructor("!", _construct_foreign)
