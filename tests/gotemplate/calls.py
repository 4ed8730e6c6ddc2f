"""Every function with arguments that suit it, nearly suit it, or do not suit it at all: random but seeded."""

from __future__ import annotations

import random
from collections.abc import Sequence

from planform.gotemplate.builtins import builtins
from planform.gotemplate.functions import Function
from planform.gotemplate.helm import helm
from planform.gotemplate.sprig import sprig
from tests.gotemplate.corpus import data
from tests.gotemplate.oracle import Question

# What no two runs agree on, what would exhaust Go (which has no limits), and what reports problems in words of its own.
LEFT_OUT = frozenset(
    (
        *("now", "ago", "uuidv4", "shuffle", "encryptAES", "randAlpha", "randAlphaNum", "randNumeric", "randAscii"),
        *("randBytes", "randInt", "keys", "values", "derivePassword", "date", "htmlDate", "dateInZone", "date_in_zone"),
        *("htmlDateInZone", "durationRound", "until", "untilStep", "seq", "repeat", "indent", "nindent", "set", "tpl"),
        *("include", "mustToYaml", "fromYaml", "fromYamlArray", "fromJsonArray"),
    )
)
_TEXTS = (
    *('""', '"x"', '"a,b,c"', '"%v %d %s %5.3f %[2]*d"', '"é✓𝔘"', '"(a*)*$"', '"[[:alpha:]]+|\\\\b"', '"$1${x}$$"'),
    *(
        '"1.2.3-a.1+b"',
        '">=1.0, <2 || ^3 - 4"',
        '"http://u:p@[::1]:80/%41?q#f"',
        '"2006-01-02T15:04:05Z07:00"',
        '"1h3m"',
    ),
    *(
        '"a: [1, {b: c}]"',
        '`{"a":[1,null,1.5]}`',
        '"99999999999999999999"',
        '"0x_1p-2"',
        '"fooBar baz_QUX 12ab"',
        '"-7"',
    ),
)
_INTS = ("0", "1", "-1", "2", "7", "64")
_MAPS = ("(dict)", '(dict "a" nil "b" (list 1))', ".map", "$.spec", ".nope", '(dict "x" (dict "y" 1.5))')
_OTHERS = (
    *("nil", ".nul", ".nope", "true", "false", "1i", "'x'", "1.5", "-0.0", "1e308", "1e-320", '(float64 "nan")'),
    *(
        '(float64 "-inf")',
        "(list)",
        "(list nil 1 .n)",
        "(until 9)",
        '(splitList "" "abc")',
        '(split "," "a,b")',
        ".users",
    ),
    *('(semver "1.2.3")', '(toDate "2006" "2001")', "(chunk 2 (until 5))", "(list 1e300 2)", "(index .name 0)", ".f"),
    *("(rest (list))", '(b64dec "/w==")', "(int64 3)", ".n", ".list", ".mixed", ".yes", ".huge", ".big", ".users"),
)
_STAGES = ("toString", "toJson", "quote", "len", "typeOf", "print", "empty", "kindOf", "toYaml")


def functions() -> dict[str, Function]:
    return {name: call for name, call in {**builtins, **sprig, **helm}.items() if name not in LEFT_OUT}


def generate_call(seed: int) -> Question:
    source = random.Random(seed)
    known = functions()
    name = source.choice(sorted(known))
    signature = known[name].signature
    count = len(signature.parameters) + (source.randint(-1, 2) if signature.variadic else 0)
    if source.random() < 0.1:
        count += source.choice((-1, 1))
    arguments = [_argument(source, signature.parameters, index) for index in range(max(count, 0))]
    stage = f" | {source.choice(_STAGES)}" if source.random() < 0.3 else ""
    return Question(f"{{{{{' '.join([name, *arguments])}{stage}}}}}", data())


def _argument(source: random.Random, parameters: Sequence[str], index: int) -> str:
    """Most often one of the type that is wanted."""
    wanted = parameters[min(index, len(parameters) - 1)] if parameters else ""
    suiting = {"string": _TEXTS, "int": _INTS, "map[string]interface {}": _MAPS}.get(wanted)
    if suiting is not None and source.random() < 0.85:
        return source.choice(suiting)
    return source.choice((*_TEXTS, *_INTS, *_MAPS, *_OTHERS))
