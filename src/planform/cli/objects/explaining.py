"""`planform explain`: which fields a kind has, from the schemas that the control plane serves."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from planform.api.kinds import Kind, Object
from planform.cli.connection import Connected, connection_options, run
from planform.cli.output import output_option, write_data
from planform.errors import NotFound, UsageError

_WIDTH = 96


@click.command()
@click.argument("path")
@click.option("--recursive", is_flag=True, help="All fields below, without their descriptions.")
@output_option("text", "json", "yaml", default="text")
@connection_options
def explain(path: str, recursive: bool, output: str, kubeconfig: Path | None, context: str) -> None:
    """Show the fields of a kind: `planform explain apps`, `planform explain apps.spec.size`."""
    word, *fields = path.split(".")

    async def act(connected: Connected) -> tuple[Kind, Schemas, Object]:
        kind = await connected.find_kind(word)
        group = f"apis/{kind.group}" if kind.group else "api"
        try:
            document = await connected.raw(f"/openapi/v3/{group}/{kind.version}")
        except NotFound as error:
            error.hint = f"the server publishes no schema of {kind.api_version}"
            raise
        schemas = Schemas(document.get("components", {}).get("schemas", {}))
        return kind, schemas, schemas.below(schemas.of_kind(kind), fields, word)

    kind, schemas, schema = run(kubeconfig, context, act)
    if output != "text":
        write_data(schemas.inlined(schema), output)
        return
    click.echo(_page(kind, fields, schemas, schema, recursive=recursive))


class Schemas:
    """The schemas of one group and version, which may refer to each other."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named

    def of_kind(self, kind: Kind) -> Object:
        wanted = {"group": kind.group, "version": kind.version, "kind": kind.kind}
        for schema in self._named.values():
            if wanted in schema.get("x-kubernetes-group-version-kind", ()):
                found: Object = schema
                return found
        raise UsageError(f"the server publishes no schema of {kind.kind}", hint="planform get --kinds lists all kinds")

    def resolved(self, schema: Object) -> Object:
        """A schema in place of a reference to it; what stands beside the reference counts more."""
        references = [each["$ref"] for each in (schema, *schema.get("allOf", ())) if "$ref" in each]
        if not references:
            return schema
        target = self._named.get(str(references[0]).rpartition("/")[2], {})
        own = {name: value for name, value in schema.items() if name not in ("$ref", "allOf")}
        return {**self.resolved(target), **own}

    def element(self, schema: Object) -> Object:
        """What a field holds: the schema itself, of a list's items, or of a map's values."""
        schema = self.resolved(schema)
        inner = schema.get("items") or schema.get("additionalProperties")
        return self.element(inner) if isinstance(inner, dict) else schema

    def below(self, schema: Object, fields: Sequence[str], shown: str) -> Object:
        """The schema of a field; raises UsageError, naming those that there are."""
        for name in fields:
            properties = self.element(schema).get("properties") or {}
            if name not in properties:
                known = ", ".join(sorted(properties)) or "none"
                raise UsageError(f'{shown} has no field "{name}"', hint=f"it has: {known}")
            schema, shown = properties[name], f"{shown}.{name}"
        return self.resolved(schema)

    def type_of(self, schema: Object) -> str:
        schema = self.resolved(schema)
        if schema.get("x-kubernetes-int-or-string"):
            return "integer or string"
        if schema.get("type") == "array":
            return f"[]{self.type_of(schema.get('items') or {})}"
        if isinstance(inner := schema.get("additionalProperties"), dict):
            return f"map of {self.type_of(inner)}"
        return str(schema.get("type") or "object")

    def inlined(self, schema: Object, depth: int = 12) -> Any:
        """Without references, as deep as schemas go."""
        schema = self.resolved(schema)
        if depth == 0:
            return {"type": self.type_of(schema)}
        out = dict(schema)
        if "properties" in out:
            out["properties"] = {name: self.inlined(each, depth - 1) for name, each in out["properties"].items()}
        for member in ("items", "additionalProperties"):
            if isinstance(out.get(member), dict):
                out[member] = self.inlined(out[member], depth - 1)
        return out


def _page(kind: Kind, fields: Sequence[str], schemas: Schemas, schema: Object, *, recursive: bool) -> str:
    lines = [f"KIND:     {kind.kind}", f"VERSION:  {kind.api_version}"]
    if fields:
        lines.append(f"FIELD:    {'.'.join(fields)} <{schemas.type_of(schema)}>")
    lines += ["", "DESCRIPTION:", *_wrapped(schema.get("description") or "no description", 4)]
    lines += [f"    {fact}" for fact in _facts(schema)]
    element = schemas.element(schema)
    if element.get("properties"):
        lines += ["", "FIELDS:", *_fields(schemas, element, 2, recursive=recursive)]
    elif element.get("x-kubernetes-preserve-unknown-fields"):
        lines += ["", "FIELDS: any"]
    return "\n".join(lines)


def _fields(schemas: Schemas, schema: Object, indent: int, *, recursive: bool, depth: int = 12) -> list[str]:
    lines: list[str] = []
    required = set(schema.get("required") or ())
    for name, field in sorted((schema.get("properties") or {}).items()):
        mark = " (required)" if name in required else ""
        lines.append(f"{' ' * indent}{name} <{schemas.type_of(field)}>{mark}")
        if recursive and depth:
            lines += _fields(schemas, schemas.element(field), indent + 2, recursive=True, depth=depth - 1)
        elif not recursive:
            whole = schemas.resolved(field)
            lines += _wrapped(whole.get("description") or "", indent + 4)
            lines += [f"{' ' * (indent + 4)}{fact}" for fact in _facts(whole)]
            lines.append("")
    return lines if recursive else lines[:-1] if indent == 2 else lines


def _facts(schema: Object) -> list[str]:
    """Limits of a field, in words."""
    import orjson

    facts = []
    if "default" in schema:
        facts.append(f"default: {orjson.dumps(schema['default']).decode()}")
    if schema.get("enum"):
        facts.append("one of: " + ", ".join(str(value) for value in schema["enum"]))
    words = {"minimum": "at least", "maximum": "at most", "maxLength": "length at most", "pattern": "pattern"}
    facts += [f"{word}: {schema[name]}" for name, word in words.items() if name in schema]
    return facts


def _wrapped(text: str, indent: int) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=" " * indent, subsequent_indent=" " * indent)
