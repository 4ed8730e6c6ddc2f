"""Our CEL against Google's C++ one, where both speak the same dialect: same value, or both refuse."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planform.apimachinery.cel import CelError, compile_expression

oracle = pytest.importorskip("cel_expr_python.cel")

VARIABLES: dict[str, Any] = {
    "i": 7, "j": -3, "d": 2.5, "s": "hello world", "t": "wor", "b": True, "n": None,
    "l": [3, 1, 2], "w": ["b", "a", "c"], "m": {"x": 1, "y": 2}, "o": {"a": {"b": ["c"]}, "e": ""},
}  # fmt: skip
DYNAMIC = dict.fromkeys(VARIABLES, "dyn")
REFUSED = "refused"


def _theirs() -> Any:
    from cel_expr_python.ext import ext_bindings, ext_math, ext_optional, ext_strings

    extensions = [ext_strings.ExtStrings(), ext_math.ExtMath(), ext_optional.ExtOptional(), ext_bindings.ExtBindings()]
    return oracle.NewEnv(variables=dict.fromkeys(VARIABLES, oracle.Type.DYN), extensions=extensions)


ENVIRONMENT = _theirs()


def theirs(text: str) -> Any:
    try:
        value = ENVIRONMENT.compile(text).eval(data=VARIABLES)
    except RuntimeError:
        return REFUSED
    return REFUSED if value.type() == oracle.Type.ERROR else value.plain_value()


def ours(text: str) -> Any:
    try:
        return compile_expression(text, DYNAMIC).evaluate(VARIABLES)
    except CelError:
        return REFUSED


def same(one: Any, other: Any) -> bool:
    """Equal, and equally typed: 1 is not true."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (one != one and other != other)
    return type(one) is type(other) and bool(one == other)


@pytest.mark.parametrize(
    "text",
    [
        "i / 2", "j / 2", "j % 2", "i % j", "i * 9223372036854775807", "-j", "d * 2.0", "d / 0.0", "i + d", "i < d",
        "s < t", "s + t", "s + i", "s.size()", "size(l)", "s.contains(t)", "s.startsWith('he')", "s.endsWith('x')",
        "s.matches('o.w')", "s.matches('^o')", "l[0]", "l[3]", "l[-1]", "m['x']", "m['z']", "m.x", "m.z", "o.a.b[0]",
        "o.a.z", "has(o.a.b)", "has(o.a.z)", "has(o.z.b)", "1 in l", "'x' in m", "'z' in m", "i in w", "n == null",
        "i == null", "b && i", "b || i", "i || b", "i && b", "!b", "!i", "b ? i : s", "i ? 1 : 2", "l + w",
        "l == [3, 1, 2]", "m == {'y': 2, 'x': 1}", "l.all(x, x > 0)", "l.all(x, x > 1)", "l.exists(x, x > 2)",
        "l.exists_one(x, x > 1)", "l.map(x, x * 2)", "l.filter(x, x > 1)", "m.all(k, m[k] > 0)",
        "m.exists(k, k == 'y')", "l.map(x, x > 1, x + 1)", "w.all(x, x > 0)", "l.exists(x, x == 'a')", "int('12')",
        "int('a')", "int(d)", "int(-2.9)", "double(i)", "string(i)", "string(d)", "string(b)", "bool('true')",
        "type(i) == int", "type(s) == string", "type(l) == list", "type(d) == type(2.0)", "b == 1", "i == 7.0",
        "dyn(1) == dyn(1u)", "duration('1h') + duration('30m') == duration('90m')",
        "duration('1.5s').getMilliseconds()", "duration('-90s').getMinutes()",
        "timestamp('2024-02-29T12:34:56Z').getDayOfYear()", "timestamp('2024-02-29T12:34:56Z').getHours('-05:00')",
        "timestamp('2024-02-29T00:00:00Z') - timestamp('2024-02-28T00:00:00Z') == duration('24h')",
        "timestamp('2023-02-29T00:00:00Z')", "s.charAt(1)", "s.charAt(20)", "s.indexOf('o')", "s.indexOf('o', 5)",
        "s.lastIndexOf('o')", "s.indexOf('zz')", "w.join('-')", "s.lowerAscii()", "s.upperAscii()",
        "s.replace('l', 'L')", "s.replace('l', 'L', 2)", "s.replace('l', '', 0)", "s.split(' ')", "s.split('')",
        "s.split('o', 2)", "s.split('o', 0)", "s.substring(3)", "s.substring(3, 5)", "s.substring(5, 3)",
        "' a '.trim()", "'%s-%d'.format(['a', 1])", "'%.1f'.format([d])", "'%s'.format([l])", "'%x'.format([255])",
        "'%d'.format(['a'])", "'%s'.format([])", "math.greatest(i, j)", "math.least(1, 2.5, -1)", "math.ceil(d)",
        "math.round(2.5)", "math.round(-2.5)", "math.abs(j)", "math.bitAnd(6, 3)", "math.bitShiftRight(16, 2)",
        "m.?x.orValue(9)", "m.?z.orValue(9)", "o.?a.?z.hasValue()", "l[?9].hasValue()", "optional.of(1).value()",
        "optional.none().value()", "optional.of(i).optMap(x, x + 1).value()", "cel.bind(x, i, x + x)", "1u + 2u",
        "1u - 2u", "uint(j)", "b'abc' == bytes('abc')", "size(b'\\xff')", "'\\x41\\u00e9' == 'A\\303\\251'",
        "r'\\d' == '\\\\d'", "9223372036854775807 + 1", "-9223372036854775808 - 1", "-9223372036854775808 / -1",
        "1 / 0", "1 % 0", "1.0 / 0.0 > 0.0", "(1 / 0 == 0) || true", "true || 1 / 0 == 0", "false && 1 / 0 == 0",
        "1 / 0 == 0 && false", "[0, 1].exists(x, 1 / x == 1)", "1 +", "foo", "l.all(1, true)", "has(s)", "'abc",
        "1 = 2", "{'a': 1, 'a': 2}", "[1, 2][1.0]", "{1: 'a'}[1.0]", "{'a': 1}.a",
    ],
)  # fmt: skip
def test_known_expressions_agree(text: str) -> None:
    assert same(ours(text), theirs(text)), f"{text}: ours {ours(text)!r}, theirs {theirs(text)!r}"


LEAVES = [
    "i",
    "j",
    "d",
    "s",
    "t",
    "b",
    "l",
    "m",
    "w",
    "m.x",
    "l[0]",
    "0",
    "1",
    "-2",
    "2.5",
    "'a'",
    "true",
    "null",
    "[1, 2]",
    "o.a",
]
OPERATORS = ["+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "in"]


def _expression(draw: random.Random, depth: int) -> str:
    if depth == 0 or draw.random() < 0.2:
        return draw.choice(LEAVES)

    def inner() -> str:
        return _expression(draw, depth - 1)

    match draw.randrange(8):
        case 0 | 1 | 2 | 3:
            return f"({inner()} {draw.choice(OPERATORS)} {inner()})"
        case 4:
            return f"({inner()} ? {inner()} : {inner()})"
        case 5:
            return (
                f"{draw.choice(['l', 'w', 'm'])}.{draw.choice(['all', 'exists', 'filter', 'map'])}(x, {inner()} == x)"
            )
        case 6:
            return f"!({inner()})"
    return f"size({inner()})"


@settings(max_examples=1000, deadline=None, derandomize=True)
@given(st.integers(min_value=0, max_value=2**32))
def test_generated_expressions_agree(seed: int) -> None:
    text = _expression(random.Random(seed), 3)
    assert same(ours(text), theirs(text)), f"{text}: ours {ours(text)!r}, theirs {theirs(text)!r}"
