#!/usr/bin/env python3
"""Writes the reference part of the documentation from the code, so that the two cannot disagree.

    tools/reference.py           write docs/reference/, the list of how-to guides and the promises of the designs
    tools/reference.py --check   change nothing; exit with 1 and name the pages that are out of date

tests/unit/test_docs.py makes the same comparison. What the code cannot say itself (what a limit is for, what an error
without a docstring means) stands here in words; a new limit or error without any is a mistake that stops this program.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import click
import yaml

from planform.api.builtin import BUILTIN_KINDS, kubernetes_version
from planform.api.extensions import crds
from planform.apiserver.wire.http import Limits
from planform.blueprints.discovery import function_list
from planform.blueprints.functions import Policy
from planform.blueprints.functions.policy import VARIABLES
from planform.blueprints.shipped import shipped_catalogue
from planform.cli.control_plane.crossplane_flags import ALWAYS_ON
from planform.cli.main import root
from planform.cli.spellings import ALIASES
from planform.errors import ApiError, PlanformError
from planform.features import FEATURES
from planform.store import HistoryLimits

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / "docs" / "reference"
DIFFERENCES: Final = FOLDER / "differences-from-crossplane.md"
PROMISES: Final = ROOT / "docs" / "explanation" / "examples-of-the-designs.md"
GUIDES: Final = ROOT / "docs" / "how-to"
_MADE: Final = "<!-- Written by tools/reference.py. Change the code, then run it again. -->"

MEANINGS: Final[Mapping[str, str]] = {
    "BadRequest": "The request itself makes no sense: a malformed body, query or patch.",
    "Unauthorized": "The credentials are wrong, expired or revoked.",
    "Forbidden": "RBAC or admission does not let this user do this.",
    "NotFound": "The object, or the kind, is not there.",
    "MethodNotAllowed": "The kind does not have this verb.",
    "NotAcceptable": "The answer cannot be given in any form that the client accepts.",
    "AlreadyExists": "An object of that name is there already.",
    "RequestEntityTooLarge": "The body is longer than the server takes.",
    "UnsupportedMediaType": "The body is in a form that this request does not take.",
    "TooManyRequests": "Too much at once; the answer says when to try again.",
    "InternalError": "The server could not do its part; its log says why.",
    "ServiceUnavailable": "The server is starting or stopping.",
    "Timeout": "The answer did not come in time; whether the write happened is not known.",
    "StoreClosed": "The control plane is stopping: the data directory is closed.",
}
"""What an error means whose class says nothing."""

LIMITS: Final[Mapping[str, str]] = {
    "header_bytes": "Bytes of request line and headers. Beyond: 431, and the connection is closed.",
    "header_count": "Headers of one request. Beyond: 431.",
    "body_bytes": "Bytes of a body. Beyond: 413, before the rest is read.",
    "buffered_bytes": "Bodies of all connections together that arrive or wait to be answered. Beyond: 429.",
    "unread_bytes": "Answers of all connections together that are not read yet. Beyond: the slowest reader is closed.",
    "connections": "Connections at a time. Beyond: closed at once.",
    "pipelined": "Requests that may wait on one connection. Beyond: 429, and the connection is closed.",
    "request_seconds": "Time in which a request must have arrived. Beyond: 408.",
    "idle_seconds": "Time for which a connection may be silent between requests.",
    "stalled_seconds": "Time for which a client may leave what it was sent unread. Beyond: closed.",
    "handshake_seconds": "Time for the TLS handshake.",
    "keep_for": "A change is kept at least this long, ...",
    "keep_events": "... or while it is among the last so many.",
    "max_bytes": "History beyond this size goes in any case, the oldest first.",
    "ring_events": "Changes that are also held in memory, at most so many ...",
    "ring_bytes": "... and so many bytes.",
}

METRICS: Final = ("planform_", "function_")
"""What our metrics are called; those about calls of functions have the names that Crossplane gives them."""

EXIT_CODES: Final = (
    (0, "done"),
    (1, "failed"),
    (2, "wrong usage"),
    (3, "timed out; of `render`: a step of the pipeline failed"),
    (130, "interrupted"),
)


class Unexplained(Exception):
    """Something that users meet has no words anywhere."""


@dataclass(frozen=True)
class MetricFact:
    """A metric as the code declares it."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]


def pages() -> dict[Path, str]:
    """Every generated page and what it must hold. Raises Unexplained."""
    made = {
        FOLDER / "cli.md": _cli(),
        FOLDER / "crossplane-spellings.md": _crossplane_spellings(),
        FOLDER / "errors.md": _errors(),
        FOLDER / "features.md": _features(),
        FOLDER / "kinds.md": _kinds(),
        FOLDER / "limits.md": _limits(),
        FOLDER / "fields.md": _extension_kinds(),
        FOLDER / "metrics.md": _metrics(),
        FOLDER / "phase-functions.md": _phase_functions(),
        FOLDER / "settings.md": _settings(),
        FOLDER / "index.md": _contents(FOLDER, "Reference", "What there is, by subject."),
        GUIDES / "index.md": _contents(GUIDES, "How-to guides", "One goal each; their commands are run by the tests."),
    }
    whole = {path: "\n".join([_MADE, "", *lines]).rstrip("\n") + "\n" for path, lines in made.items()}
    return {**whole, DIFFERENCES: _with_differences(DIFFERENCES.read_text()), PROMISES: promises_page()}


# -- what the code says


def commands() -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command by its full name, groups before what is in them."""
    yield from _below(root, click.Context(root, info_name="planform"))


def _below(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command, click.Context]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context, **command.context_settings)
        yield inner.command_path, command, inner
        if isinstance(command, click.Group):
            yield from _below(command, inner)


def errors() -> list[type[PlanformError]]:
    """Every error of planform's own; only modules that give one a reason are imported."""
    modules = set()
    for path in _sources(r"^    (code, )?reason\b.*= "):
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        modules.add(importlib.import_module(module).__name__)
    found: dict[str, type[PlanformError]] = {}
    waiting: list[type[PlanformError]] = [PlanformError]
    while waiting:
        for kind in waiting.pop().__subclasses__():
            waiting.append(kind)
            if kind.__module__ in modules and not kind.__name__.startswith("_"):
                found[f"{kind.__module__}.{kind.__qualname__}"] = kind
    return sorted(found.values(), key=lambda kind: (kind.reason, kind.__module__, kind.__name__))


def metrics() -> list[MetricFact]:
    """Every metric, read from where it is declared: `registry.counter("planform_...", "...", [...])`."""
    found: dict[str, MetricFact] = {}
    for path in _sources(r"\.(counter|gauge|histogram)\("):
        tree = ast.parse(path.read_text())
        for place in [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))]:
            known: dict[str, Any] = {}
            for node in ast.walk(place):  # of statements on one level, in the order in which they stand
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    known[node.targets[0].id] = _literal(node.value, known)
                elif isinstance(node, ast.Call) and (fact := _declared(node, known)) is not None:
                    found[fact.name] = fact
    return [found[name] for name in sorted(found)]


def _sources(pattern: str) -> list[Path]:
    """The modules whose text matches."""
    found = re.compile(pattern, re.MULTILINE)
    return [path for path in sorted((ROOT / "src").rglob("*.py")) if found.search(path.read_text())]


def _declared(call: ast.Call, known: Mapping[str, Any]) -> MetricFact | None:
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("counter", "gauge", "histogram"):
        return None
    values = [_literal(argument, known) for argument in call.args]
    if len(values) < 2 or not str(values[0]).startswith(METRICS):
        return None
    named = {keyword.arg: _literal(keyword.value, known) for keyword in call.keywords}
    labels = values[2] if len(values) > 2 else named.get("labels")
    return MetricFact(str(values[0]), call.func.attr, str(values[1]), tuple(labels or ()))


def _field_docstrings(kind: type) -> dict[str, str]:
    """The strings that stand below fields of a class, by field."""
    (body,) = (node.body for node in ast.parse(inspect.getsource(kind)).body if isinstance(node, ast.ClassDef))
    return {
        field.target.id: text.value.value
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


def _literal(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """What an expression is, if that can be read; `known` are the values of names."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Tuple | ast.List):
        parts = [
            (_literal(each.value, known) or ()) if isinstance(each, ast.Starred) else (_literal(each, known),)
            for each in node.elts
        ]
        return tuple(itertools.chain.from_iterable(parts))
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


# -- the pages


def _cli() -> Iterator[str]:
    yield "# Command line"
    yield ""
    yield "Data goes to stdout, words to stderr. Colour is left out in a pipe and when `NO_COLOR` is set."
    yield ""
    yield from _table(("exit code", "means"), ((str(code), meaning) for code, meaning in EXIT_CODES))
    yield ""
    yield from _table(
        ("command", "does"),
        ((f"[`{path}`](#{_anchor(path)})", _first_sentence(command.help)) for path, command, _ in commands()),
    )
    for path, command, context in commands():
        yield ""
        yield f"## {path}"
        yield ""
        yield "```text"
        yield f"{path} {' '.join(command.collect_usage_pieces(context))}"
        yield "```"
        yield ""
        yield _prose(command.help)
        options = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
        if options:
            yield ""
            yield from _table(
                ("option", "default", "what it does"),
                ((_flags(option), _default(option), _cell(_help(option))) for option in options),
            )


def _settings() -> Iterator[str]:
    _, command, context = next(found for found in commands() if found[0] == "planform up")
    yield "# Settings of `planform up`"
    yield ""
    yield "Each stands on the command line, in the environment or in the file that `--config` names; the first of the"
    yield "three that says something counts. In the file the key is the option without its dashes:"
    yield ""
    yield "```yaml"
    yield "data: /var/lib/planform"
    yield "listen: 127.0.0.1:6443"
    yield "tls-name: [plane.example.org]"
    yield "```"
    yield ""
    rows = []
    for option in command.params:
        assert isinstance(option, click.Option)
        if option.hidden:
            continue
        key = "" if option.name == "config" else f"`{_long(option)}`"
        variable = f"`{context.auto_envvar_prefix}_{(option.name or '').upper()}`"
        rows.append(
            (key or "-", f"`--{_long(option)}`", variable, _type(option), _default(option), _cell(_help(option)))
        )
    yield from _table(("key in the file", "option", "environment", "type", "default", "what it does"), rows)
    yield ""
    yield "What starts Crossplane can start planform: `--debug` is `--log-level debug`, and the flags of features that"
    yield f"planform always has are understood: {', '.join(f'`--{flag}`' for flag in ALWAYS_ON)}."
    yield ""
    yield "Lists in the environment are separated by spaces. How to write such a file:"
    yield "[use a config file](../how-to/use-a-config-file.md)."
    yield ""
    yield "Only in the environment, since they open what is closed to everybody who may create an ActionSet"
    yield "([what phases may reach](phases.md#what-phases-may-reach)):"
    yield ""
    yield from _table(("environment", "what it does"), ((f"`{name}`", _cell(text)) for name, text in VARIABLES.items()))


def _errors() -> Iterator[str]:
    yield "# Errors"
    yield ""
    yield "`reason` is stable: match on it, not on the message. An error of the API comes as a Kubernetes `Status` with"
    yield "the HTTP code given here; the command line prints the message, then a hint where there is one. What can be"
    yield "retried is tried again by controllers, with backoff; everything else waits for a change."
    yield ""
    rows = []
    for kind in errors():
        code = str(kind.code) if issubclass(kind, ApiError) else "-"
        meaning = _first_sentence(kind.__doc__) or MEANINGS.get(kind.reason, "")
        if not meaning:
            raise Unexplained(f"{kind.__module__}.{kind.__name__}: say in its docstring what it means")
        where = kind.__module__.removeprefix("planform.")
        retried = "yes" if kind.retryable else "no"
        rows.append((f"`{kind.reason}`", code, retried, _cell(meaning), f"`{where}.{kind.__name__}`"))
    yield from _table(("reason", "HTTP code", "retried", "means", "class"), rows)


def _kinds() -> Iterator[str]:
    yield "# Built-in kinds"
    yield ""
    yield f"What the embedded engine serves before any CRD, with the schemas of Kubernetes {kubernetes_version()}."
    yield "Further kinds come from CustomResourceDefinitions. Kinds that a cluster would act on (Pods, Deployments,"
    yield "Jobs, Services, ...) are stored, validated and watched, and nothing runs them: see"
    yield "[what differs from a cluster](../explanation/what-differs-from-a-cluster.md)."
    yield ""
    rows = []
    for kind in BUILTIN_KINDS:
        rows.append(
            (
                f"`{kind.kind}`",
                f"`{kind.api_version}`",
                f"`{kind.plural}`",
                _codes(kind.short_names),
                "namespaced" if kind.namespaced else "cluster",
                "create only" if kind.verbs == ("create",) else "all",
                _codes(kind.subresources),
            )
        )
    yield from _table(("kind", "API version", "resource", "short", "scope", "verbs", "subresources"), rows)


def _extension_kinds() -> Iterator[str]:
    yield "# Fields of the kinds that planform brings"
    yield ""
    yield "Their CustomResourceDefinitions are installed when a control plane starts. `[]` stands for an item of a"
    yield "list; `*` after a name says that it must be given. Fields of XRs and claims, which users define, are in"
    yield "[composition](composition.md)."
    shown: dict[str, str] = {}
    for crd in crds():
        spec = crd["spec"]
        kind, names = spec["names"]["kind"], spec["names"]
        newest = min(
            (each for each in reversed(spec["versions"]) if each["served"]),
            key=lambda each: bool(each.get("deprecated")),
        )
        older = [each["name"] for each in spec["versions"] if each["served"] and each is not newest]
        schema = newest["schema"]["openAPIV3Schema"]
        yield ""
        yield f"## {kind}"
        yield ""
        yield (
            f"{schema['description']} `{spec['group']}/{newest['name']}`, {spec['scope'].lower()}"
            + (f", short {_codes(names['shortNames'])}" if names.get("shortNames") else "")
            + (f"; also served as {_codes(older)}." if older else ".")
        )
        yield ""
        rows = [
            row
            for name, part in schema["properties"].items()
            if name not in ("apiVersion", "kind", "metadata")
            for row in _field_rows(name, part, required=False, kind=kind, shown=shown)
        ]
        yield from _table(("field", "type", "what it says"), rows)


def _field_rows(
    path: str, schema: Mapping[str, Any], *, required: bool, kind: str, shown: dict[str, str]
) -> Iterator[tuple[str, str, str]]:
    """A row for a field and each below it; a part that another kind has too is shown there only."""
    item = schema.get("items") or {}
    below = schema.get("properties") or item.get("properties") or {}
    path += "[]" if item else ""
    text = json.dumps(schema, sort_keys=True)
    earlier = shown.setdefault(text, kind) if len(below) > 3 and not path.endswith("conditions[]") else kind
    said = _cell(schema.get("description", ""))
    if earlier != kind:
        yield f"`{path}`", "list" if item else "object", f"{said} As in [{earlier}](#{_anchor(earlier)}).".strip()
        return
    yield f"`{path}`" + ("*" if required else ""), _schema_type(schema), said
    if path.endswith("conditions[]") or (len(below) == 1 and not item):
        return
    if below and not any(part.get("description") for part in below.values()):
        return  # a part of a kind of Kubernetes', which has the words for it
    needed = schema.get("required") or item.get("required") or ()
    for name, part in below.items():
        yield from _field_rows(f"{path}.{name}", part, required=name in needed, kind=kind, shown=shown)


def _schema_type(schema: Mapping[str, Any]) -> str:
    if schema.get("enum"):
        return " or ".join(f"`{each}`" for each in schema["enum"])
    if schema.get("items"):
        return "list"
    if isinstance(schema.get("additionalProperties"), dict):
        return "map"
    if len(schema.get("properties") or ()) == 1:
        return f"object with `{next(iter(schema['properties']))}`"
    default = f", default `{schema['default']}`" if isinstance(schema.get("default"), str | int) else ""
    names = {"integer": "number", "boolean": "true or false", "string": "text"}
    written = str(schema.get("type", "any"))
    return names.get(written, written) + default


def _features() -> Iterator[str]:
    yield "# Feature gates"
    yield ""
    yield "Set with `planform up --feature-gates NAME=true,OTHER=false`; `planform features` lists them."
    yield ""
    rows = ((f"`{f.name}`", "on" if f.default else "off", f.stage, _cell(f.summary)) for f in FEATURES.values())
    yield from _table(("gate", "default", "stage", "what it does"), rows)


def _crossplane_spellings() -> Iterator[str]:
    yield "# Spellings of the crossplane tool"
    yield ""
    yield "`planform compat crossplane WORDS` runs a command line that was written for the `crossplane` tool, today's"
    yield "or an older one's, or that stands in a design. So does a link named `crossplane` or `kubectl-crossplane`"
    yield "that leads to planform, for scripts that cannot be changed:"
    yield ""
    yield "```sh"
    yield 'ln -s "$(command -v planform)" ~/bin/crossplane'
    yield "```"
    yield ""
    yield "What is not listed is spelled as planform spells it (`function build`, `xpkg push`, `version` ...)."
    yield ""
    rows = ((f"`{' '.join(theirs)}`", f"`{' '.join(ours)}`") for theirs, ours in ALIASES.items())
    yield from _table(("crossplane", "planform"), rows)


def _phase_functions() -> Iterator[str]:
    yield "# Phase functions"
    yield ""
    yield "What the phases of Blueprints can call. `planform phase-functions list` shows the same, with what plug-ins"
    yield "bring. How to stay on a version: [pin it](../how-to/pin-phase-function-versions.md)."
    known = function_list(shipped_catalogue(policy=Policy(), plugins=lambda: ()))
    for function in (each for each in known if each["stable"]):
        yield from ("", f"## {function['name']}", "")
        rows = (_phase_version_row(version, function["stable"]) for version in function["versions"])
        yield from _table(("version", "state", "engines", "required", "other arguments", "what it does"), rows)
    yield from ("", "## Not here", "", "Functions that blueprints may know from elsewhere, and what to do instead.", "")
    rest = [each for each in known if not each["stable"]]
    told = ((f"`{each['name']}`", _cell(_instead(each))) for each in rest)
    yield from _table(("function", "why not"), told)


def _instead(function: Mapping[str, Any]) -> str:
    told: str = function["description"] or function["versions"][0].get("note", "")
    return told.removeprefix("Not here: ")


def _phase_version_row(version: Mapping[str, Any], stable: str) -> tuple[str, ...]:
    until = f", removed in {version['removedIn']}" if version.get("removedIn") else ""
    others = version.get("arguments", ())
    return (
        f"`{version['version']}`",
        f"{'**stable**' if version['version'] == stable else version['state']}{until}",
        ", ".join(version.get("engines") or ()),
        _codes(version.get("requiredArgs") or ()),
        "any" if others is None else _codes(others),
        _cell(version.get("description") or version.get("note", "")),
    )


def _metrics() -> Iterator[str]:
    yield "# Metrics"
    yield ""
    yield "Served at `/metrics` in the Prometheus text format, or as OpenMetrics if the client asks for it; reading"
    yield "takes the right to `get` the path `/metrics`. A histogram has the usual `_bucket`, `_sum` and `_count`."
    yield ""
    rows = ((f"`{fact.name}`", fact.kind, _codes(fact.labels), _cell(fact.help)) for fact in metrics())
    yield from _table(("metric", "type", "labels", "what it says"), rows)


def _limits() -> Iterator[str]:
    yield "# Limits"
    yield ""
    yield "## HTTP"
    yield ""
    yield "One client cannot take the server from the others. Slow and silent connections are found by a sweep, so"
    yield "times are exact to a few seconds."
    yield ""
    yield from _limit_table(Limits())
    yield ""
    yield "## History"
    yield ""
    yield "How far back a watch may resume and a list may look. Older than that is `Expired` (410): list again."
    yield ""
    yield from _limit_table(HistoryLimits())


def _limit_table(limits: Any) -> Iterator[str]:
    rows = []
    said = {**_field_docstrings(type(limits)), **LIMITS}
    for field in fields(limits):
        if field.name not in said:
            raise Unexplained(f"{type(limits).__name__}.{field.name}: say in a docstring below it what it is for")
        rows.append((f"`{field.name}`", _amount(field.name, getattr(limits, field.name)), _cell(said[field.name])))
    yield from _table(("limit", "value", "what happens"), rows)


def _with_differences(page: str) -> str:
    """The page on differences from Crossplane, with what the tests compare of built-in functions between its marks."""
    entries = yaml.safe_load((ROOT / "tests" / "interop" / "improvements.yaml").read_text())
    rows = [
        (f'<a id="{entry["id"]}"></a>`{entry["id"]}`', entry["function"], entry["name"], entry["why"])
        for entry in sorted(entries, key=lambda entry: (entry["function"].split(", ")[0], entry["id"]))
    ]
    lines = _table(("id", "functions", "here", "because"), rows)
    page = _between_marks(page, DIFFERENCES, "built-in functions", lines)
    return _between_marks(page, DIFFERENCES, "end-to-end tests", _end_to_end_tests())


def _end_to_end_tests() -> Iterator[str]:
    """How many of Crossplane's own tests apply, and why the others do not."""
    suite = yaml.safe_load((ROOT / "tests" / "interop" / "crossplane_e2e" / "suite.yaml").read_text())
    reasons = [(f"`{name}`", about["not"]) for name, about in sorted(suite.items()) if "not" in about]
    yield (
        f"Of the {len(suite)} tests of Crossplane's end-to-end suite {len(suite) - len(reasons)} apply, and pass"
        f" unchanged against `planform up --ephemeral`. {len(reasons)} do not:"
    )
    yield ""
    yield from _table(("test", "why it does not apply"), reasons)


STATES: Final[Mapping[str, str]] = {"works": "works", "differs": "differs on purpose", "not": "not"}
"""What may become of a promise of a design, as `tests/controllers/designs/promises.yaml` and as its page call it."""


def promises_page() -> str:
    """The page on the designs, with a table of what each promises between its marks. Raises Unexplained."""
    designs = yaml.safe_load((ROOT / "tests" / "controllers" / "designs" / "promises.yaml").read_text())
    return _between_marks(PROMISES.read_text(), PROMISES, "promises", _promises(designs))


def _promises(designs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    every = [row for design in designs for section in design["sections"] for row in section["promises"]]
    counts = {state: sum(row["state"] == state for row in every) for state in STATES}
    untested = sum(not row["tests"] for row in every)
    yield (
        f"Of {len(every)} promises {counts['works']} work, {counts['differs']} differ on purpose, {counts['not']} are "
        f"not kept; {untested} have no test of their own."
    )
    for design in designs:
        yield from ("", f"### {design['title']}")
        for section in design["sections"]:
            yield from ("", f"**{section['section']}**", "")
            yield from _table(("promise", "state", "because, or how", "test"), map(_promise_row, section["promises"]))


def _promise_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    tests = "<br>".join(f"`{test}`" for test in row["tests"]) or "no test of its own"
    return _cell(row["promise"]), STATES[row["state"]], _cell(row.get("why", "")), tests


def _between_marks(page: str, path: Path, mark: str, lines: Iterable[str]) -> str:
    """A page of which one part is made, and the rest written by people."""
    before, start, rest = page.partition(f"<!-- {mark}: made by tools/reference.py -->\n")
    _, end, after = rest.partition("<!-- end -->")
    if not start or not end:
        raise Unexplained(f"{path.name}: the marks around the table of {mark} are missing")
    return before + start + "\n".join(["", *lines, ""]) + end + after


def _contents(folder: Path, title: str, introduction: str) -> Iterator[str]:
    """A list of everything in a folder, by heading."""
    yield f"# {title}"
    yield ""
    yield introduction
    yield ""
    found = []
    for path in folder.rglob("*.md"):
        if path != folder / "index.md":
            heading = next((line for line in path.read_text().splitlines() if line.startswith("# ")), f"# {path.stem}")
            found.append((heading.removeprefix("# "), path.relative_to(folder).as_posix()))
    for heading, link in sorted(found):
        yield f"- [{heading}]({link})"


# -- their parts


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |"
    yield f"|{'---|' * len(headings)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _prose(text: str | None) -> str:
    return "\n\n".join(" ".join(part.split()) for part in (text or "").split("\n\n"))


def _first_sentence(text: str | None) -> str:
    return _cell(_prose(text).split("\n\n")[0])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _codes(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words) or "-"


def _anchor(heading: str) -> str:
    return heading.lower().replace(" ", "-")


def _long(option: click.Option) -> str:
    return next(flag for flag in option.opts if flag.startswith("--")).removeprefix("--")


def _flags(option: click.Option) -> str:
    taken = "" if option.is_flag else f" {option.metavar or _placeholder(option)}"
    return f"`{', '.join(option.opts)}{taken}`".replace("|", "\\|")


def _placeholder(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return "|".join(str(choice) for choice in option.type.choices)
    return _type(option).removeprefix("list of ").upper()


def _type(option: click.Option) -> str:
    if option.is_flag:
        return "true or false"
    if isinstance(option.type, click.Choice):
        return " or ".join(str(choice) for choice in option.type.choices)
    names = {"filename": "file", "file": "file", "directory": "directory", "float": "number", "integer": "number"}
    shown = names.get(option.type.name, "text")
    if isinstance(option.type, click.Path):
        shown = "directory" if not option.type.file_okay else "file"
    return f"list of {shown}" if option.multiple else shown


def _help(option: click.Option) -> str:
    return (option.help or "").partition("[default:")[0].strip() or "-"


def _default(option: click.Option) -> str:
    _, marker, stated = (option.help or "").partition("[default:")
    if marker:
        return _cell(stated.strip().removesuffix("]"))
    if option.is_flag or option.required or not isinstance(option.default, str | int | float) or option.default == "":
        return "-"
    return f"`{option.default}`"


def _amount(name: str, value: Any) -> str:
    if name.endswith("_bytes"):
        return (
            f"{value >> 30} GiB"
            if value >= 1 << 30
            else f"{value >> 20} MiB"
            if value >= 1 << 20
            else f"{value >> 10} KiB"
        )
    if name.endswith("_seconds"):
        return f"{value:g} s"
    if hasattr(value, "total_seconds"):
        return f"{value.total_seconds() / 60:g} min"
    return f"{value:,}"


def main(arguments: Sequence[str]) -> int:
    try:
        made = pages()
    except Unexplained as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    if "--check" in arguments:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is out of date: run tools/reference.py", file=sys.stderr)
        return 1 if stale else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in stale:
        path.write_text(made[path])
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
