"""Requests for go-templating and cel-filter from a seed: mostly sensible, partly not."""

from __future__ import annotations

import random
from typing import Any, Final

from planform.functions.values import FunctionRequest, Object, Ready, Resource, State

EXTRA: Final = "apiextensions.crossplane.io/extra-resources"
NAME: Final = "gotemplating.fn.crossplane.io/composition-resource-name"
VALUES: Final = (
    *("$xr.spec.text", "$xr.spec.number", "$xr.spec.ratio", "$xr.spec.flag", "$xr.spec.list", "$xr.spec.object"),
    *("$xr.spec.nothing", "$xr.spec.missing", "$xr.metadata.name", '"literal"', "42", "3.5", "true", "(list 1 2 3)"),
    *('(dict "a" 1 "b" "x")', "(index $xr.spec.list 0)", '(getComposedResource . "r0")', '(getExtraResources . "e")'),
    *('(getResourceCondition "Ready" $xr)', '(getComposedResource . "none")', "(len $xr.spec.list)"),
)
PIPES: Final = (
    *("", "", "| toString", "| quote", "| upper", "| lower", "| default `d`", "| toJson", "| b64enc", "| sha256sum"),
    *("| trunc 3", "| replace `a` `b`", "| int", "| int64", "| float64", "| add 1", "| mul 2", "| sub 1", "| div 2"),
    *("| kindOf", "| typeOf", "| empty", "| not", "| ternary 1 2", "| squote", "| trim", "| title", "| snakecase"),
    *("| join `,`", "| first", "| last", "| uniq", "| sortAlpha", "| has 1", "| keys", "| hasKey `a`", "| len"),
    *("| printf `%v`", "| printf `%s`", "| printf `%d`", "| printf `%05.2f`", "| printf `%q`", "| printf `%T`"),
    *("| toYaml", "| nindent 2", "| contains `b`", "| hasPrefix `b`", "| regexMatch `^b`", "| splitList `-`"),
    *("| fromJson", "| coalesce nil", "| max 3", "| min 3", "| round 1", "| ceil", "| floor", "| untilStep 1 2"),
)
SAFE: Final = (
    "",
    "",
    "",
    "",
    "| toString",
    "| quote",
    "| default `d`",
    "| toJson",
    "| kindOf",
    "| empty",
    "| printf `%v`",
)
TEXTS: Final = ("blue-green", "", "12", "true", "a: b", "multi\nline\n", "äöü", "0x1F", "null", "- x")
FILTERS: Final = (
    *(
        "true",
        "false",
        "observed.composite.resource.spec.flag == true",
        "observed.composite.resource.spec.number > 3.0",
    ),
    *("'r0' in observed.resources", "'r1' in desired.resources", "desired.resources.size() > 1", "has(context.key)"),
    *("observed.composite.resource.spec.text.startsWith('b')", "observed.composite.resource.spec.missing == 1"),
    *("has(observed.composite.resource.spec.missing)", "context.key == 'value'", "1 + 1", "observed.composite", "1 +"),
    *("observed.composite.resource.spec.list.exists(x, x == 'a')", "desired.resources['r0'].ready == 1"),
    *("observed.composite.resource.metadata.name.matches('^x')", "unknown_variable", "'a' + 'b' == 'ab'"),
)
PATTERNS: Final = ("r0", "r.", "r[01]", ".*", "none", "r0-x", "(r0)", "r")


class Draw:
    """One request, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed)

    def xr(self) -> Object:
        pick = self.pick
        spec = {
            "text": pick.choice(TEXTS),
            "number": pick.choice((0, 1, 3, 12, -4, 12345678)),
            "ratio": pick.choice((0.5, 2.25, 1e21)),
            "flag": pick.random() < 0.5,
            "list": pick.choice((["a", "b"], ["b", "a", "b"], [1, 2], [])),
            "object": pick.choice(({"a": 1}, {"b": {"c": ["x"]}}, {})),
            "nothing": None,
        }
        conditions = [
            {"type": "Ready", "status": pick.choice(("True", "False")), "reason": "R", "message": "m"}
            | ({"lastTransitionTime": "2024-01-01T00:00:00Z"} if pick.random() < 0.5 else {})
        ]
        return {
            "apiVersion": "example.org/v1",
            "kind": "XR",
            "metadata": {"name": "xr"},
            "spec": spec,
            "status": {"conditions": conditions},
        }

    def resources(self) -> dict[str, Resource]:
        pick = self.pick
        return {
            name: Resource(
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"n": name}},
                ready=pick.choice(tuple(Ready)),
            )
            for name in ("r0", "r1", "r2")
            if pick.random() < 0.7
        }

    def request(self, given: Object, **more: Any) -> FunctionRequest:
        return FunctionRequest(
            observed=State(Resource(self.xr()), self.resources()),
            desired=State(resources=self.resources()),
            input=given,
            context={"key": "value"} if self.pick.random() < 0.5 else {},
            tag="tag",
            **more,
        )


def filters(seed: int) -> FunctionRequest:
    """For cel-filter."""
    draw = Draw(seed)
    pick = draw.pick
    listed = [
        {"name": pick.choice(PATTERNS), "expression": pick.choice(FILTERS)} for _ in range(pick.choice((1, 1, 2, 3)))
    ]
    return draw.request({"apiVersion": "cel.fn.crossplane.io/v1beta1", "kind": "Filters", "filters": listed})


def templates(seed: int) -> FunctionRequest:
    """For go-templating: nothing that asks for the time or for something random."""
    draw = Draw(seed)
    pick = draw.pick
    lines = ["{{ $xr := getCompositeResource . }}", "apiVersion: example.org/v1", "kind: Thing", "metadata:"]
    lines += ["  annotations:", f"    {NAME}: thing"]
    if pick.random() < 0.2:
        lines.append(f'    gotemplating.fn.crossplane.io/ready: "{pick.choice(("True", "False", "true"))}"')
    lines.append("spec:")
    for number in range(pick.randint(1, 3)):
        first = pick.choice(PIPES if pick.random() < 0.5 else SAFE)
        expression = f"{pick.choice(VALUES)} {first} {pick.choice(SAFE)}".strip()
        form = pick.choice(("{{{{ {0} | toJson }}}}", "{{{{ {0} | toString | quote }}}}", "{{{{ {0} }}}}"))
        lines.append(f"  v{number}: {form.format(expression)}")
    if pick.random() < 0.3:
        lines.append("  block: |\n    one\n    two")
    if pick.random() < 0.3:
        lines += ["---", "apiVersion: example.org/v1", "kind: XR", "status:", "  seen: {{ $xr.spec.text | toJson }}"]
    if pick.random() < 0.2:
        lines += ["---", "apiVersion: meta.gotemplating.fn.crossplane.io/v1alpha1", "kind: Context", "data:"]
        lines += ["  key: {other: [1]}"]
    spec: Object = {"apiVersion": "gotemplating.fn.crossplane.io/v1beta1", "kind": "GoTemplate", "source": "Inline"}
    spec["inline"] = {"template": "\n".join(lines)}
    if pick.random() < 0.3:
        spec["options"] = [pick.choice(("missingkey=error", "missingkey=zero", "missingkey=default"))]
    found = {"e": [Resource({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}})]}
    return draw.request(spec, required_resources=found if pick.random() < 0.4 else {})
