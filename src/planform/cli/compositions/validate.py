"""`planform validate`: objects against the schemas of CRDs and XRDs, without a control plane."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import click

from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.metadata import name_of
from planform.api.xr import RESOURCE_NAME_ANNOTATION
from planform.apimachinery import yaml_loader
from planform.builtin import find_builtin_name
from planform.cli.compositions.render_inputs import read_documents
from planform.cli.output import output_option, write_data
from planform.definitions.crds import claim_crd, composite_crd
from planform.errors import PlanformError, UsageError
from planform.pipeline.modes import pipeline_of

INVALID = 1


@dataclass
class Verdict:
    """What was found out about one object."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    status: str = "valid"
    errors: list[dict[str, str]] = field(default_factory=list)

    def lines(self, *, skip_success: bool) -> Iterator[str]:
        shown = f"{self.api_version}, Kind={self.kind}"
        if self.status == "missingSchema":
            yield f"[!] could not find CRD/XRD for: {shown}"
        elif self.status == "valid" and not skip_success:
            yield f"[✓] {shown}, {self.name} validated successfully"
        for error in self.errors:
            kind = "CEL validation error" if error["type"] == "cel" else "schema validation error"
            yield f"[x] {kind} {shown}, {self.name} : {error['message']}"

    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.name,
            "status": self.status,
        }
        if self.namespace:
            found["namespace"] = self.namespace
        if self.errors:
            found["errors"] = self.errors
        return found


@click.command()
@click.argument("extensions")
@click.argument("resources")
@click.option("--skip-success-results", is_flag=True, help="Print only what is wrong.")
@click.option("--error-on-missing-schemas", is_flag=True, help="An object without a schema is a failure.")
@output_option("text", "json", "yaml", default="text")
def validate(
    extensions: str, resources: str, skip_success_results: bool, error_on_missing_schemas: bool, output: str
) -> None:
    """Check RESOURCES against the schemas in EXTENSIONS.

    Both are files or directories, separated by commas, or - for standard input. Extensions are CRDs and XRDs; kinds of
    Kubernetes and planform, and inputs of built-in functions, are known. A file that cannot be read is reported, and
    the rest checked all the same. Fields in patches and Go templates of Compositions that no schema has are listed,
    with the one that was probably meant. Exits with 1 if anything is invalid.
    """
    if extensions == resources == "-":
        raise UsageError("extensions and resources cannot both come from standard input")
    unread: list[str] = []
    known = _read(extensions, unread)
    schemas = Schemas(known)
    given = _read(resources, unread)
    objects = [each for obj in given for each in ((obj, ""), *_step_inputs(obj))]
    warnings = [warning for obj in given for warning in _own_ways(obj)]
    lints = _field_lints(given, Schemas([*_definitions(given), *known]))
    if not objects and not unread:
        raise UsageError(f"no objects in {resources}")
    verdicts = [schemas.check(obj, function) for obj, function in objects]
    missing = sum(verdict.status == "missingSchema" for verdict in verdicts)
    invalid = sum(verdict.status == "invalid" for verdict in verdicts)
    valid = len(verdicts) - missing - invalid
    if output == "text":
        for verdict in verdicts:
            for line in verdict.lines(skip_success=skip_success_results):
                click.echo(line)
        for problem in dict.fromkeys(unread):
            click.echo(f"[x] {problem}")
        for warning in warnings:
            click.echo(f"[!] will not run on Crossplane: {warning}")
        for lint in lints:
            click.echo(f"[!] {lint}")
        click.echo(
            f"Total {len(verdicts)} resources: {missing} missing schemas, {valid} success cases, "
            f"{invalid} failure cases"
        )
    else:
        summary = {"total": len(verdicts), "valid": valid, "invalid": invalid, "missingSchemas": missing}
        found = {"summary": summary, "resources": [verdict.data() for verdict in verdicts]}
        found |= {"unread": list(dict.fromkeys(unread))} if unread else {}
        found |= {"warnings": warnings} if warnings else {}
        write_data(found | ({"unknownFields": lints} if lints else {}), output)
    if invalid or unread or (missing and error_on_missing_schemas):
        raise click.exceptions.Exit(INVALID)


class Schemas:
    """The schemas of custom and built-in kinds; later definitions of a kind win over earlier ones."""

    def __init__(self, extensions: Sequence[Object]) -> None:
        self._schemas: dict[GroupVersionKind, Object] = {}
        for extension in extensions:
            for crd in _crds(extension):
                spec = crd["spec"]
                for version in spec.get("versions") or ():
                    schema = (version.get("schema") or {}).get("openAPIV3Schema")
                    if schema:
                        key = GroupVersionKind(spec["group"], version["name"], spec["names"]["kind"])
                        self._schemas[key] = schema

    def find(self, kind: GroupVersionKind) -> Object | None:
        """The schema of a kind with references inlined; None if nobody gave it."""
        from planform.pipeline.running import builtin_schema

        return self._schemas.get(kind) or builtin_schema(kind)

    def check(self, obj: Object, function: str = "") -> Verdict:
        """Default, prune, validate and run CEL rules on a copy, as an API server would.

        With `function`, it is the input of a step, and a built-in function knows best what it takes.
        """
        kind, metadata = gvk_of(obj), obj["metadata"]
        annotations = metadata.get("annotations") or {}
        name = str(
            metadata.get("name") or annotations.get(RESOURCE_NAME_ANNOTATION) or metadata.get("generateName") or ""
        )
        verdict = Verdict(str(obj["apiVersion"]), str(obj["kind"]), name, str(metadata.get("namespace") or ""))
        schema = self._schemas.get(kind) or _own_schemas().get(kind)
        copy = yaml_loader.load(yaml_loader.dump(obj))
        if schema is None and function:
            return _check_input(function, copy, verdict)
        if schema is None:
            return self._check_builtin(kind, copy, verdict)
        from planform.apimachinery.cel import compile_rules
        from planform.apimachinery.schema import compile_schema

        findings = compile_schema(schema, root=True).admit(copy)
        verdict.errors += [_error("unknownField", path, f'unknown field: "{path}"') for path in findings.unknown]
        verdict.errors += [_error("schema", error.field, str(error)) for error in findings.errors]
        if not findings.errors:
            verdict.errors += [_error("cel", error.field, str(error)) for error in compile_rules(schema).check(copy)]
        if verdict.errors:
            verdict.status = "invalid"
        return verdict

    @staticmethod
    def _check_builtin(kind: GroupVersionKind, copy: Object, verdict: Verdict) -> Verdict:
        from planform.api import builtin
        from planform.apimachinery.schema import compile_schema

        try:
            schema = builtin.schema_of(kind)
        except KeyError:
            verdict.status = "missingSchema"
            return verdict
        properties = {name: value for name, value in schema["properties"].items() if name != "metadata"}
        compiled = compile_schema({**schema, "properties": properties}, resolve=builtin.resolve, root=True)
        findings = compiled.admit(copy)
        verdict.errors += [_error("unknownField", path, f'unknown field: "{path}"') for path in findings.unknown]
        verdict.errors += [_error("schema", error.field, str(error)) for error in findings.errors]
        if verdict.errors:
            verdict.status = "invalid"
        return verdict


@cache
def _own_schemas() -> dict[GroupVersionKind, Object]:
    """The kinds that every control plane of ours serves."""
    from planform.api.extensions import crds

    return {
        GroupVersionKind(crd["spec"]["group"], version["name"], crd["spec"]["names"]["kind"]): version["schema"][
            "openAPIV3Schema"
        ]
        for crd in crds()
        for version in crd["spec"]["versions"]
    }


def _check_input(function: str, given: Object, verdict: Verdict) -> Verdict:
    from planform.cli.compositions.input_checks import input_problem

    metadata = {key: value for key, value in given["metadata"].items() if key != "name"}
    problem = input_problem(function, {**given, "metadata": metadata})
    if problem is None:
        verdict.status = "missingSchema"
    elif problem:
        verdict.status = "invalid"
        verdict.errors.append(_error("schema", "input", problem))
    return verdict


def _crds(extension: Object) -> Iterator[Object]:
    if extension["kind"] == "CustomResourceDefinition":
        yield extension
    elif extension["kind"] == "CompositeResourceDefinition":
        yield composite_crd(extension)
        claim = claim_crd(extension)
        if claim is not None:
            yield claim


def _step_inputs(obj: Object) -> Iterator[tuple[Object, str]]:
    """The inputs of a Composition's steps are objects with schemas of their own; each with the function it is for."""
    if obj["kind"] != "Composition":
        return
    for step in _steps(obj):
        given = step.get("input")
        if isinstance(given, dict) and given.get("apiVersion") and given.get("kind"):
            name = f"{name_of(obj)}/{step.get('step', '')}"
            function = str((step.get("functionRef") or {}).get("name") or "")
            yield {**given, "metadata": {"name": name, **(given.get("metadata") or {})}}, function


def _steps(obj: Object) -> list[Object]:
    """The steps of a Composition; none if it is not a valid one, which its schema says better."""
    try:
        return pipeline_of(obj["spec"], name_of(obj))
    except (PlanformError, KeyError, TypeError, ValueError):
        return []


def _own_ways(obj: Object) -> Iterator[str]:
    """What a Composition's inputs say that only functions of ours understand."""
    if obj["kind"] != "Composition":
        return
    from planform.builtin.portability import own_ways

    name = name_of(obj)
    for step in _steps(obj):
        builtin = find_builtin_name(str((step.get("functionRef") or {}).get("name") or ""))
        for way in own_ways(builtin.name, step.get("input")) if builtin is not None else ():
            yield f'Composition "{name}", step "{step.get("step", "")}": {way}'


def _definitions(objects: Sequence[Object]) -> list[Object]:
    return [obj for obj in objects if obj["kind"] in ("CustomResourceDefinition", "CompositeResourceDefinition")]


def _field_lints(objects: Sequence[Object], schemas: Schemas) -> list[str]:
    """Fields in patches and templates of Compositions that no schema has."""
    from planform.compositions.field_lints import field_lints

    return [
        f'Composition "{name_of(obj)}", {lint}'
        for obj in objects
        if obj["kind"] == "Composition" and isinstance(obj.get("spec"), dict)
        for lint in field_lints(obj["spec"], schemas.find)
    ]


def _error(kind: str, path: str, message: str) -> dict[str, str]:
    return {"type": kind, "field": path, "message": message}


def _read(words: str, unread: list[str]) -> list[Object]:
    """What can be read; the rest is noted."""
    objects: list[Object] = []

    def read(file: Path) -> None:
        try:
            objects.extend(read_documents(file))
        except UsageError as error:
            unread.append(error.message)

    for word in words.split(","):
        if word == "-":
            objects += _from_text(sys.stdin.buffer.read())
            continue
        path = Path(word)
        if path.is_dir():
            for file in sorted(path.rglob("*")):
                if file.suffix in (".yaml", ".yml") and file.is_file():
                    read(file)
        elif path.exists():
            read(path)
        else:
            raise UsageError(f"{path} does not exist")
    return objects


def _from_text(text: bytes) -> list[Object]:
    try:
        documents = [document for document in yaml_loader.load_all(text) if document is not None]
    except ValueError as error:
        raise UsageError(f"standard input: {error}") from error
    for number, document in enumerate(documents, start=1):
        if not isinstance(document, dict) or not document.get("apiVersion") or not document.get("kind"):
            raise UsageError(f"standard input, document {number}: not an object with apiVersion and kind")
        document.setdefault("metadata", {})
    return documents
