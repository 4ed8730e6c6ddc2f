"""What `planform render` reads: documents recognised by kind, wherever on the command line they stand."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planform.api.kinds import Object
from planform.api.metadata import labels_of, name_of, namespace_of
from planform.apimachinery import yaml_loader
from planform.errors import UsageError
from planform.functions.read_policy import canonical
from planform.functions.values import ResourceSelector, SchemaSelector

_COMPOSITION = "apiextensions.crossplane.io"
_FUNCTIONS = frozenset({"pkg.crossplane.io/v1", "pkg.crossplane.io/v1beta1"})


@dataclass
class Inputs:
    """All documents of the files given as arguments, sorted by what they are."""

    xrs: list[Object] = field(default_factory=list)
    compositions: list[Object] = field(default_factory=list)
    functions: list[Object] = field(default_factory=list)
    xrds: list[Object] = field(default_factory=list)

    def composition_for(self, xr: Object) -> Object | None:
        wanted = {"apiVersion": xr["apiVersion"], "kind": xr["kind"]}
        return next((c for c in self.compositions if (c["spec"].get("compositeTypeRef") or {}) == wanted), None)


def read_inputs(paths: Sequence[Path]) -> Inputs:
    inputs = Inputs()
    for path in paths:
        for document in read_documents(path):
            api_version, kind = str(document["apiVersion"]), str(document["kind"])
            if kind == "Composition" and api_version.startswith(f"{_COMPOSITION}/"):
                inputs.compositions.append(document)
            elif kind in ("Function", "FunctionRevision") and api_version in _FUNCTIONS:
                inputs.functions.append(document)
            elif kind == "CompositeResourceDefinition":
                inputs.xrds.append(document)
            elif kind == "CompositionTest":
                continue  # a directory may hold its tests beside its files
            else:
                inputs.xrs.append(document)
    if not inputs.compositions:
        raise UsageError("no Composition among the files", hint="planform render XR COMPOSITION FUNCTIONS")
    if not inputs.xrs:
        raise UsageError("no XR among the files", hint="planform render XR COMPOSITION FUNCTIONS")
    return inputs


def read_documents(path: Path) -> list[Object]:
    """Every object in a file, or in the YAML files directly in a directory; raises UsageError with file and number."""
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in (".yaml", ".yml") and file.is_file())
        if not files:
            raise UsageError(f"there are no YAML files in {path}")
        return [document for file in files for document in read_documents(file)]
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    try:
        documents = yaml_loader.load_all(text)
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error
    found = []
    for number, document in enumerate(documents, start=1):
        if document is None:
            continue
        where = f"{path}, document {number}"
        if not isinstance(document, dict):
            raise UsageError(f"{where} is not an object")
        for name in ("apiVersion", "kind"):
            if not isinstance(document.get(name), str):
                raise UsageError(f"{where} has no {name}")
        if not isinstance(document.setdefault("metadata", {}), dict):
            raise UsageError(f"{where}: metadata is not an object")
        found.append(document)
    return found


def read_context(files: Sequence[str], values: Sequence[str]) -> Object:
    """`KEY=FILE` and `KEY=JSON` words as the initial context; values win over files."""
    context: Object = {}
    for word in files:
        key, path = _pair(word, "--context-files", "KEY=FILE")
        try:
            context[key] = yaml_loader.load(Path(path).read_bytes())
        except (OSError, ValueError) as error:
            raise UsageError(f"--context-files {key}: cannot read {path}: {error}") from error
    for word in values:
        key, text = _pair(word, "--context-values", "KEY=JSON")
        try:
            context[key] = yaml_loader.load(text)
        except ValueError as error:
            raise UsageError(f"--context-values {key}: {error}") from error
    return context


def _pair(word: str, flag: str, shape: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals or not key:
        raise UsageError(f'{flag} "{word}" must be {shape}')
    return key, value


class FileReader:
    """Answers functions' requirements from files."""

    def __init__(self, objects: Sequence[Object], schemas: Mapping[tuple[str, str], Object]) -> None:
        self._objects = sorted(objects, key=lambda obj: (namespace_of(obj), name_of(obj)))
        self._schemas = schemas

    async def read(self, selector: ResourceSelector, /) -> Sequence[Object]:
        return [obj for obj in self._objects if _matches(obj, selector)]

    async def schema(self, selector: SchemaSelector, /) -> Object | None:
        return self._schemas.get((selector.api_version, selector.kind))


def _matches(obj: Object, selector: ResourceSelector) -> bool:
    if canonical(obj["apiVersion"], obj["kind"]) != canonical(selector.api_version, selector.kind):
        return False
    if selector.match_name:
        if name_of(obj) != selector.match_name or namespace_of(obj) != (selector.namespace or ""):
            return False
    elif selector.namespace and namespace_of(obj) != selector.namespace:
        return False
    labels = labels_of(obj)
    return all(labels.get(key) == value for key, value in (selector.match_labels or {}).items())


def read_schemas(directory: Path | None) -> dict[tuple[str, str], Object]:
    """OpenAPI v3 documents below a directory, by apiVersion and kind, with references inlined."""
    found: dict[tuple[str, str], Object] = {}
    if directory is None:
        return found
    for file in sorted(directory.rglob("*.json")):
        try:
            document = json.loads(file.read_bytes())
        except ValueError as error:
            raise UsageError(f"{file} is not JSON: {error}") from error
        schemas = (document.get("components") or {}).get("schemas") or {}
        for schema in schemas.values():
            kinds = schema.get("x-kubernetes-group-version-kind") or []
            if len(kinds) == 1:
                one = kinds[0]
                api_version = f"{one['group']}/{one['version']}" if one.get("group") else one["version"]
                found[api_version, one["kind"]] = _inlined(schema, schemas, ())
    return found


def _inlined(schema: Any, schemas: Mapping[str, Any], above: tuple[str, ...]) -> Any:
    if isinstance(schema, list):
        return [_inlined(item, schemas, above) for item in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if isinstance(reference, str):
        name = reference.rpartition("/")[2]
        if name in above or name not in schemas:
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        return _inlined(schemas[name], schemas, (*above, name))
    return {key: _inlined(value, schemas, above) for key, value in schema.items()}


class FileCredentials:
    """Secrets from files, by namespace and name; both `data` and `stringData` count."""

    def __init__(self, secrets: Sequence[Object]) -> None:
        self._secrets: dict[tuple[str, str], dict[str, bytes]] = {}
        for secret in secrets:
            if secret["kind"] != "Secret":
                raise UsageError(f"{secret['kind']}/{name_of(secret)} is not a Secret")
            try:
                data = {
                    key: base64.b64decode(value, validate=True) for key, value in (secret.get("data") or {}).items()
                }
            except (binascii.Error, TypeError, ValueError) as error:
                raise UsageError(f"Secret/{name_of(secret)}: data is not base64: {error}") from error
            data |= {key: str(value).encode() for key, value in (secret.get("stringData") or {}).items()}
            self._secrets[namespace_of(secret), name_of(secret)] = data

    async def read(self, namespace: str, name: str, /) -> Mapping[str, bytes] | None:
        return self._secrets.get((namespace, name))
