"""Typed models from schemas: give an XRD, a CRD or the schema of an input, get the source of msgspec types.

    source = generate(yaml.safe_load(open("xrd.yaml")))

The same document gives the same source. A field that is not required and was not set is `UNSET` and is left out when
the model is written, so a function owns just what it sets. Fields are named as Python names them (`for_provider`) and
written as the schema names them (`forProvider`).
"""

from __future__ import annotations

import keyword
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]

_WIDTH = 112
_SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
# Names that a field must not take from the annotations around it, nor from every Struct.
_TAKEN = frozenset({"str", "int", "float", "bool", "list", "dict", "field", "self", "cls"})
_OBJECT_FIELDS = ("apiVersion", "kind", "metadata")
_IMPORTS = {"typing": ("Annotated", "Any", "Literal"), "msgspec": ("UNSET", "Meta", "Struct", "UnsetType", "field")}


class ModelError(ValueError):
    """A document that no model can be made from."""


def generate(
    document: Mapping[str, Any], *, version: str | None = None, name: str | None = None, defaults: bool = False
) -> str:
    """Give the source of a module with the models of a document.

    version    which version of an XRD or a CRD; else the one that compositions refer to or that is stored
    name       what to call the outermost type; else the kind, or the title of a bare schema
    defaults   give fields the defaults of the schema: for inputs, to which no API server applies them

    Raises ModelError if the document has no schema.
    """
    schema, identity = _find_schema(document, version)
    root = _identifier(name or (identity[1] if identity else str(schema.get("title") or "Model")))
    module = _Module(defaults)
    module.add_class(root, schema, identity)
    title = f"{identity[1]} of {identity[0]}" if identity else root
    return module.source(f"Models of {title}, made from its schema by planform; a change here is lost.")


def _find_schema(document: Mapping[str, Any], version: str | None) -> tuple[Schema, tuple[str, str] | None]:
    """The schema, and the apiVersion and kind of its objects if the document says them."""
    kind = document.get("kind")
    if kind not in ("CompositeResourceDefinition", "CustomResourceDefinition"):
        if isinstance(document.get("properties"), Mapping) or document.get("type") == "object":
            return document, None
        raise ModelError(f"neither an XRD, nor a CRD, nor the schema of an object (kind: {kind or 'none'})")
    spec = document.get("spec") or {}
    versions: list[Mapping[str, Any]] = spec.get("versions") or []
    if version is None:
        chosen = next((each for each in versions if each.get("referenceable") or each.get("storage")), None)
        chosen = chosen or (versions[-1] if versions else None)
    else:
        chosen = next((each for each in versions if each.get("name") == version), None)
    there = ", ".join(str(each.get("name")) for each in versions) or "none"
    if chosen is None:
        raise ModelError(f"{kind} has no version {version or 'at all'} (there are: {there})")
    schema = (chosen.get("schema") or {}).get("openAPIV3Schema")
    names = spec.get("names") or {}
    if not isinstance(schema, Mapping) or not names.get("kind"):
        raise ModelError(f"{kind}, version {chosen.get('name')}: no schema or no kind")
    return schema, (f"{spec.get('group')}/{chosen.get('name')}", str(names["kind"]))


class _Module:
    """The classes of a module, in the order in which they are met, and the names they use."""

    def __init__(self, defaults: bool) -> None:
        self._defaults = defaults
        self._classes: list[str] = []
        self._names: set[str] = set()

    def source(self, title: str) -> str:
        body = "\n\n\n".join(self._classes)
        used = set(re.findall(r"\w+", re.sub(r'"""(?:[^"\\]|\\.|"(?!""))*"""', "", body)))
        imports = []
        for module, names in _IMPORTS.items():
            wanted = [each for each in names if each in used]
            if wanted:
                imports.append(f"from {module} import {', '.join(wanted)}")
        return f'"""{title}"""\n\nfrom __future__ import annotations\n\n' + "\n\n".join(imports) + f"\n\n\n{body}\n"

    def add_class(self, wanted: str, schema: Schema, identity: tuple[str, str] | None = None) -> str:
        """Add the class of an object's schema, and those of the objects in it; give its name."""
        name = _unused(wanted, self._names)
        place = len(self._classes)
        self._classes.append("")
        lines = [f'class {name}(Struct, kw_only=True, rename="camel"):', *_docstring(_class_text(name, schema))]
        required = set(schema.get("required") or ())
        properties = dict(schema.get("properties") or {})
        taken: set[str] = set()
        if identity is not None:
            lines += ["", f'    api_version: str = "{identity[0]}"', f'    kind: str = "{identity[1]}"']
            lines += ["    metadata: dict[str, Any] | UnsetType = UNSET"]
            taken |= {"api_version", "kind", "metadata"}
            properties = {key: value for key, value in properties.items() if key not in _OBJECT_FIELDS}
        for key in sorted(properties):
            lines += ["", *self._field(name, key, properties[key] or {}, key in required, taken)]
        self._classes[place] = "\n".join(lines)
        return name

    def _field(self, owner: str, key: str, schema: Schema, required: bool, taken: set[str]) -> Iterator[str]:
        if re.search(r'["\\\x00-\x1f]', key):  # msgspec writes names as they are
            raise ModelError(f"{owner}: no model can have a field named {key!r}")
        attribute = _unused(_attribute(key), taken)
        annotation = self._type(owner + _pascal(key), schema)
        default = schema.get("default")
        if self._defaults and isinstance(default, str | int | float | bool):
            value = _literal(default)
        elif required:
            value = ""
        else:
            value = "UNSET"
            annotation += " | UnsetType"
        if _camel(attribute) != key:
            arguments = [f"default={value}"] if value else []
            value = f"field({', '.join([*arguments, f'name={_literal(key)}'])})"
        yield f"    {attribute}: {annotation}" + (f" = {value}" if value else "")
        if text := str(schema.get("description") or "").strip():
            yield from _docstring(text)

    def _type(self, name: str, schema: Schema) -> str:
        base = self._base_type(name, schema)
        return f"{base} | None" if schema.get("nullable") and base != "Any" else base

    def _base_type(self, name: str, schema: Schema) -> str:
        if schema.get("x-kubernetes-int-or-string") or _is_int_or_string(schema):
            return "int | str"
        kind = schema.get("type")
        options = schema.get("enum")
        if options and all(isinstance(each, str | int) for each in options):
            return f"Literal[{', '.join(_literal(each) for each in options)}]"
        if kind in _SCALARS:
            return _constrained(_SCALARS[kind], schema)
        if kind == "array":
            item = self._type(name + "Item", schema.get("items") or {})
            return _constrained(f"list[{item}]", schema)
        if kind == "object" or "properties" in schema:
            return self._object_type(name, schema)
        return "Any"

    def _object_type(self, name: str, schema: Schema) -> str:
        if schema.get("properties") and not schema.get("x-kubernetes-embedded-resource"):
            return self.add_class(name, schema)
        values = schema.get("additionalProperties")
        item = self._type(name + "Value", values) if isinstance(values, Mapping) else "Any"
        return _constrained(f"dict[str, {item}]", schema)


def _is_int_or_string(schema: Schema) -> bool:
    kinds = {each.get("type") for each in schema.get("anyOf") or () if isinstance(each, Mapping)}
    return kinds == {"integer", "string"} and "type" not in schema


def _constrained(base: str, schema: Schema) -> str:
    """Limits that msgspec checks too. Patterns are left out: theirs is another dialect."""
    limits = []
    for key, exclusive, name, strict in (
        ("minimum", "exclusiveMinimum", "ge", "gt"),
        ("maximum", "exclusiveMaximum", "le", "lt"),
    ):
        limit = schema.get(key)
        if base in ("int", "float") and isinstance(limit, int | float) and not isinstance(limit, bool):
            if base == "int" and float(limit).is_integer():
                limit = int(limit)
            if base == "float" or isinstance(limit, int):
                limits.append(f"{strict if schema.get(exclusive) is True else name}={limit}")
    size = "Length" if base == "str" else "Items" if base.startswith("list") else "Properties"
    if base not in ("int", "float", "bool"):
        for key, name in ((f"min{size}", "min_length"), (f"max{size}", "max_length")):
            if isinstance(schema.get(key), int):
                limits.append(f"{name}={schema[key]}")
    return f"Annotated[{base}, Meta({', '.join(limits)})]" if limits else base


def _class_text(name: str, schema: Schema) -> str:
    text = str(schema.get("description") or "").strip() or f"{name}."
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        text += "\n\nOther fields than these are allowed too; reading an object as this model leaves them out."
    return text


def _docstring(text: str) -> list[str]:
    """A docstring of an indented block, wrapped, with nothing in it that would end it early."""
    safe = re.sub(r'"(?=")|"\Z', r"\"", text.replace("\\", "\\\\"))
    paragraphs = [textwrap.wrap(each, _WIDTH, break_long_words=False) or [""] for each in safe.splitlines()]
    lines = [line for paragraph in paragraphs for line in paragraph]
    if len(lines) == 1:
        return [f'    """{lines[0]}"""']
    return [f'    """{lines[0]}', *(f"    {line}".rstrip() for line in lines[1:]), '    """']


def _literal(value: str | int | float | bool) -> str:
    if isinstance(value, str):
        escaped = value.encode("unicode_escape").decode().replace('"', '\\"')
        return f'"{escaped}"'
    return repr(value)


def _unused(wanted: str, taken: set[str]) -> str:
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}_{number}", number + 1
    taken.add(name)
    return name


def _identifier(name: str) -> str:
    clean = re.sub(r"\W+", "", name, flags=re.ASCII) or "Model"
    return f"Model{clean}" if clean[0].isdigit() or keyword.iskeyword(clean) else clean


def _pascal(key: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[\W_]+", key, flags=re.ASCII)) or "Field"


def _attribute(key: str) -> str:
    """How Python calls a field: `forProvider` is for_provider, `dbURL` db_url, `class` class_."""
    words = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", key))
    name = re.sub(r"[\W_]+", "_", words, flags=re.ASCII).strip("_").lower()
    if not name or name[0].isdigit():
        name = f"field_{name}".rstrip("_")
    return f"{name}_" if keyword.iskeyword(name) or keyword.issoftkeyword(name) or name in _TAKEN else name


def _camel(attribute: str) -> str:
    """How msgspec's `rename="camel"` writes a field; one with a digit or underscore at an edge is always named."""
    first, *rest = attribute.split("_")
    return (
        first + "".join(part.capitalize() for part in rest) if all(part and part[0].isalpha() for part in rest) else ""
    )
