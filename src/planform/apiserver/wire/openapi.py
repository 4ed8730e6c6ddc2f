"""OpenAPI documents of what is served: version 3 for each group version, and version 2 for tools that still read it.

kubectl reads the v3 documents before every write. It looks for a path whose `patch` operation names the kind and takes
`fieldValidation`, computes strategic patches only where that operation accepts them, and explains kinds from the
component schemas. A document is built when it is asked for and cached by the caller under its `fingerprint`, which is
computed from the kinds alone, so that the index costs no documents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import orjson

from planform import __version__
from planform.api import builtin
from planform.api.builtin import SCALE, TOKEN_REQUEST, Schema
from planform.api.kinds import GroupVersionKind, Kind

Document = dict[str, Any]

REF: Final = "#/components/schemas/"
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
_ALWAYS_THERE: Final = (_META + "DeleteOptions", _META + "Patch", _META + "Status")
_BODY_TYPES: Final = ("application/json", "application/vnd.kubernetes.protobuf", "application/yaml")
_CUSTOM_BODY_TYPES: Final = ("application/json", "application/yaml")
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_PATCH_TYPES: Final = ("application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json")
_WORDS_OF_EVERY_KIND: Final = {
    "apiVersion": "The group and version of the kind.",
    "kind": "The kind of object this is.",
    "metadata": "Its name, labels, owners and history.",
}


class Described(NamedTuple):
    """A served kind. `schema` is a custom kind's own; a built-in one has None, for `planform.api.builtin` knows it."""

    kind: Kind
    schema: Schema | None = None


def path_of(group: str, version: str) -> str:
    """The key of a group version in the index: `api/v1` or `apis/apps/v1`."""
    return f"apis/{group}/{version}" if group else f"api/{version}"


def index(fingerprints: Mapping[str, str]) -> Document:
    """`/openapi/v3`: where each document is, under a name that changes with its content."""
    return {
        "paths": {
            path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={fingerprint}"}
            for path, fingerprint in sorted(fingerprints.items())
        }
    }


def fingerprint(kinds: Iterable[Described]) -> str:
    """Changes whenever the document of these kinds would, without building it."""
    digest = hashlib.sha256(f"{__version__} {builtin.kubernetes_version()}".encode())
    for kind, schema in sorted(kinds, key=lambda described: described.kind.gvk):
        digest.update(orjson.dumps([kind, schema], option=orjson.OPT_SORT_KEYS))
    return digest.hexdigest().upper()


def document(kinds: Sequence[Described]) -> Document:
    """The v3 document of one group version: its paths, and every schema they lead to."""
    paths: Document = {}
    schemas: dict[str, Schema] = {}
    for described in sorted(kinds, key=lambda described: described.kind.plural):
        paths |= _paths(described)
        schemas |= _own_schemas(described)
    _add_referenced(schemas)
    return {
        "openapi": "3.0.0",
        "info": {"title": "planform", "version": __version__},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": dict(sorted(schemas.items()))},
    }


# -- schemas


def component_name(kind: Kind, *, custom: bool) -> str:
    """`org.example.v1.Widget` for a custom kind, `io.k8s.api.core.v1.Pod` for a built-in one."""
    if not custom:
        return builtin.schema_name(kind.gvk)
    return ".".join((*reversed(kind.group.split(".")), kind.version, kind.kind))


def _own_schemas(described: Described) -> dict[str, Schema]:
    """The kind's own, its list's, and those of what its subresources take."""
    kind, name = described.kind, component_name(described.kind, custom=described.schema is not None)
    schemas = {name: _component(name) if described.schema is None else _custom_schema(kind, described.schema)}
    if "list" in kind.verbs:
        schemas[f"{name}List"] = _list_schema(kind, name)
    for subresource, gvk in (("scale", SCALE), ("token", TOKEN_REQUEST)):
        if subresource in kind.subresources:
            schemas[builtin.schema_name(gvk)] = _component(builtin.schema_name(gvk))
    return schemas


def _custom_schema(kind: Kind, schema: Schema) -> Document:
    """A definition's schema with the fields that every object has, whatever the definition says of them."""
    properties = {**(schema.get("properties") or {}), **_fields_of_every_kind("ObjectMeta")}
    return {
        **schema,
        "type": "object",
        "properties": dict(sorted(properties.items())),
        "x-kubernetes-group-version-kind": [kind.gvk._asdict()],
    }


def _list_schema(kind: Kind, item: str) -> Document:
    gvk = GroupVersionKind(kind.group, kind.version, kind.list_kind or f"{kind.kind}List")
    return {
        "description": f"A list of {kind.kind} objects.",
        "type": "object",
        "required": ["items"],
        "properties": {**_fields_of_every_kind("ListMeta"), "items": {"type": "array", "items": _reference(item)}},
        "x-kubernetes-group-version-kind": [gvk._asdict()],
    }


def _fields_of_every_kind(metadata: str) -> Document:
    fields = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": _reference(_META + metadata)}
    return {field: _with_description(schema, _WORDS_OF_EVERY_KIND[field]) for field, schema in fields.items()}


def _reference(name: str) -> Document:
    return {"$ref": REF + name}


@cache
def _component(name: str) -> Schema:
    """A built-in schema with our descriptions."""
    schema, words = builtin.resolve(name), builtin.descriptions_of(name)
    if "x-kubernetes-group-version-kind" in schema:
        words = {**_WORDS_OF_EVERY_KIND, **words}
    described = _with_description(schema, words.get("", ""))
    if words and "properties" in schema:
        properties = schema["properties"].items()
        described = {
            **described,
            "properties": {field: _with_description(value, words.get(field, "")) for field, value in properties},
        }
    return described


def _with_description(schema: Schema, description: str) -> Schema:
    if not description:
        return schema
    if "$ref" in schema:  # which may have no siblings
        return {"allOf": [schema], "description": description}
    return {**schema, "description": description}


@cache
def _components_behind(name: str) -> tuple[str, ...]:
    """The built-in components that one mentions."""
    return tuple(set(_references(builtin.resolve(name))))


def _add_referenced(schemas: dict[str, Schema]) -> None:
    """Add the built-in components that all documents use, and those that these schemas lead to."""
    pending = [*_ALWAYS_THERE, *(name for schema in schemas.values() for name in _references(schema))]
    while pending:
        name = pending.pop()
        if name not in schemas:
            schemas[name] = _component(name)
            pending += _components_behind(name)


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, nested in value.items():
            if key == "$ref" and isinstance(nested, str):
                yield nested.removeprefix(REF)
            elif isinstance(nested, Mapping | list):
                yield from _references(nested)
    elif isinstance(value, list):
        for nested in value:
            yield from _references(nested)


# -- paths


def _query(name: str, type_name: str = "string") -> Document:
    return {"name": name, "in": "query", "schema": {"type": type_name, "uniqueItems": True}}


def _in_path(name: str) -> Document:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "uniqueItems": True}}


_WRITE_PARAMETERS: Final = [_query("dryRun"), _query("fieldManager"), _query("fieldValidation")]
_PATCH_PARAMETERS: Final = [*_WRITE_PARAMETERS, _query("force", "boolean")]
_LIST_PARAMETERS: Final = [
    *(_query(name) for name in ("continue", "fieldSelector", "labelSelector", "resourceVersion")),
    _query("resourceVersionMatch"),
    *(_query(name, "integer") for name in ("limit", "timeoutSeconds")),
    *(_query(name, "boolean") for name in ("allowWatchBookmarks", "sendInitialEvents", "watch")),
]
_DELETE_PARAMETERS: Final = [_query("dryRun"), _query("gracePeriodSeconds", "integer"), _query("propagationPolicy")]


class _Operations:
    """The operations of one kind: they differ in verb, body and answer, and share the rest."""

    def __init__(self, described: Described) -> None:
        self.kind, self.custom = described.kind, described.schema is not None
        self.name = component_name(self.kind, custom=self.custom)
        self._body_types = _CUSTOM_BODY_TYPES if self.custom else _BODY_TYPES
        self._tag = f"{self.kind.group.partition('.')[0] or 'core'}_{self.kind.version}"

    def operation(
        self,
        action: str,
        path: str,
        *,
        answer: str,
        parameters: Sequence[Document] = (),
        body: str = "",
        gvk: GroupVersionKind | None = None,
        codes: Sequence[str] = ("200",),
    ) -> Document:
        operation: Document = {
            "operationId": action + "".join(part.strip("{}").title() for part in path.replace(".", "/").split("/")),
            "tags": [self._tag],
            "parameters": list(parameters),
            "responses": {code: self._answer(answer) for code in codes},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": (gvk or self.kind.gvk)._asdict(),
        }
        if body:
            types = self._body_types if action != "patch" else self._patch_types()
            content = {media: {"schema": _reference(body)} for media in types}
            operation["requestBody"] = {"content": content, "required": action != "delete"}
        return operation

    def _patch_types(self) -> tuple[str, ...]:
        return _PATCH_TYPES if self.custom else (*_PATCH_TYPES, _STRATEGIC)

    def _answer(self, name: str) -> Document:
        content = {media: {"schema": _reference(name)} for media in ("application/json", "application/yaml")}
        return {"description": "OK", "content": content}

    def of_collection(self, path: str) -> Document:
        verbs, item = self.kind.verbs, Document(parameters=_path_parameters(path))
        if "list" in verbs:
            item["get"] = self.operation("list", path, answer=f"{self.name}List", parameters=_LIST_PARAMETERS)
        if "create" in verbs and (not self.kind.namespaced or "{namespace}" in path):
            item["post"] = self.operation(
                "post", path, answer=self.name, body=self.name, parameters=_WRITE_PARAMETERS, codes=("200", "201")
            )
            if "deletecollection" in verbs:
                item["delete"] = self.operation(
                    "deletecollection", path, answer=_META + "Status", parameters=_LIST_PARAMETERS[:5]
                )
        return item

    def of_object(self, path: str) -> Document:
        item = Document(parameters=_path_parameters(path)) | self._read_write(path, self.name, self.kind.gvk)
        item["delete"] = self.operation(
            "delete",
            path,
            answer=_META + "Status",
            body=_META + "DeleteOptions",
            parameters=_DELETE_PARAMETERS,
            codes=("200", "202"),
        )
        return item

    def of_subresource(self, path: str, subresource: str) -> Document:
        item = Document(parameters=_path_parameters(path))
        match subresource:
            case "token":
                name = builtin.schema_name(TOKEN_REQUEST)
                item["post"] = self.operation(
                    "post", path, answer=name, body=name, parameters=_WRITE_PARAMETERS, gvk=TOKEN_REQUEST
                )
            case "finalize":
                item["put"] = self.operation("put", path, answer=self.name, body=self.name)
            case "scale":
                item |= self._read_write(path, builtin.schema_name(SCALE), SCALE)
            case _:
                item |= self._read_write(path, self.name, self.kind.gvk)
        return item

    def _read_write(self, path: str, name: str, gvk: GroupVersionKind) -> Document:
        return {
            "get": self.operation("get", path, answer=name, gvk=gvk),
            "put": self.operation("put", path, answer=name, body=name, parameters=_WRITE_PARAMETERS, gvk=gvk),
            "patch": self.operation(
                "patch", path, answer=name, body=_META + "Patch", parameters=_PATCH_PARAMETERS, gvk=gvk
            ),
        }


def _path_parameters(path: str) -> list[Document]:
    return [_in_path(name) for name in ("name", "namespace") if f"{{{name}}}" in path]


def _paths(described: Described) -> Document:
    kind, operations = described.kind, _Operations(described)
    base = f"/{path_of(kind.group, kind.version)}"
    collection = f"{base}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{base}/{kind.plural}"
    paths = {collection: operations.of_collection(collection)}
    if kind.namespaced and "list" in kind.verbs:
        everywhere = f"{base}/{kind.plural}"
        paths[everywhere] = operations.of_collection(everywhere)
    if "get" in kind.verbs:
        one = f"{collection}/{{name}}"
        paths[one] = operations.of_object(one)
        for subresource in kind.subresources:
            paths[f"{one}/{subresource}"] = operations.of_subresource(f"{one}/{subresource}", subresource)
    return paths


# -- version 2


def _protobuf_text(field: int, value: bytes) -> bytes:
    """One length-delimited field of fewer than 128 bytes."""
    return bytes([field << 3 | 2, len(value)]) + value


def swagger(documents: Iterable[Document]) -> Document:
    """`/openapi/v2`: all documents as one, in the older form, less what that form cannot say."""
    paths: Document = {}
    definitions: Document = {}
    for source in documents:
        definitions |= {name: _older_schema(schema) for name, schema in source["components"]["schemas"].items()}
        for path, item in source["paths"].items():
            paths[path] = {
                method: [_older_parameter(parameter) for parameter in value]
                if method == "parameters"
                else _older_operation(value)
                for method, value in item.items()
            }
    return {
        "swagger": "2.0",
        "info": {"title": "planform", "version": __version__},
        "paths": paths,
        "definitions": definitions,
    }


# kubectl asks for version 2 as protobuf, and for nothing else, before it creates a kind that cannot be patched, such as
# a review. It checks bodies against the schemas it finds, so a document that describes no kind leaves checking to us.
SWAGGER_PROTOBUF_TYPE: Final = b"application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
SWAGGER_PROTOBUF: Final = _protobuf_text(1, b"2.0") + _protobuf_text(
    2, _protobuf_text(1, b"planform") + _protobuf_text(2, __version__.encode())
)


_NOT_IN_V2: Final = {"nullable", "oneOf", "anyOf", "not", "x-kubernetes-validations"}


def _older_schema(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_older_schema(entry) for entry in schema]
    if not isinstance(schema, Mapping):
        return schema
    older: Document = {}
    for keyword, value in schema.items():
        if keyword in _NOT_IN_V2:
            continue
        if keyword == "$ref":
            older[keyword] = value.replace(REF, "#/definitions/")
        elif keyword == "properties":
            older[keyword] = {field: _older_schema(nested) for field, nested in value.items()}
        elif keyword in ("items", "additionalProperties", "allOf"):
            older[keyword] = _older_schema(value)
        else:
            older[keyword] = value
    if older.get("format") == "int-or-string":
        older["type"] = "string"
    return older


def _older_parameter(parameter: Mapping[str, Any]) -> Document:
    return {key: value for key, value in parameter.items() if key != "schema"} | dict(parameter["schema"])


def _older_operation(operation: Mapping[str, Any]) -> Document:
    older = {key: value for key, value in operation.items() if key not in ("parameters", "requestBody", "responses")}
    older["parameters"] = [_older_parameter(parameter) for parameter in operation["parameters"]]
    if body := operation.get("requestBody"):
        schema = next(iter(body["content"].values()))["schema"]
        older["consumes"] = list(body["content"])
        older["parameters"].append(
            {"name": "body", "in": "body", "required": body["required"], "schema": _older_schema(schema)}
        )
    older["responses"] = {}
    for code, answer in operation["responses"].items():
        schema = answer["content"]["application/json"]["schema"]
        older["produces"] = list(answer["content"])
        older["responses"][code] = {"description": answer["description"], "schema": _older_schema(schema)}
    return older
