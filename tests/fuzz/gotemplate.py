"""Feeds the template engine what it was not made for: mutated templates, hostile data, small limits.

Whatever the text, the engine must answer with a string within its limits or with a TemplateError, and soon. Where it
once did not, the template is kept in tests/gotemplate/findings.txt, as a JSON string, and replayed by the tests.
"""

from __future__ import annotations

import copy
import random
import time
from pathlib import Path
from typing import Any, Final

from planform.gotemplate import Limits, Options, Template, TemplateError
from planform.gotemplate.builtins import builtins
from planform.gotemplate.helm import helm
from planform.gotemplate.sprig import sprig
from tests.gotemplate import corpus
from tests.gotemplate.generator import generate

FINDINGS: Final = Path(__file__).parents[1] / "gotemplate" / "findings.txt"
LIMITS: Final = Limits(steps=50_000, output=200_000, items=20_000, depth=30)
LONGEST: Final = 2.0  # seconds of processor time that one template may take under these limits
_SNIPPETS: Final = (
    *("{{", "}}", "{{-", "-}}", "|", "(", ")", ".", "$", ":=", "=", ",", '"', "`", "'", "\\", "/*", "*/", "\n", " "),
    *("{{end}}", "{{else}}", "{{if .}}", "{{range .}}", "{{with .}}", "{{break}}", "{{continue}}", "nil", "$x", "$."),
    *('{{define "t"}}', '{{template "t" .}}', '{{block "b" .}}', '{{include "t" .}}', "{{tpl . .}}", "\0"),
    *("-1", "1e308", "0x", "1_", "1i", "é", "\udcff", "\ud800", "𝔘", "%v", "%*d", "%[9]d", "99999999999999999999"),
)
_ARGUMENTS: Final = (
    *("nil", ".", ".nul", ".nope", "true", "0", "1", "-1", "7", "64", "100000", "9223372036854775807", "1i", "'x'"),
    *("-9223372036854775808", "1.5", "-0.0", "1e308", '(float64 "nan")', '(float64 "-inf")', "4294967296", "1e-320"),
    *(
        '""',
        '"x"',
        '"a,b,c"',
        '"%v %d %s %5.3f %[2]*d"',
        '"\\xff\\xfe"',
        '"é✓𝔘"',
        '"(a*)*$"',
        '"[[:alpha:]]+|\\\\b"',
        '"$1${x}$$"',
    ),
    *(
        '"1.2.3-a.1+b"',
        '">=1.0, <2 || ^3 - 4"',
        '"http://u:p@[::1]:80/%41?q#f"',
        '"2006-01-02T15:04:05Z07:00"',
        '"1h-3m"',
    ),
    *('"{{.}}"', '"{{tpl . .}}"', '"a: [1, {b: c}]"', '`{"a":[1,null,1e999]}`', '"99999999999999999999"', '"0x_1p-2"'),
    *(
        "(list)",
        "(list nil 1 .)",
        "(until 9)",
        "(dict)",
        '(dict "a" nil "b" (list 1))',
        '(splitList "" "abc")',
        "(now)",
    ),
    *(
        '(split "," "a,b")',
        '(semver "1.2.3")',
        '(toDate "2006" "0001")',
        "(chunk 2 (until 5))",
        "(list 1e300 2)",
        ".users",
    ),
    *(
        '(repeat 3000 "ab ")',
        "(until 500)",
        "(index .name 0)",
        "(rest (list))",
        "$.map",
        '(b64dec "/w==")',
        "(int64 3)",
    ),
)
_DATA: Final[tuple[Any, ...]] = (
    None,
    "",
    "\udcff\ud800",
    -(1 << 63),
    1 << 70,
    float("nan"),
    float("-inf"),
    [],
    {},
    {"": {"": [None]}},
    [[[[[[[[1]]]]]]]],
    {"name": {"name": "x"}, "list": {"a": [1]}, "n": "not a number", "map": [1], "users": 5},
)


def run(seconds: int, seed: int) -> None:
    """Fuzz for so long; raises AssertionError with the template at the first finding."""
    source = random.Random(seed)
    seeds = [question.text for name in corpus.names() for question in corpus.questions(name)]
    seeds += [generate(number).text for number in range(300)]
    names = sorted({*sprig, *builtins, *helm})
    deadline = time.monotonic() + seconds
    rounds = 0
    while time.monotonic() < deadline:
        text = _calls(source, names) if rounds % 2 else _mutated(source, seeds)
        rounds += 1
        check(text, _data(source))
    print(f"gotemplate: {rounds} templates, nothing found")


def check(text: str, data: Any) -> None:
    """One template must render within its limits or fail as templates fail."""
    started = time.process_time()
    try:
        output = Template(text, options=Options(limits=LIMITS, rng=random.Random(1), clock=lambda: 0.0)).render(data)
    except TemplateError:
        output = ""
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}\ntemplate: {text!r}\ndata: {data!r}") from error
    took = time.process_time() - started
    if len(output) > LIMITS.output:
        raise AssertionError(f"{len(output)} characters of output\ntemplate: {text!r}")
    if took > LONGEST:
        raise AssertionError(f"{took:.1f} s\ntemplate: {text!r}\ndata: {data!r}")


def _data(source: random.Random) -> Any:
    return copy.deepcopy(corpus.data() if source.random() < 0.6 else source.choice(_DATA))


def _calls(source: random.Random, names: list[str]) -> str:
    """Functions called with anything, and their results passed on."""
    text = ""
    for _ in range(source.randint(1, 4)):
        count = source.choice((0, 1, 1, 2, 2, 2, 3, 3, 4))
        arguments = " ".join(source.choice(_ARGUMENTS) for _ in range(count))
        stages = "".join(f" | {source.choice(names)}" for _ in range(source.choice((0, 0, 1, 2))))
        text += f"{{{{{source.choice(names)} {arguments}{stages}}}}}"
    return text


def _mutated(source: random.Random, seeds: list[str]) -> str:
    text = source.choice(seeds)
    for _ in range(source.randint(0, 6)):
        at = source.randint(0, len(text))
        end = min(len(text), at + source.randint(0, 8))
        match source.randrange(6):
            case 0:
                text = text[:at] + text[end:]
            case 1:
                text = text[:at] + source.choice(_SNIPPETS) + text[at:]
            case 2:
                text = text[:at] + source.choice(_SNIPPETS) + text[end:]
            case 3:
                other = source.choice(seeds)
                text = text[:at] + other[source.randint(0, len(other)) :]
            case 4:
                text = text[:at] + text[at:end] * source.randint(2, 40) + text[end:]
            case _:
                text = text[:at] + f"{{{{{source.choice(sorted(sprig))} . .}}}}" + text[at:]
    return text
