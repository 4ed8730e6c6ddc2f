"""Templates that nobody thought of: random but seeded, mostly well typed, now and then wrong on purpose."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.gotemplate.corpus import data
from tests.gotemplate.oracle import Question

_TEXTS = ("a", " ", "\n", "key: ", "é✓", "  x\n\n", "{ ", "}", "- ", "\t", "%d", '"q"', "")
_STRING_FIELDS = (".name", ".empty", ".text", ".uni", ".html", ".spec.image", "$.name", ".map.c.d", ".key", ".json")
_INT_FIELDS = (".n", ".zero", ".neg", ".spec.replicas", "$.n")
_LIST_FIELDS = (".list", ".nums", ".mixed", ".none", ".users", ".spec.ports", "$.list")
_MAP_FIELDS = (".map", ".spec", ".nothing", ".spec.env", "$.map")
_ANY_FIELDS = (".nul", ".nope", ".f", ".whole", ".huge", ".tiny", ".yes", ".no", ".map.zzz", ".nope.deep", ".", "$")
_WRONG = (".nul.x", ".name.x", ".list.y", "(.n).z", "(index .list 9)", '(fail "no")', "nil", "(1 2)")
_STRINGS = (
    '"x"',
    '""',
    '"a,b,c"',
    '"Hello World"',
    "`raw\\n`",
    '"é✓"',
    '"12"',
    '"3.5"',
    '"a b  c"',
    '"%v"',
    '"fooBarBaz"',
)
_INTS = ("0", "1", "2", "3", "-1", "7", "10", "0x1F", "'a'", "1_0")
_FLOATS = ("1.5", "0.1", "-2.25", "1e6", "1e21", "3.0", ".5", "1e-7")

_TO_STRING = (
    "upper {s}", "lower {s}", "title {s}", "trim {s}", "quote {a}", "squote {a}", "repeat {k} {s}", "trunc {i} {s}",
    "replace {s} {s} {s}", "nindent {k} {s}", "indent {k} {s}", "printf {f} {a}", "printf {f} {a} {a}", "print {a} {a}",
    "toString {a}", "toJson {a}", "join {s} {l}", "b64enc {s}", "sha256sum {s}", "default {s} {s}", "abbrev {i} {s}",
    "snakecase {s}", "camelcase {s}", "kebabcase {s}", "html {a}", "js {a}", "urlquery {a}", "typeOf {a}", "kindOf {a}",
    "cat {a} {a}", "println {a}", "swapcase {s}", "untitle {s}", "initials {s}", "nospace {s}", "wrap {k} {s}",
    "ternary {s} {s} {b}", "b64dec {s}", "toPrettyJson {a}", "base {s}", "ext {s}", "clean {s}", "dir {s}",
    "regexFind \"[a-z]+\" {s}", "regexReplaceAll \"[aeiou]\" {s} \"<$0>\"", "trimSuffix {s} {s}", "plural {s} {s} {k}",
    "substr 0 {k} {s}", "toRawJson {a}", "coalesce {s} {s}", "wrapWith {k} {s} {s}", "seq {k}", "toYaml {m}",
)  # fmt: skip
_TO_INT = (
    "add {a} {a}", "sub {i} {a}", "mul {i} {i}", "div {i} {i}",
    "mod {i} {i}", "len {l}", "len {s}", "len {m}", "max {i} {i}",
    "min {i} {a}", "int {a}", "int64 {a}", "atoi {s}", "add1 {a}", "toDecimal {a}",
)  # fmt: skip
_TO_LIST = (
    "list {a} {a}", "append {l} {a}", "prepend {l} {a}", "reverse {l}",
    "uniq {l}", "compact {l}", "rest {l}", "initial {l}",
    "concat {l} {l}", "without {l} {a}", "splitList {s} {s}",
    "until {k}", "untilStep 0 10 {k}", "sortAlpha {l}", "chunk 2 {l}",
    "toStrings {l}", "regexFindAll \"[a-z]\" {s} -1", "pluck \"a\" {m} {m}", "slice {l} 0", "values (dict \"a\" {a})",
    "keys (dict \"a\" {a})", "regexSplit \"[ ,]\" {s} -1", "mustReverse {l}", "tuple {a}",
)  # fmt: skip
_TO_MAP = (
    'dict "a" {a} "b" {a}', "merge (dict) {m} {m}", 'set (dict "k" 1) {s} {a}', 'omit {m} "a"', 'pick {m} "a" "b"',
    "deepCopy {m}", "mergeOverwrite (dict) {m} {m}", 'unset (dict "a" 1) "a"', "urlParse {s}",
)  # fmt: skip
_TO_ANY = (
    "index {l} {k}", "index {m} {s}", "first {l}", "last {l}", "default {a} {a}", "coalesce {a} {a}", "get {m} {s}",
    "ternary {a} {a} {b}", "addf {a} {a}", "divf {a} 4", "mulf {a} {a}",
    "round {a} 2", "floor {a}", "ceil {a}", "float64 {a}",
    'dig "a" {a} {m}', "or {a} {a}", "and {a} {a}", "fromJson {s}",
    "maxf {a} {a}", "subf {a} {a}", "split {s} {s}", "nil",
)  # fmt: skip
_TO_BOOL = (
    "eq {i} {i}", "ne {s} {s}", "lt {i} {i}", "le {s} {s}",
    "gt {i} {i}", "ge {s} {s}", "not {a}", "empty {a}", "has {a} {l}",
    "hasKey {m} {s}", "contains {s} {s}", "hasPrefix {s} {s}",
    "eq {a} {a}", "and {b} {b}", "or {b} {b}", "kindIs \"map\" {a}",
    "all {a} {a}", "any {a} {a}", "regexMatch \"^a\" {s}", "deepEqual {a} {a}", "lt {a} {a}", "eq {s} {s} {s}",
)  # fmt: skip
_STAGES = ("toString", "print", "quote", "toJson", "default 1", "len", "upper", "empty", 'printf "%v"')
_FORMATS = (
    '"%v"',
    '"%s"',
    '"%d"',
    '"%q"',
    '"%5v|"',
    '"%-6s|"',
    '"%05d"',
    '"%.2f"',
    '"%x"',
    '"%T"',
    '"%+v"',
    '"%t"',
    '"%g"',
)


class _Generator:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.variables: list[str] = []
        self.templates = 0
        self.in_range = 0

    def template(self) -> str:
        return "".join(self.piece(0) for _ in range(self.random.randint(1, 6)))

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    # --- pieces -------------------------------------------------------------------------------------------------------

    def piece(self, depth: int) -> str:
        roll = self.random.random()
        if roll < 0.25:
            return self.pick(*_TEXTS)
        if roll < 0.62 or depth > 2:
            return self.action(self.pipeline())
        if roll < 0.70:
            return self.declaration()
        return self.pick_block()(depth + 1)

    def pick_block(self) -> Callable[[int], str]:
        return self.random.choice((self.branch, self.branch, self.with_, self.range_, self.range_, self.define))

    def action(self, inside: str) -> str:
        left = self.pick("{{", "{{ ", "{{- ")
        return left + inside + self.pick("}}", " }}", " -}}")

    def body(self, depth: int) -> str:
        outer = len(self.variables)
        text = "".join(self.piece(depth) for _ in range(self.random.randint(0, 3)))
        if self.in_range and self.random.random() < 0.15:
            text += (
                self.action("if " + self.bool_(2)) + self.action(self.pick("break", "continue")) + self.action("end")
            )
        del self.variables[outer:]
        return text

    def declaration(self) -> str:
        if self.variables and self.random.random() < 0.4:
            return self.action(f"{self.random.choice(self.variables)} = {self.pipeline()}")
        name = f"$v{len(self.variables)}"
        text = self.action(f"{name} := {self.pipeline()}")
        self.variables.append(name)
        return text

    def branch(self, depth: int) -> str:
        text = self.action("if " + self.bool_(1)) + self.body(depth)
        while self.random.random() < 0.3:
            text += self.action("else if " + self.pipeline()) + self.body(depth)
        if self.random.random() < 0.5:
            text += self.action("else") + self.body(depth)
        return text + self.action("end")

    def with_(self, depth: int) -> str:
        text = self.action("with " + self.pipeline()) + self.body(depth)
        if self.random.random() < 0.3:
            text += self.action("else with " + self.pipeline()) + self.body(depth)
        if self.random.random() < 0.4:
            text += self.action("else") + self.body(depth)
        return text + self.action("end")

    def range_(self, depth: int) -> str:
        outer = len(self.variables)
        source = self.pick(self.list_(1), self.map_(1), self.list_(2), self.pick("3", ".spec.replicas", *_ANY_FIELDS))
        names = self.random.choice((0, 0, 1, 2))
        if names:
            fresh = [f"$r{outer + index}" for index in range(names)]
            source = f"{', '.join(fresh)} := {source}"
            self.variables += fresh
        self.in_range += 1
        text = self.action("range " + source) + self.body(depth)
        self.in_range -= 1
        if self.random.random() < 0.3:
            outside, self.in_range = self.in_range, 0
            text += self.action("else") + self.body(depth)
            self.in_range = outside
        del self.variables[outer:]
        return text + self.action("end")

    def define(self, depth: int) -> str:
        if depth > 1:
            return self.branch(depth)
        name = f'"t{self.templates}"'
        self.templates += 1
        outer, self.variables = self.variables, []
        looping, self.in_range = self.in_range, 0
        body = self.body(depth)
        self.variables, self.in_range = outer, looping
        defined = self.action("define " + name) + body + self.action("end")
        return defined + self.action(f"template {name} {self.pick('.', self.any_(1), self.map_(1))}")

    # --- expressions --------------------------------------------------------------------------------------------------

    def pipeline(self) -> str:
        make = self.random.choice((self.string_, self.int_, self.list_, self.map_, self.any_, self.bool_))
        text = self.bare(make(1))
        while self.random.random() < 0.3:
            text += " | " + self.pick(
                "toString", "print", "quote", "toJson", "default 1", "len", "upper", "empty", 'printf "%v"'
            )
        return text

    @staticmethod
    def bare(text: str) -> str:
        return text[1:-1] if text.startswith("(") and text.endswith(")") and text.count("(") == 1 else text

    def fill(self, shape: str, depth: int) -> str:
        makers = {"s": self.string_, "i": self.int_, "l": self.list_, "m": self.map_, "a": self.any_, "b": self.bool_}
        for mark, make in makers.items():
            while f"{{{mark}}}" in shape:
                shape = shape.replace(f"{{{mark}}}", make(depth + 1), 1)
        while "{k}" in shape:
            shape = shape.replace("{k}", self.pick("0", "1", "2", "5"), 1)
        return f"({shape.replace('{f}', self.pick(*_FORMATS))})"

    def expression(self, fields: tuple[str, ...], literals: tuple[str, ...], calls: tuple[str, ...], depth: int) -> str:
        roll = self.random.random()
        if roll < 0.02:
            return self.pick(*_WRONG)
        if roll < 0.10 and self.variables:
            return self.random.choice(self.variables)
        if depth > 3 or roll < 0.35:
            return self.pick(*fields)
        if roll < 0.5 and literals:
            return self.pick(*literals)
        return self.fill(self.pick(*calls), depth)

    def string_(self, depth: int) -> str:
        return self.expression(_STRING_FIELDS, _STRINGS, _TO_STRING, depth)

    def int_(self, depth: int) -> str:
        return self.expression(_INT_FIELDS, _INTS, _TO_INT, depth)

    def list_(self, depth: int) -> str:
        return self.expression(_LIST_FIELDS, (), _TO_LIST, depth)

    def map_(self, depth: int) -> str:
        return self.expression(_MAP_FIELDS, (), _TO_MAP, depth)

    def bool_(self, depth: int) -> str:
        return self.expression((".yes", ".no"), ("true", "false"), _TO_BOOL, depth)

    def any_(self, depth: int) -> str:
        make = self.random.choice((self.string_, self.int_, self.list_, self.map_, self.bool_, None, None))
        return self.expression(_ANY_FIELDS, _FLOATS, _TO_ANY, depth) if make is None else make(depth)


def generate(seed: int) -> Question:
    generator = _Generator(seed)
    missing_key = generator.random.choice(("default", "default", "default", "zero", "error"))
    return Question(generator.template(), data(), missing_key)
