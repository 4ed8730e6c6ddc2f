"""CEL expressions: values, errors, the libraries of Kubernetes, and the limits that keep them cheap."""

from __future__ import annotations

from typing import Any

import pytest

from planform.apimachinery.cel import CelError, compile_expression


def evaluate(text: str, **variables: Any) -> Any:
    return compile_expression(text, dict.fromkeys(variables, "dyn")).evaluate(variables)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3 - 4 / 2 % 3", 5),
        ("-7 / 2", -3),
        ("-7 % 3", -1),
        ("7u + 1u", 8),
        ("0x1F", 31),
        ("-9223372036854775808", -(2**63)),
        ("1.5e3 + .5", 1500.5),
        ("1.0 / 0.0 > 1.0e300", True),
        ("1 < 2.5 && 3u > 2", True),
        ("'a' + \"b\" + r'\\n' + '''c'd'''", "ab\\nc'd"),
        ("'\\u00e4\\x41\\101\\t'", "äAA\t"),
        ("b'\\xff\\377' == b'\\377\\xff'", True),
        ("size('äö')", 2),
        ("size(b'ab') + size([1]) + size({'a': 1}) + 'abc'.size()", 7),
        ("!true || false && true", False),
        ("true ? 'yes' : 'no'", "yes"),
        ("2 in [1, 2] && !('b' in {'a': 1})", True),
        ("[1, 2] + [3]", [1, 2, 3]),
        ("{'a': [1]}['a'][0]", 1),
        ("[1, 2] == [1, 2] && {'a': 1} == {'a': 1} && [1] != [2]", True),
        ("dyn(1) == dyn(1.0)", True),
        ("dyn(1) == dyn(true)", False),
        ("dyn('a') == dyn(1)", False),
        ("type(1) == int && type('a') == string && type([]) == list", True),
        ("int('42') + int(1.9) + int(3u)", 46),
        ("double('1.5') + double(1)", 2.5),
        ("string(1) + string(true) + string(1.5) + string(b'x')", "1true1.5x"),
        ("bool('true')", True),
        ("duration('1h30m').getMinutes()", 90),
        ("string(duration('90m'))", "5400s"),
        ("timestamp('2024-02-29T10:00:00Z') + duration('24h')", "2024-03-01T10:00:00Z"),
        ("timestamp('2024-02-29T10:00:00.5+02:00')", "2024-02-29T08:00:00.5Z"),
        ("timestamp('2024-03-01T00:00:00Z') - timestamp('2024-02-29T00:00:00Z') == duration('24h')", True),
        ("timestamp('2024-02-29T10:00:00Z').getMonth()", 1),
        ("timestamp('2024-02-29T23:00:00Z').getDate('+02:00')", 1),
        ("timestamp('2024-02-29T23:00:00Z').getDayOfWeek()", 4),
        ("// a comment\n1 // and more\n + 1", 2),
    ],
)
def test_the_language(text: str, value: Any) -> None:
    assert evaluate(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[1, 2, 3].all(x, x > 0)", True),
        ("[1, 2, 3].exists(x, x > 2)", True),
        ("[1, 2, 3].exists_one(x, x > 2)", True),
        ("[1, 2, 3].map(x, x * 2)", [2, 4, 6]),
        ("[1, 2, 3].map(x, x > 1, x * 2)", [4, 6]),
        ("[1, 2, 3].filter(x, x > 1)", [2, 3]),
        ("{'a': 1, 'b': 2}.all(k, k in ['a', 'b'])", True),
        ("[[1], [2, 3]].map(x, x.map(y, y + size(x)))", [[2], [4, 5]]),
        ("[1, 2].all(i, v, i < v)", True),
        ("{'a': 1}.exists(k, v, k == 'a' && v == 1)", True),
        ("[1, 2].existsOne(i, v, i == 0)", True),
        ("[1, 2].transformList(i, v, i * v)", [0, 2]),
        ("[1, 2].transformList(i, v, v > 1, v)", [2]),
        ("{'a': 1, 'b': 2}.transformMap(k, v, v > 1, v + 1)", {"b": 3}),
        ("{'a': 'x'}.transformMapEntry(k, v, {v: k})", {"x": "a"}),
        ("cel.bind(x, [1, 2], x + x)", [1, 2, 1, 2]),
        ("[3, 1, 2].sortBy(x, -x)", [3, 2, 1]),
        ("[1, 2].map(x, [3].map(x, x))", [[3], [3]]),
        ("optional.of(1).optMap(x, x + 1).orValue(0)", 2),
        ("optional.none().optMap(x, x + 1).orValue(0)", 0),
        ("optional.of(1).optFlatMap(x, optional.of(x + 1)).value()", 2),
        ("{'a': 1}.?a.hasValue() && !{'a': 1}[?'b'].hasValue()", True),
        ("{'a': {'b': 1}}.?a.?b.orValue(0) + {'a': {'b': 1}}.?x.?b.orValue(10)", 11),
        ("[1, ?optional.none(), ?optional.of(2)]", [1, 2]),
        ("{'a': 1, ?'b': optional.none()}", {"a": 1}),
        ("optional.ofNonZeroValue('').or(optional.of('x')).value()", "x"),
    ],
)
def test_macros_and_optionals(text: str, value: Any) -> None:
    assert evaluate(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # strings
        ("'tacocat'.charAt(3) + 'abc'.charAt(3)", "o"),
        ("'hello mellow'.indexOf('ello', 2)", 7),
        ("'hello mellow'.lastIndexOf('ello', 6)", 1),
        ("['a', 'b'].join('-')", "a-b"),
        ("'TaCoCÆt'.lowerAscii()", "tacocÆt"),
        ("'a-b-c'.replace('-', '', 1)", "ab-c"),
        ("'a,b,c'.split(',', 2)", ["a", "b,c"]),
        ("'hello'.substring(1, 3)", "el"),
        ("'  x '.trim()", "x"),
        ("strings.quote('a\"b')", '"a\\"b"'),
        ("'%s is %d, %.2f, %x, %b, %e'.format(['a', 5, 1.5, 255, 5, 1000.0])", "a is 5, 1.50, ff, 101, 1.000000e+03"),
        ("'%s'.format([[1, true, null]])", "[1, true, null]"),
        ("'%%'.format([])", "%"),
        ("base64.encode(b'hi') + string(base64.decode('aGk='))", "aGk=hi"),
        # regular expressions
        ("'abc 123'.find('[0-9]+')", "123"),
        ("'abc'.find('[0-9]+')", ""),
        ("'a1b2c3'.findAll('[0-9]')", ["1", "2", "3"]),
        ("'a1b2c3'.findAll('[0-9]', 2)", ["1", "2"]),
        ("'foobar'.matches('o+b') && matches('x', '^x$')", True),
        # lists
        ("[1, 2, 3].isSorted() && !['b', 'a'].isSorted()", True),
        ("[1, 2, 3].sum() + [3, 1].min() + [3, 1].max()", 10),
        ("[1.5, 2.0].sum()", 3.5),
        ("[duration('1s'), duration('2s')].sum() == duration('3s')", True),
        ("['a', 'b', 'a'].indexOf('a') + ['a', 'b', 'a'].lastIndexOf('a')", 2),
        ("['a'].includes('a')", True),
        ("[1, 1, 2].distinct()", [1, 2]),
        ("[[1], [2, [3]]].flatten()", [1, 2, [3]]),
        ("lists.range(3).reverse()", [2, 1, 0]),
        ("[1, 2, 3].slice(1, 2)", [2]),
        ("[3, 1].sort().first().value()", 1),
        # sets
        ("sets.contains([1, 2], [2]) && sets.intersects([1], [1, 2]) && sets.equivalent([1, 1], [1])", True),
        # math
        ("math.greatest(1, 5, 3) + math.least([4, 2])", 7),
        ("math.ceil(1.2) + math.floor(1.8) + math.round(-2.5) + math.trunc(-1.9)", -1.0),
        ("math.abs(-3) + math.sign(-9) + math.bitAnd(6, 3) + math.bitShiftLeft(1, 3)", 12),
        ("math.isNaN(math.sqrt(-1.0)) && math.bitNot(0) == -1", True),
        # quantities
        ("quantity('1Gi').isGreaterThan(quantity('1G')) && quantity('1k') == quantity('1000')", True),
        ("quantity('50k').add(20).compareTo(quantity('50020'))", 0),
        ("quantity('1500m').isInteger() || quantity('2').sub(quantity('500m')).asApproximateFloat() != 1.5", False),
        ("quantity('5').asInteger() + quantity('-5').sign()", 4),
        ("isQuantity('1Gi') && !isQuantity('1Gx')", True),
        # URLs
        ("url('https://user@example.com:80/a/b?x=1&x=2').getHost()", "example.com:80"),
        ("url('https://[::1]:80/').getHostname() + url('https://[::1]:80/').getPort()", "::180"),
        ("url('https://example.com/a%20b?k=v').getEscapedPath()", "/a%20b"),
        ("url('https://example.com/?k=v&k=w').getQuery()", {"k": ["v", "w"]}),
        ("isURL('https://example.com') && !isURL('no url') && url('/p').getScheme() == ''", True),
        # addresses
        ("ip('192.168.0.1').family() + ip('::1').family()", 10),
        ("isIP('127.0.0.1') && !isIP('127.0.0.256') && !isIP('::ffff:1.2.3.4')", True),
        ("ip('127.0.0.1').isLoopback() && ip('0.0.0.0').isUnspecified() && ip('8.8.8.8').isGlobalUnicast()", True),
        ("ip('224.0.0.1').isLinkLocalMulticast() && ip('fe80::1').isLinkLocalUnicast()", True),
        ("ip.isCanonical('2001:db8::abcd') && !ip.isCanonical('2001:DB8::ABCD')", True),
        ("cidr('192.168.0.0/24').containsIP('192.168.0.9') && !cidr('10.0.0.0/8').containsIP(ip('11.0.0.1'))", True),
        ("cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.1.0.0/16').containsCIDR('10.0.0.0/8')", True),
        ("string(cidr('192.168.1.7/24').masked()) + string(cidr('192.168.1.7/24').ip())", "192.168.1.0/24192.168.1.7"),
        ("cidr('192.168.0.0/24').prefixLength()", 24),
        ("isCIDR('10.0.0.0/8') && !isCIDR('10.0.0.0')", True),
        # versions
        (
            "semver('1.2.3-rc.2').isLessThan(semver('1.2.3-rc.10')) && "
            "semver('1.0.0').isGreaterThan(semver('1.0.0-x'))",
            True,
        ),
        ("semver('v01.2', true).compareTo(semver('1.2.0'))", 0),
        ("semver('3.2.1').major() * 100 + semver('3.2.1').minor() * 10 + semver('3.2.1').patch()", 321),
        ("isSemver('1.2.3') && !isSemver('v1.2.3') && isSemver('v1.2.3', true) && !isSemver('1.02.3')", True),
        # formats
        ("format.dns1123Label().validate('my-name').hasValue()", False),
        ("format.named('dns1123Label').value().validate('My_Name').hasValue()", True),
        ("format.named('nope').hasValue()", False),
    ],
)
def test_the_libraries_of_kubernetes(text: str, value: Any) -> None:
    assert evaluate(text) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 +", "Syntax error: unexpected end of expression"),
        ("1 $ 2", "unexpected character '$'"),
        ("'abc", "unterminated string"),
        ("'\\q'", "invalid escape"),
        ("9223372036854775808", "invalid int literal"),
        ("(1", "expected ')'"),
        ("if", "reserved identifier: if"),
        ("has(a)", "invalid argument to has() macro"),
        ("[1].all(x + 1, true)", "argument must be a simple name"),
        ("Foo{a: 1}", "construction of messages is not supported"),
        ("nope", "undeclared reference to 'nope' (in container '')"),
        ("nope(1)", "undeclared reference to 'nope' (in container '')"),
        ("1 + 'a'", "found no matching overload for '_+_' applied to '(int, string)'"),
        ("'a'.size(1)", "found no matching overload for 'size' applied to 'string.(int)'"),
        ("1 && true", "expected type 'bool' but found 'int'"),
        ("1.all(x, true)", "cannot be range of a comprehension"),
        ("'a'.b", "type 'string' does not support field selection"),
        ("'a'.matches('(')", "invalid matches argument"),
        ("duration('1x')", "invalid duration argument"),
        ("timestamp('yesterday')", "invalid timestamp argument"),
        ("(" * 200 + "1" + ")" * 200, "nested deeper"),
        ("!" * 500 + "true", "too many operators"),
        (" + ".join(["1"] * 200), "nested deeper"),
    ],
)
def test_what_makes_no_sense_is_refused_before_it_runs(text: str, message: str) -> None:
    with pytest.raises(CelError) as refused:
        compile_expression(text, {})
    assert message in str(refused.value)


def test_a_compile_error_shows_the_place() -> None:
    with pytest.raises(CelError) as refused:
        compile_expression("true &&\n  x.y", {})
    assert str(refused.value) == ("ERROR: <input>:2:3: undeclared reference to 'x' (in container '')\n |   x.y\n | ..^")


@pytest.mark.parametrize(
    ("text", "variables", "message"),
    [
        ("1 / 0", {}, "division by zero"),
        ("1 % 0", {}, "modulus by zero"),
        ("9223372036854775807 + 1", {}, "integer overflow"),
        ("0u - 1u", {}, "unsigned integer overflow"),
        ("[1][1]", {}, "index out of bounds: 1"),
        ("{'a': 1}['b']", {}, "no such key: b"),
        ("x.y", {"x": {}}, "no such key: y"),
        ("x + 1", {"x": "a"}, "no such overload: _+_(string, int)"),
        ("x.y", {"x": 1}, "no such overload"),
        ("x && true", {"x": 1}, "a bool is expected"),
        ("x.all(i, true)", {"x": 1}, "neither a list nor a map"),
        ("int('a')", {}, "invalid syntax"),
        ("optional.none().value()", {}, "optional.none() dereference"),
        ("quantity('x')", {}, "quantities must match"),
        ("'abc'.substring(2, 1)", {}, "invalid substring range"),
        ("{x: 1, 'a': 2}", {"x": "a"}, "already exists"),
        ("x.find(y)", {"x": "a", "y": "("}, "Illegal regex"),
        ("x", {}, "no value for x"),
    ],
)
def test_what_fails_on_these_values_says_why(text: str, variables: dict[str, Any], message: str) -> None:
    expression = compile_expression(text, {"x": "dyn", "y": "dyn"})
    with pytest.raises(CelError) as failed:
        expression.evaluate(variables)
    assert message in str(failed.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 / 0 == 1 || true", True),
        ("true || 1 / 0 == 1", True),
        ("1 / 0 == 1 && false", False),
        ("[0, 1].exists(x, 1 / x == 1)", True),
        ("[0, 1].all(x, 1 / x == 2)", False),
    ],
)
def test_an_error_does_not_matter_when_the_rest_decides(text: str, value: bool) -> None:
    assert evaluate(text) is value


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        ("x.all(a, x.all(b, x.all(c, a + b + c >= 0)))", {"x": list(range(200))}),
        ("cel.bind(a, x + x, cel.bind(b, a + a, cel.bind(c, b + b, c + c + c + c)))", {"x": "y" * 2_000_000}),
        ("x.map(a, x.map(b, x))", {"x": list(range(2000))}),
        ("x.distinct()", {"x": list(range(5000))}),
    ],
)
def test_an_expression_is_stopped_when_it_costs_too_much(text: str, variables: dict[str, Any]) -> None:
    with pytest.raises(CelError, match="cost limit exceeded"):
        evaluate(text, **variables)


def test_a_loop_over_a_large_list_is_well_within_the_limit() -> None:
    assert evaluate("x.all(a, a >= 0)", x=list(range(20_000))) is True


def test_a_long_chain_of_alternatives_is_not_deep() -> None:
    assert evaluate(" || ".join(f"x == {n}" for n in range(1000)), x=999) is True


def test_patterns_take_linear_time() -> None:
    assert evaluate("x.matches('^(a+)+$')", x="a" * 5000 + "b") is False


def test_declared_types_are_checked_against_use() -> None:
    variables = {"names": "list<string>", "sizes": "map<string, int>"}
    assert compile_expression("names.all(n, sizes[n] > 0)", variables).evaluate({"names": ["a"], "sizes": {"a": 1}})
    with pytest.raises(CelError, match="no matching overload"):
        compile_expression("names.all(n, n > 0)", variables)


def test_a_schema_can_be_the_type_of_a_variable() -> None:
    schema = {"type": "object", "properties": {"when": {"type": "string", "format": "date-time"}}}
    expression = compile_expression("obj.when.getFullYear()", {"obj": schema})
    assert expression.evaluate({"obj": {"when": "2024-01-01T00:00:00Z"}}) == 2024
    with pytest.raises(CelError, match="undefined field 'then'"):
        compile_expression("obj.then", {"obj": schema})


def test_a_value_that_is_not_what_it_was_declared_as_is_an_error_and_not_a_crash() -> None:
    expression = compile_expression("name.lowerAscii()", {"name": "string"})
    with pytest.raises(CelError, match="declared type"):
        expression.evaluate({"name": 5})


def test_an_unknown_type_of_a_variable_is_refused() -> None:
    with pytest.raises(CelError, match="not a type"):
        compile_expression("x", {"x": "list<"})


def test_results_are_json() -> None:
    value = evaluate(
        "{'t': timestamp('2024-01-01T00:00:00Z'), 'd': duration('1s'), 'b': b'hi', 'q': quantity('1k'), "
        "1: optional.none()}"
    )
    assert value == {"t": "2024-01-01T00:00:00Z", "d": "1s", "b": "aGk=", "q": "1k", "1": None}


def test_compiling_the_same_text_twice_compiles_once() -> None:
    assert compile_expression("1 + 1", {}) is compile_expression("1 + 1", {})
