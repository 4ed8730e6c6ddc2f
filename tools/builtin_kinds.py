"""Write the facts of Kubernetes' built-in kinds into src/planform/api/data/kubernetes.json.

Run by hand when the Kubernetes release below moves: `python tools/builtin_kinds.py`. It needs Go, only to fetch the
published modules (`go mod download`); nothing of theirs is built. Three sources are joined:

- the OpenAPI documents in k8s.io/kubernetes: field types, requiredness, list and map types, merge keys, defaults;
- generated.proto in k8s.io/api and its kin: the type behind each field number;
- the Go structs beside them: each field number's JSON name, and whether its zero value is written in JSON.

Only facts are kept; no sentence is. The result is one line for each type, so that a diff can be read.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planform.api.builtin import BUILTIN_KINDS, OTHER_TYPES, schema_name
from planform.api.kinds import Kind

KUBERNETES = "v1.37.1"
LIBRARIES = KUBERNETES.replace("v1.", "v0.", 1)
OUTPUT = Path(__file__).parent.parent / "src/planform/api/data/kubernetes.json"

REF = "#/components/schemas/"
META = "io.k8s.apimachinery.pkg.apis.meta.v1."
CRD = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."

WIRE_FORMS = {
    META + "Time": "time",
    META + "MicroTime": "microTime",
    META + "Duration": "duration",
    META + "FieldsV1": "json",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "json",
    CRD + "JSON": "json",
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "intOrString",
    CRD + "JSONSchemaPropsOrArray": "either",
    CRD + "JSONSchemaPropsOrBool": "either",
    CRD + "JSONSchemaPropsOrStringArray": "either",
}
"""Messages whose JSON is not an object with their fields; planform.apimachinery.kubeproto knows each form by its name.

Named lists, which Go writes as a message with nothing but `items`, are found by that.
"""

FREE_FORM = {name for name, form in WIRE_FORMS.items() if form in ("json", "either")}
UNUSED_KEYWORDS = {"description", "x-kubernetes-unions"}


@dataclass(frozen=True)
class GoField:
    """One struct field: its JSON name (empty if inlined) and what its zero value means.

    Of a pointer (`*`) zero is a value; of a field without omitempty (`+`) it is merely written; else it is left out.
    """

    json: str
    zero: str


def module(path: str, version: str) -> Path:
    """The directory of a published Go module, fetched if need be."""
    command = ["go", "mod", "download", "-json", f"{path}@{version}"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return Path(json.loads(answer)["Dir"])


def read_components(kubernetes: Path) -> dict[str, Any]:
    """Every schema in the published OpenAPI documents."""
    components: dict[str, Any] = {}
    for path in sorted((kubernetes / "api/openapi-spec/v3").glob("*_openapi.json")):
        components |= json.loads(path.read_text()).get("components", {}).get("schemas", {})
    return components


def references(schema: Any) -> Iterator[str]:
    """The component names a schema mentions."""
    if isinstance(schema, dict):
        if isinstance(ref := schema.get("$ref"), str):
            yield ref.removeprefix(REF)
        for value in schema.values():
            yield from references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from references(value)


def closure(components: Mapping[str, Any], roots: list[str]) -> set[str]:
    found: set[str] = set()
    pending = list(roots)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += references(components[name])
    return found


def bare(name: str, schema: Mapping[str, Any], list_keys: Mapping[str, set[str]]) -> dict[str, Any]:
    """A component without words, and without the defaults that only say what Go's zero value is."""
    result = {key: value for key, value in schema.items() if key not in UNUSED_KEYWORDS}
    if "properties" in result:
        result["properties"] = {
            field: bare_field(value, keeps_default=field in list_keys.get(name, ()))
            for field, value in sorted(result["properties"].items())
        }
    kinds = result.pop("x-kubernetes-group-version-kind", None)
    if kinds and len(kinds) == 1:
        result["x-kubernetes-group-version-kind"] = kinds
    if name in FREE_FORM:
        result["x-kubernetes-preserve-unknown-fields"] = True
    if WIRE_FORMS.get(name) == "intOrString":
        result["x-kubernetes-int-or-string"] = True
    return result


def bare_field(schema: Mapping[str, Any], *, keeps_default: bool = False) -> dict[str, Any]:
    result = {key: value for key, value in schema.items() if key not in UNUSED_KEYWORDS}
    if not result.get("default") and not keeps_default:
        result.pop("default", None)
    for keyword in ("items", "additionalProperties"):
        if isinstance(result.get(keyword), dict):
            result[keyword] = bare_field(result[keyword])
    if set(result) == {"allOf"} and len(result["allOf"]) == 1:
        return dict(result["allOf"][0])
    return result


def keys_of_list_maps(components: Mapping[str, Any]) -> dict[str, set[str]]:
    """Optional fields by which list items are told apart: their defaults matter even when they are empty."""
    found: dict[str, set[str]] = {}
    for schema in components.values():
        for field in schema.get("properties", {}).values():
            for item in references(field.get("items")):
                optional = set(field.get("x-kubernetes-list-map-keys", ())) - set(components[item].get("required", ()))
                found.setdefault(item, set()).update(optional)
    return found


MESSAGE = re.compile(r"^message (\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
PROTO_FIELD = re.compile(r"^  (optional|repeated|map<string,) ?([\w.]+)>? (\w+) = (\d+);", re.MULTILINE)
STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
GO_FIELD = re.compile(r'^\t(?:(\w+) +)?(\S+) +`json:"([^"]*)"[^`\n]*protobuf:"\w+,(\d+)', re.MULTILINE)


Fields = dict[str, Any]
"""A message's fields by number: JSON name and type, as `[]string`, `{}bytes`, `*int32` or a message's name.

`*` and `+` say what zero means, as GoField does; an empty JSON name, that the field is inlined. The empty number names
the message's wire form, if it has one.
"""


def read_messages(*roots: Path) -> dict[str, Fields]:
    """Every message below these directories."""
    messages: dict[str, Fields] = {}
    for path in sorted(path for root in roots for path in root.rglob("generated.proto")):
        text = path.read_text()
        package = re.findall(r"^package ([\w.]+);", text, re.MULTILINE)[0]
        structs = read_structs(path.parent)
        for message, body in MESSAGE.findall(text):
            name = component_name(f".{package}.{message}")
            fields = messages.setdefault(name, {})
            for label, proto_type, proto_name, number in PROTO_FIELD.findall(body):
                go = structs.get(message, {}).get(number, GoField(proto_name, zero="*"))
                if "." in proto_type or proto_type[0].isupper():
                    proto_type = component_name(proto_type if "." in proto_type else f".{package}.{proto_type}")
                shape = {"repeated": "[]", "map<string,": "{}"}.get(label, go.zero)
                fields[number] = [go.json, shape + proto_type]
            if name in WIRE_FORMS:
                fields[""] = WIRE_FORMS[name]
            elif message not in structs and [field[0] for field in fields.values()] == ["items"]:
                fields[""] = "items"
    return messages


def component_name(proto: str) -> str:
    """`.k8s.io.api.core.v1.Pod` is `io.k8s.api.core.v1.Pod` in OpenAPI."""
    return proto.replace(".k8s.io.", "io.k8s.", 1).replace("apiextensions_apiserver", "apiextensions-apiserver")


def read_structs(package: Path) -> dict[str, dict[str, GoField]]:
    """The JSON side of each struct in a Go package, by protobuf number."""
    structs: dict[str, dict[str, GoField]] = {}
    for path in sorted(package.glob("*.go")):
        for struct, body in STRUCT.findall(path.read_text()):
            for _, go_type, tag, number in GO_FIELD.findall(body):
                name, _, options = tag.partition(",")
                omitted = {"omitempty", "omitzero", "inline"} & set(options.split(","))
                zero = "*" if go_type.startswith("*") else "" if omitted else "+"
                structs.setdefault(struct, {})[number] = GoField(name, zero)
    return structs


def message_closure(messages: Mapping[str, Fields], roots: list[str]) -> dict[str, Fields]:
    """The messages that the roots need."""
    found: dict[str, Fields] = {}
    pending = list(roots)
    while pending:
        name = pending.pop()
        if name in found or name not in messages:
            continue
        found[name] = messages[name]
        pending += [field[1].lstrip("[]{}*+") for number, field in messages[name].items() if number]
    return found


def differences_from_discovery(kubernetes: Path) -> Iterator[str]:
    """What BUILTIN_KINDS says otherwise than a real API server does; subresources may be fewer."""
    published = json.loads((kubernetes / "api/discovery/aggregated_v2.json").read_text())["items"]
    published.append({"versions": [core_version(kubernetes)]})
    rows = {
        (group.get("metadata", {}).get("name", ""), version["version"], row["resource"]): row
        for group in published
        for version in group["versions"]
        for row in version["resources"]
    }
    for kind in BUILTIN_KINDS:
        row = rows.get((kind.group, kind.version, kind.plural))
        if row is None:
            yield f"{kind.gvk}: not published as {kind.plural}"
            continue
        ours, theirs = summary_of(kind), published_summary(row)
        yield from (f"{kind.gvk}: {key} {ours[key]} is not {theirs[key]}" for key in ours if ours[key] != theirs[key])
        extra = set(kind.subresources) - {sub["subresource"] for sub in row.get("subresources", ())}
        if extra:
            yield f"{kind.gvk}: subresources {sorted(extra)} are not published"


def core_version(kubernetes: Path) -> dict[str, Any]:
    """/api/v1 in the shape of aggregated discovery."""
    listed = json.loads((kubernetes / "api/discovery/api__v1.json").read_text())["resources"]
    return {
        "version": "v1",
        "resources": [
            {
                "resource": row["name"],
                "responseKind": {"kind": row["kind"]},
                "scope": "Namespaced" if row["namespaced"] else "Cluster",
                "singularResource": row["singularName"],
                "shortNames": row.get("shortNames", []),
                "categories": row.get("categories", []),
                "verbs": row["verbs"],
                "subresources": [
                    {"subresource": sub["name"].partition("/")[2]}
                    for sub in listed
                    if sub["name"].startswith(row["name"] + "/")
                ],
            }
            for row in listed
            if "/" not in row["name"]
        ],
    }


def summary_of(kind: Kind) -> dict[str, Any]:
    return {
        "kind": kind.kind,
        "namespaced": kind.namespaced,
        "singular": kind.singular,
        "short names": sorted(kind.short_names),
        "categories": sorted(kind.categories),
        "verbs": sorted(kind.verbs),
    }


def published_summary(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "kind": row["responseKind"]["kind"],
        "namespaced": row["scope"] == "Namespaced",
        "singular": row["singularResource"],
        "short names": sorted(row.get("shortNames", ())),
        "categories": sorted(row.get("categories", ())),
        "verbs": sorted(row["verbs"]),
    }


def line_for_each(entries: Mapping[str, Any]) -> str:
    lines = (f"{json.dumps(name)}:{json.dumps(entries[name], separators=(',', ':'))}" for name in sorted(entries))
    return "{\n" + ",\n".join(lines) + "\n}"


def main() -> None:
    kubernetes = module("k8s.io/kubernetes", KUBERNETES)
    if wrong := list(differences_from_discovery(kubernetes)):
        sys.exit("\n".join(wrong))
    components = read_components(kubernetes)
    gvks = [*(kind.gvk for kind in BUILTIN_KINDS), *OTHER_TYPES]
    roots = [*map(schema_name, gvks), META + "Patch"]
    list_keys = keys_of_list_maps(components)
    schemas = {name: bare(name, components[name], list_keys) for name in closure(components, roots)}
    libraries = ("k8s.io/api", "k8s.io/apimachinery", "k8s.io/apiextensions-apiserver")
    messages = message_closure(read_messages(*(module(path, LIBRARIES) for path in libraries)), roots)
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(
        f'{{"kubernetes":"{KUBERNETES}",\n"schemas":{line_for_each(schemas)},\n"messages":{line_for_each(messages)}}}\n'
    )
    print(f"{OUTPUT}: {len(schemas)} schemas, {len(messages)} messages, {OUTPUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
