#!/usr/bin/env python3
"""Writes down every name that others see or that lies on disk, so that none changes by accident.

    tools/public_names.py           write tests/golden/public_names.yaml and tests/golden/crds.yaml
    tools/public_names.py --check   change nothing; exit with 1 and show what differs

tests/unit/test_public_names.py makes the same comparison. What has a registry is asked for (CRDs, commands, gates,
metrics, errors, the chart, a fresh data directory); the rest is read from the string literals of the sources, by their
shape. No module, class, function or parameter of ours is named in the result: files can move and identifiers can change
without a difference. A line that goes is a promise that is broken, unless the old name is still understood.
"""

from __future__ import annotations

import ast
import asyncio
import difflib
import importlib
import inspect
import re
import sqlite3
import sys
import tempfile
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import orjson
import yaml

from planform.api.builtin import BUILTIN_KINDS
from planform.api.declarations import Declared
from planform.api.extensions import crds
from planform.app import Settings, open_control_plane
from planform.blueprints.discovery import function_list
from planform.blueprints.functions import Policy
from planform.blueprints.shipped import shipped_catalogue
from planform.builtin.catalogue import list_builtins
from planform.features import FEATURES

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
from tools import reference

ROOT: Final = Path(__file__).parents[1]
GOLDEN: Final = ROOT / "tests" / "golden" / "public_names.yaml"
SOURCES: Final = (ROOT / "src", ROOT / "sdk" / "src")
CHART: Final = ROOT / "deploy" / "helm" / "planform"

CRD_DIGESTS: Final = GOLDEN.with_name("crds.yaml")

_DIGESTS_HEAD: Final = "# Written by tools/public_names.py: the SHA-256 of every CRD as canonical JSON.\n"
_HEAD: Final = "# Written by tools/public_names.py: every name that others see or that lies on disk.\n"

# Literals that are names for others, by their shape. What stands in a sentence is found by the first alone.
_QUALIFIED: Final = re.compile(
    r"[\w.{}-]*\b(?:planform\.dev|crossplane\.io|kanister\.io|k8s\.io|kubernetes\.io)(?:/[\w.{}/-]*[\w{}])?"
)
_SHAPES: Final[Mapping[str, re.Pattern[str]]] = {
    "CamelCase words (kinds, condition types, reasons, values)": re.compile(r"(?=.*[a-z])[A-Z][A-Za-z0-9]+"),
    "hyphenated words (objects, field managers, leases, headers)": re.compile(r"[A-Za-z][a-z0-9]*(-[A-Za-z0-9{}]+)+-?"),
    "environment variables": re.compile(r"_?[A-Z][A-Z0-9]*_[A-Z0-9_]+"),
    "paths": re.compile(r"/[\w.{}/-]*[\w{}][\w.{}/-]*"),
    "files": re.compile(r"[\w{}-]*\.(?:db|json|jsonl|yaml|crt|key|pem|pub|lock|sqlite|tar|gz|tgz|zst|csv|token|id)"),
}


def collected() -> dict[str, Any]:
    """Everything, by subject."""
    sources = Sources.read(SOURCES)
    texts = sorted(set(sources.texts()))
    return {
        "CRDs": _crds(),
        "built-in kinds": sorted(f"{kind.plural}.{kind.api_version}" for kind in BUILTIN_KINDS),
        "commands": dict(_commands()),
        "config file keys": _config_keys(),
        "exit codes": sorted(set(sources.exit_codes())),
        "feature gates": {name: _gate(gate) for name, gate in sorted(FEATURES.items())},
        "errors": sorted({_error(kind) for kind in reference.errors()}),
        "metrics": {fact.name: [fact.kind, *fact.labels] for fact in reference.metrics()},
        "spans": dict(sorted(sources.spans().items())),
        "span attributes": sorted(set(sources.span_attributes())),
        "chart values": sorted(_leaves(yaml.safe_load((CHART / "values.yaml").read_text()))),
        "chart objects": _chart_names(),
        "phase functions": dict(_phase_functions()),
        "built-in functions": sorted(" ".join([each.name, *each.aliases, each.version]) for each in list_builtins()),
        "data directory": asyncio.run(_data_directory()),
        "qualified names": sorted({found for text in texts for found in _QUALIFIED.findall(text)}),
        **{subject: [text for text in texts if shape.fullmatch(text)] for subject, shape in _SHAPES.items()},
        "keys of JSON": sorted({*sources.keys(), *_declared_keys(Declared)}),
        "records": sorted(set(_records(sources)) - {""}),
        "SDK": _sdk(),
    }


def crd_digests() -> str:
    """The other file: a field of a CRD that only changes its meaning is no new name, and yet seen by others."""
    digests = {
        crd["metadata"]["name"]: sha256(orjson.dumps(crd, option=orjson.OPT_SORT_KEYS)).hexdigest() for crd in crds()
    }
    return _DIGESTS_HEAD + yaml.dump(digests, Dumper=yaml.CSafeDumper)


def rendered() -> str:
    """The file."""
    return _HEAD + yaml.dump(collected(), Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, width=1000)


# -- what has a registry


def _crds() -> dict[str, Any]:
    found = {}
    for crd in crds():
        spec = crd["spec"]
        names = spec["names"]
        found[crd["metadata"]["name"]] = {
            "kind": names["kind"],
            "scope": spec["scope"],
            "short names": names.get("shortNames") or [],
            "categories": names.get("categories") or [],
            "versions": {each["name"]: _version(each) for each in spec["versions"]},
        }
    return dict(sorted(found.items()))


def _declared_keys(kind: type[Declared]) -> Iterator[str]:
    """The fields of everything declared: they were keys of dicts before, and are the same names."""
    if kind.__module__.startswith("planform."):
        yield from kind.__struct_encode_fields__
    for each in kind.__subclasses__():
        yield from _declared_keys(each)


def _version(version: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "served": version["served"],
        "stored": version["storage"],
        "columns": [f"{each['name']} {each['jsonPath']}" for each in version.get("additionalPrinterColumns") or ()],
        "fields": sorted(_fields(version["schema"]["openAPIV3Schema"], "")),
    }


def _fields(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """Every field's path, with the values that it may have and the one that it has when nobody says."""
    values = f" of {' '.join(map(str, schema['enum']))}" if schema.get("enum") else ""
    default = f" = {schema['default']}" if "default" in schema else ""
    if path:
        yield f"{path}{values}{default}"
    for name, below in (schema.get("properties") or {}).items():
        yield from _fields(below, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        yield from _fields(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _fields(schema["additionalProperties"], f"{path}.*")


def _commands() -> Iterator[tuple[str, dict[str, str]]]:
    """Arguments, options and defaults of every command, as the installed program has them."""
    assert any(each.name == "planform" for each in entry_points(group="console_scripts"))
    for path, command, context in reference.commands():
        yield path, {_parameter(each): _answer(each, context) for each in command.params}


def _parameter(parameter: click.Parameter) -> str:
    """How it is written; an argument by its place, as nobody writes its name."""
    if isinstance(parameter, click.Argument):
        return f"{parameter.make_metavar(click.Context(click.Command('it')))}"
    return " ".join([*parameter.opts, *parameter.secondary_opts])


def _answer(parameter: click.Parameter, context: click.Context) -> str:
    kind = f"of {' '.join(parameter.type.choices)}" if isinstance(parameter.type, click.Choice) else parameter.type.name
    many = " several" if parameter.multiple or parameter.nargs == -1 else ""
    flag = " flag" if isinstance(parameter, click.Option) and parameter.is_flag else ""
    needed = " required" if parameter.required else ""
    hidden = " hidden" if getattr(parameter, "hidden", False) else ""
    default = parameter.get_default(context, call=False)
    known = "" if default is None or callable(default) or "Sentinel" in type(default).__name__ else f" = {default}"
    variable = f" ${parameter.envvar}" if parameter.envvar else ""
    return f"{kind}{many}{flag}{needed}{hidden}{known}{variable}"


def _config_keys() -> list[str]:
    """Of the file and the environment of `planform up` and `planform controllers`, both made from the options."""
    found = []
    for path, command, context in reference.commands():
        if context.auto_envvar_prefix and path in ("planform up", "planform controllers"):
            for option in command.params:
                longest = max(option.opts, key=len).lstrip("-")
                found.append(f"{path}: {longest} {context.auto_envvar_prefix}_{(option.name or '').upper()}")
    return sorted(found)


def _gate(gate: Any) -> str:
    return f"{gate.stage} {'on' if gate.default else 'off'} {gate.alias}".strip()


def _error(kind: type[Any]) -> str:
    return f"{kind.reason} {getattr(kind, 'code', '')} {'retried' if kind.retryable else ''}".strip()


def _leaves(value: Any, path: str = "") -> Iterator[str]:
    """Every path of a document, with what stands there."""
    if isinstance(value, dict) and value:
        for key, below in value.items():
            yield from _leaves(below, f"{path}.{key}")
    else:
        yield f"{path} = {value}"


def _chart_names() -> list[str]:
    """Kinds, names, labels and ports that the templates spell out, as they stand."""
    wanted = re.compile(
        r"^\s*(?:- )?((?:kind|name|[\w.-]+/[\w.-]+|port|containerPort|path|apiVersion): .*)$", re.MULTILINE
    )
    files = sorted(file for file in (CHART / "templates").rglob("*") if file.suffix in (".yaml", ".tpl"))
    return sorted({" ".join(line.split()) for file in files for line in wanted.findall(file.read_text())})


def _phase_functions() -> Iterator[tuple[str, list[str]]]:
    for function in function_list(shipped_catalogue(policy=Policy(), plugins=lambda: ())):
        versions = []
        for version in function["versions"]:
            needed, others = version.get("requiredArgs") or (), version.get("arguments", ())
            shown = ["any"] if others is None else [*(f"{each}!" for each in needed), *others]
            versions.append(" ".join([version["version"], version["state"], *shown]))
        yield function["name"], versions


async def _data_directory() -> dict[str, Any]:
    """What a control plane that has just begun keeps, and how its databases are laid out."""
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory) / "data"
        async with open_control_plane(Settings(data=data, synchronous="OFF")) as plane:
            del plane
        files = sorted(str(path.relative_to(data)) for path in data.rglob("*") if path.is_file())
        databases = {}
        for name in files:
            if (data / name).read_bytes()[:15] == b"SQLite format 3":
                databases[name] = _tables(data / name)
        return {"files": sorted({re.sub(r"[0-9a-f]{16,}", "DIGEST", name) for name in files}), "databases": databases}


def _tables(file: Path) -> list[str]:
    connection = sqlite3.connect(file)
    try:
        rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        pragmas = {name: connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")}
    finally:
        connection.close()
    marks = [f"{name} = {value}" for name, (value,) in pragmas.items()]
    return marks + sorted(" ".join(sql.split()) for (sql,) in rows)


def _sdk() -> dict[str, str]:
    """What function authors import, with its parameters."""
    sdk = importlib.import_module("planform_sdk")
    found = {}
    for name in sorted(sdk.__all__):
        value = getattr(sdk, name)
        if inspect.isclass(value):
            public = sorted(set(dir(value)) - {*dir(int), *dir(Exception)})
            public = [each for each in public if not each.startswith("_")]
            found[name] = " ".join(public)
        elif callable(value):
            found[name] = " ".join(map(str, inspect.signature(value).parameters))
        else:
            found[name] = type(value).__name__
    return found


# -- what only the sources say


@dataclass
class Module:
    """One source file, and the names of its top level that are strings."""

    name: str
    tree: ast.Module
    nodes: list[ast.AST]
    constants: dict[str, ast.expr] = field(default_factory=dict)
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)


class Sources:
    """Every module of ours, parsed; nothing of it is imported."""

    def __init__(self, modules: Iterable[Module]) -> None:
        self.modules = {module.name: module for module in modules}

    @classmethod
    def read(cls, folders: Iterable[Path]) -> Sources:
        return cls(
            _module(path, folder)
            for folder in folders
            for path in sorted(folder.rglob("*.py"))
            if not path.name.endswith("_pb2.py") and not path.name.endswith("_pb2_grpc.py")
        )

    def texts(self) -> Iterator[str]:
        """Every string literal that is neither documentation nor about Python itself; `{}` is what is not known."""
        for module in self.modules.values():
            skipped = set(_not_for_others(module.nodes))
            for node in _walk(module.tree, skipped):
                if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp):
                    text = self.text(node, module)
                    if text is not None:
                        yield text

    def text(self, node: ast.expr, module: Module, depth: int = 0) -> str | None:
        """The value of a string expression, as far as it can be read without running anything."""
        if depth > 8:
            return None
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else None
        if isinstance(node, ast.JoinedStr):
            parts = (each.value if isinstance(each, ast.FormattedValue) else each for each in node.values)
            return "".join("{}" if (text := self.text(each, module, depth + 1)) is None else text for each in parts)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.text(node.left, module, depth + 1), self.text(node.right, module, depth + 1)
            return None if left is None or right is None else left + right
        if isinstance(node, ast.Name):
            return self.constant(node.id, module, depth + 1)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            where = module.imported.get(node.value.id)
            target = self.modules.get(".".join(filter(None, where))) if where else None
            return self.constant(node.attr, target, depth + 1) if target else None
        return None

    def constant(self, name: str, module: Module, depth: int) -> str | None:
        if name in module.constants:
            return self.text(module.constants[name], module, depth)
        if name in module.imported:
            source, original = module.imported[name]
            if source in self.modules:
                return self.constant(original, self.modules[source], depth + 1) if depth < 8 else None
        return None

    def calls(self) -> Iterator[tuple[Module, ast.Call]]:
        for module in self.modules.values():
            for node in module.nodes:
                if isinstance(node, ast.Call):
                    yield module, node

    def exit_codes(self) -> Iterator[int]:
        """What the process of a command can end with, where it is a number in the code."""
        for _, call in self.calls():
            if _called(call) == "exit" and call.args and isinstance(call.args[0], ast.Constant):
                value = call.args[0].value
                if isinstance(value, int):
                    yield value
        yield from (code for code, _ in reference.EXIT_CODES)

    def spans(self) -> dict[str, list[str]]:
        """Spans by name, with the attributes they begin with."""
        found = {}
        for module, call in self.calls():
            if _called(call) == "span" and call.args and (name := self.text(call.args[0], module)):
                given = next((each.value for each in call.keywords if each.arg == "attributes"), None)
                keys = given.keys if isinstance(given, ast.Dict) else []
                found[name] = sorted(text for each in keys if each and (text := self.text(each, module)))
        return found

    def span_attributes(self) -> Iterator[str]:
        """What is set on a span later: `span.set(name=value)`."""
        for _, call in self.calls():
            if _called(call) == "set" and call.keywords and not call.args:
                yield from (each.arg for each in call.keywords if each.arg)

    def keys(self) -> Iterator[str]:
        """The keys of every dict that is written out in the code."""
        for module in self.modules.values():
            for node in module.nodes:
                if isinstance(node, ast.Dict):
                    for key in node.keys:
                        text = self.text(key, module) if key is not None else None
                        if text is not None and re.fullmatch(r"[A-Za-z$][\w.$/-]*", text):
                            yield text


def _module(path: Path, folder: Path) -> Module:
    name = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
    tree = ast.parse(path.read_text())
    module = Module(name, tree, list(ast.walk(tree)))
    for node in module.tree.body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    module.constants[target.id] = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            module.constants[node.target.id] = node.value
    for inner in module.nodes:
        if isinstance(inner, ast.ImportFrom) and inner.module:
            for alias in inner.names:
                module.imported[alias.asname or alias.name] = (inner.module, alias.name)
    return module


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


_ABOUT_PYTHON: Final = ("TypeVar", "NewType", "ParamSpec", "cast", "getattr", "setattr", "hasattr", "attrgetter")
_LOGGED: Final = ("debug", "info", "warning", "error", "exception", "getLogger", "ContextVar")


def _not_for_others(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Docstrings, annotations, `__all__` and the like: strings that name Python's own things, or explain them."""
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value
        if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation is not None:
            yield node.annotation
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield node.returns
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id in ("__all__", "__slots__") for target in node.targets
        ):
            yield node.value
        if isinstance(node, ast.Call) and _called(node) in (*_ABOUT_PYTHON, *_LOGGED):
            yield from node.args


def _walk(node: ast.AST, skipped: set[ast.AST]) -> Iterator[ast.expr]:
    """Expressions, each whole one alone: not the parts of a string that is put together."""
    if node in skipped:
        return
    if isinstance(node, ast.expr):
        yield node
    if isinstance(node, ast.JoinedStr):
        for each in node.values:
            if isinstance(each, ast.FormattedValue):
                yield from _walk(each.value, skipped)
        return
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, skipped)


# -- records: structs that are read or written as JSON or msgpack


def _records(sources: Sources) -> Iterator[str]:
    """Of each, the names of its fields as they are written, or how many if it is written as a list.

    Records are what a decoder is made for, what is spelled in camelCase, and what those hold.
    """
    waiting = list(_roots(sources))
    known = set[type]()
    while waiting:
        kind = waiting.pop()
        if kind in known:
            continue
        known.add(kind)
        waiting += list(_held(kind))
    for kind in known:
        names = kind.__struct_encode_fields__  # type: ignore[attr-defined]
        if kind.__struct_config__.array_like:  # type: ignore[attr-defined]
            yield f"list of {len(names)}"
        else:
            yield " ".join(names)


def _roots(sources: Sources) -> Iterator[type]:
    for module in sources.modules.values():  # all first, so that every class knows those that derive from it
        if any(isinstance(node, ast.ClassDef) and node.keywords for node in module.nodes):
            importlib.import_module(module.name)
    for module in sources.modules.values():
        wanted = set[str]()
        for node in module.nodes:
            if isinstance(node, ast.ClassDef) and any(each.arg == "rename" for each in node.keywords):
                wanted.add(node.name)
            if isinstance(node, ast.Call) and _called(node) in ("Decoder", "decode", "convert"):
                given = [*node.args, *(each.value for each in node.keywords if each.arg == "type")]
                wanted |= {inner.id for each in given for inner in ast.walk(each) if isinstance(inner, ast.Name)}
        if wanted and any("msgspec" in ast.unparse(each) for each in module.tree.body if isinstance(each, ast.Import)):
            running = importlib.import_module(module.name)
            for name in wanted:
                found = getattr(running, name, None)
                if _is_struct(found):
                    yield from _with_below(found)


def _is_struct(value: Any) -> typing.TypeGuard[type]:
    return inspect.isclass(value) and issubclass(value, msgspec.Struct)


def _with_below(kind: type) -> Iterator[type]:
    yield kind
    below: list[type] = type.__subclasses__(kind)
    for each in (each for each in below if each.__module__.startswith("planform")):
        yield from _with_below(each)


def _held(kind: type) -> Iterator[type]:
    for each in typing.get_type_hints(kind).values():
        yield from _structs_in(each)


def _structs_in(hint: Any) -> Iterator[type]:
    if _is_struct(hint):
        yield hint
    for each in typing.get_args(hint):
        yield from _structs_in(each)


# -- the command


def difference(expected: str, found: str) -> list[str]:
    """What changed, a line for each name."""
    lines = difflib.unified_diff(expected.splitlines(), found.splitlines(), "before", "now", lineterm="", n=0)
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def main(arguments: list[str]) -> int:
    found = rendered()
    if arguments == ["--check"]:
        changed = difference(GOLDEN.read_text() if GOLDEN.exists() else "", found)
        print("\n".join(changed))
        return 1 if changed else 0
    GOLDEN.write_text(found)
    CRD_DIGESTS.write_text(crd_digests())
    print(f"{GOLDEN.relative_to(ROOT)}: {len(found.splitlines())} names")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
