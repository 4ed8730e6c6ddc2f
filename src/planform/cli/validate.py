"""`planform validate`: objects against the schemas of CRDs and XRDs, without a control plane."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.builtin import find_builtin_name
from planform.cli.output import output_option, write_data
from planform.cli.render_inputs import read_documents
from planform.composition.definitions import claim_crd, composite_crd
from planform.composition.modes import pipeline_of
from planform.composition.xr import RESOURCE_NAME_ANNOTATION
from planform.errors import UsageError
from planform.machinery import yamlish

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

    Both are files or directories, separated by commas, or - for standard input. Extensions are CRDs and XRDs; built-in
    Kubernetes kinds are known. Exits with 1 if anything is invalid.
    """
    if extensions == resources == "-":
        raise UsageError("extensions and resources cannot both come from standard input")
    schemas = Schemas(_read(extensions))
    given = _read(resources)
    objects = [each for obj in given for each in (obj, *_step_inputs(obj))]
    warnings = [warning for obj in given for warning in _own_ways(obj)]
    if not objects:
        raise UsageError(f"no objects in {resources}")
    verdicts = [schemas.check(obj) for obj in objects]
    missing = sum(verdict.status == "missingSchema" for verdict in verdicts)
    invalid = sum(verdict.status == "invalid" for verdict in verdicts)
    valid = len(verdicts) - missing - invalid
    if output == "text":
        for verdict in verdicts:
            for line in verdict.lines(skip_success=skip_success_results):
                click.echo(line)
        for warning in warnings:
            click.echo(f"[!] will not run on Crossplane: {warning}")
        click.echo(
            f"Total {len(verdicts)} resources: {missing} missing schemas, {valid} success cases, "
            f"{invalid} failure cases"
        )
    else:
        summary = {"total": len(verdicts), "valid": valid, "invalid": invalid, "missingSchemas": missing}
        found = {"summary": summary, "resources": [verdict.data() for verdict in verdicts]}
        write_data({**found, "warnings": warnings} if warnings else found, output)
    if invalid or (missing and error_on_missing_schemas):
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

    def check(self, obj: Object) -> Verdict:
        """Default, prune, validate and run CEL rules on a copy, as an API server would."""
        kind, metadata = gvk_of(obj), obj["metadata"]
        annotations = metadata.get("annotations") or {}
        name = str(
            metadata.get("name") or annotations.get(RESOURCE_NAME_ANNOTATION) or metadata.get("generateName") or ""
        )
        verdict = Verdict(str(obj["apiVersion"]), str(obj["kind"]), name, str(metadata.get("namespace") or ""))
        schema = self._schemas.get(kind)
        copy = yamlish.load(yamlish.dump(obj))
        if schema is None:
            return self._check_builtin(kind, copy, verdict)
        from planform.machinery.cel import compile_rules
        from planform.machinery.schema import compile_schema

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
        from planform.machinery.schema import compile_schema

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


def _crds(extension: Object) -> Iterator[Object]:
    if extension["kind"] == "CustomResourceDefinition":
        yield extension
    elif extension["kind"] == "CompositeResourceDefinition":
        yield composite_crd(extension)
        claim = claim_crd(extension)
        if claim is not None:
            yield claim


def _step_inputs(obj: Object) -> Iterator[Object]:
    """The inputs of a Composition's steps are objects with schemas of their own."""
    if obj["kind"] != "Composition":
        return
    for step in pipeline_of(obj["spec"], str(obj["metadata"].get("name", ""))):
        given = step.get("input")
        if isinstance(given, dict) and given.get("apiVersion") and given.get("kind"):
            name = f"{obj['metadata'].get('name', '')}/{step.get('step', '')}"
            yield {**given, "metadata": {"name": name, **(given.get("metadata") or {})}}


def _own_ways(obj: Object) -> Iterator[str]:
    """What a Composition's inputs say that only functions of ours understand."""
    if obj["kind"] != "Composition":
        return
    from planform.builtin.portability import own_ways

    name = str(obj["metadata"].get("name", ""))
    for step in pipeline_of(obj["spec"], name):
        builtin = find_builtin_name(str((step.get("functionRef") or {}).get("name") or ""))
        for way in own_ways(builtin.name, step.get("input")) if builtin is not None else ():
            yield f'Composition "{name}", step "{step.get("step", "")}": {way}'


def _error(kind: str, path: str, message: str) -> dict[str, str]:
    return {"type": kind, "field": path, "message": message}


def _read(words: str) -> list[Object]:
    objects: list[Object] = []
    for word in words.split(","):
        if word == "-":
            objects += _from_text(sys.stdin.buffer.read())
            continue
        path = Path(word)
        if path.is_dir():
            for file in sorted(path.rglob("*")):
                if file.suffix in (".yaml", ".yml") and file.is_file():
                    objects += read_documents(file)
        else:
            objects += read_documents(path)
    return objects


def _from_text(text: bytes) -> list[Object]:
    try:
        documents = [document for document in yamlish.load_all(text) if document is not None]
    except ValueError as error:
        raise UsageError(f"standard input: {error}") from error
    for number, document in enumerate(documents, start=1):
        if not isinstance(document, dict) or not document.get("apiVersion") or not document.get("kind"):
            raise UsageError(f"standard input, document {number}: not an object with apiVersion and kind")
        document.setdefault("metadata", {})
    return documents
