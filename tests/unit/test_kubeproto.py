"""Kubernetes protobuf bodies: what real clients write, every wire form, and what hostile bytes do."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planform.api import builtin
from planform.apimachinery import kubeproto
from planform.apimachinery.kubeproto import Field, KubeProtoError, Message, MessageTable, decode

AS_WRITTEN_BY_GO: dict[str, tuple[str, dict[str, Any]]] = {
    # What client-go's own serializer wrote for an object, and the object as its JSON serializer writes it,
    # less the nulls and the structs of zeros that JSON shows only because Go has no other way.
    "ConfigMap": (
        "azhzAAoPCgJ2MRIJQ29uZmlnTWFwEkMKEgoBYxIAGgFkIgAqADIAOABCABIGCgFhEgExEgkKBWVtcHR5EgASCAoCw7wSAsOfGgcK"
        "AWISAgD/GgUKAW4SACAAGgAiAA==",
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "c", "namespace": "d"},
            "immutable": False,
            "data": {"a": "1", "empty": "", "ü": "ß"},
            "binaryData": {"b": "AP8=", "n": ""},
        },
    ),
    "Secret": (
        "azhzAAoMCgJ2MRIGU2VjcmV0Eo0BCnsKAXMSABoAIgAqADIAOABCCAiA4s+qBhAAUABqEQoBSxoBbiIBdSoCdjEwATgAcgNhL2KK"
        "AUUKAW0SBlVwZGF0ZRoCdjEiCAiA4s+qBhAAMghGaWVsZHNWMToeChx7ImY6ZGF0YSI6eyIuIjp7fSwiZjphIjp7fX19QgAaBk9w"
        "YXF1ZSIGCgFwEgF3GgAiAA==",
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": "s",
                "creationTimestamp": "2023-11-14T22:13:20Z",
                "deletionGracePeriodSeconds": 0,
                "ownerReferences": [
                    {
                        "apiVersion": "v1",
                        "kind": "K",
                        "name": "n",
                        "uid": "u",
                        "controller": True,
                        "blockOwnerDeletion": False,
                    }
                ],
                "finalizers": ["a/b"],
                "managedFields": [
                    {
                        "manager": "m",
                        "operation": "Update",
                        "apiVersion": "v1",
                        "time": "2023-11-14T22:13:20Z",
                        "fieldsType": "FieldsV1",
                        "fieldsV1": {"f:data": {".": {}, "f:a": {}}},
                    }
                ],
            },
            "stringData": {"p": "w"},
            "type": "Opaque",
        },
    ),
    "Deployment": (
        "azhzAAoVCgdhcHBzL3YxEgpEZXBsb3ltZW50EpEDChEKAWQSABoAIgAqADIAOABCABLtAggAEgwKCgoDYXBwEgN3ZWIasAIKIwoA"
        "EgAaACIAKgAyADgAQgBaCgoDYXBwEgN3ZWJaBQoBZRIAEogCCgkKAXYSBBICCgAKEQoBdxIMmgEJCgQKAmNtGKQDErQBCgFjEgNp"
        "OjEiACICLXYqADIKCgAQABhQIgAqADoFCgFBEgA6FAoBQhIAGg0aCwoECgJjbRIBaxgAQiwKDQoDY3B1EgYKBDI1MG0KDwoGbWVt"
        "b3J5EgUKAzFHaRIKCgNjcHUSAwoBMFIhChUSEwoBLxIKCAEQABoEaHR0cBoAIgAQABgAIAUoADAAWhgKDBoKCgYIABBQGgASABAA"
        "GAAgACgAMABqAHIAgAEAiAEAkAEAogEAGgAgADIAQgBKAFIAWABgAGgAchAgACDoByD///////////8BggEAigEAmgEAqAEAwgEA"
        "IiQKDVJvbGxpbmdVcGRhdGUSEwoGCAAQABoAEgkIARAAGgMyNSUoADgAGgwIABAAGAAgACgAOAAaACIA",
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "d"},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web", "e": ""}},
                    "spec": {
                        "volumes": [
                            {"name": "v", "emptyDir": {}},
                            {"name": "w", "configMap": {"name": "cm", "defaultMode": 420}},
                        ],
                        "containers": [
                            {
                                "name": "c",
                                "image": "i:1",
                                "args": ["", "-v"],
                                "ports": [{"containerPort": 80}],
                                "env": [
                                    {"name": "A"},
                                    {
                                        "name": "B",
                                        "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "k", "optional": False}},
                                    },
                                ],
                                "resources": {"limits": {"cpu": "250m", "memory": "1Gi"}, "requests": {"cpu": "0"}},
                                "livenessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 5},
                                "readinessProbe": {"tcpSocket": {"port": 80}},
                            }
                        ],
                        "terminationGracePeriodSeconds": 0,
                        "automountServiceAccountToken": False,
                        "securityContext": {"supplementalGroups": [0, 1000, -1]},
                    },
                },
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": "25%"}},
            },
        },
    ),
    "Lease": (
        "azhzAAofChZjb29yZGluYXRpb24uazhzLmlvL3YxEgVMZWFzZRIsChEKAWwSABoAIgAqADIAOABCABIXCgAQDxoECAAQACILCIDi"
        "z6oGEICU7zoaACIA",
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "l"},
            "spec": {
                "holderIdentity": "",
                "leaseDurationSeconds": 15,
                "acquireTime": "1970-01-01T00:00:00.000000Z",
                "renewTime": "2023-11-14T22:13:20.123456Z",
            },
        },
    ),
    "NetworkPolicy": (
        "azhzAAolChRuZXR3b3JraW5nLms4cy5pby92MRINTmV0d29ya1BvbGljeRIZChEKAW4SABoAIgAqADIAOABCABIECgASABoAIgA=",
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "n"},
            "spec": {"podSelector": {}, "ingress": [{}]},
        },
    ),
    "SubjectAccessReview": (
        "azhzAAouChdhdXRob3JpemF0aW9uLms4cy5pby92MRITU3ViamVjdEFjY2Vzc1JldmlldxJAChAKABIAGgAiACoAMgA4AEIAEiIS"
        "CAoBLxIDZ2V0GgF1KgoKAWsSBQoBYQoAKgUKAXoSADIAGggIABIAGgAgABoAIgA=",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "nonResourceAttributes": {"path": "/", "verb": "get"},
                "user": "u",
                "extra": {"k": ["a", ""], "z": []},
            },
        },
    ),
    "DeleteOptions": (
        "azhzAAoYCgdhcHBzL3YxEg1EZWxldGVPcHRpb25zEhMIABIDEgE1IgpCYWNrZ3JvdW5kGgAiAA==",
        {
            "apiVersion": "apps/v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"resourceVersion": "5"},
            "propagationPolicy": "Background",
        },
    ),
    "CustomResourceDefinition": (
        "azhzAAozChdhcGlleHRlbnNpb25zLms4cy5pby92MRIYQ3VzdG9tUmVzb3VyY2VEZWZpbml0aW9uEu8DChMKA3cuZRIAGgAiACoA"
        "MgA4AEIAEskDCgFlGgoKAXcSACIBVyoAIgpOYW1lc3BhY2VkOqkDCgJ2MRAAGAEimAMKlQMKABIAIgAqBm9iamVjdDIAOgBQAGAA"
        "egCQAQDqAS4KAWESKQoAEgAiACoGb2JqZWN0MgA6AFAAYAB6AJABAPIBAggAqAIAuAIAwAIA6gFUCgFiEk8KABIAIgAqBm9iamVj"
        "dDIAOgBQAGAAegCQAQDyASgIARIkCgASACIAKgZzdHJpbmcyADoAUABgAHoAkAEAqAIAuAIAwAIAqAIAuAIAwAIA6gFqCgFjEmUK"
        "ABIAIgAqBWFycmF5MgA6AFAAYAB6AJABAMIBOQo3CgASACIAKgdpbnRlZ2VyMgA6AEkAAAAAAAD4P1AAWQAAAAAAAAAAYAB6AJAB"
        "AKgCALgCAMACAKgCALgCAMACANICA3NldOoBQQoBZBI8CgASACIAKgZzdHJpbmcyADoAQgUKAyJ4IlAAYAB6AJABAKIBBQoDIngi"
        "ogEGCgRudWxsqAIAuAIAwAIB6gE1CgFlEjAKABIAIgAqADIAOgBQAGAAegCQAQCoAgCwAgG4AgDAAgDiAgwKBHNlbGYSABoAKgCo"
        "AgC4AgDAAgAqAgoAOABQABoMEggKABIAIgAqACAAGgAiAA==",
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "w.e"},
            "spec": {
                "group": "e",
                "names": {"plural": "w", "kind": "W"},
                "scope": "Namespaced",
                "versions": [
                    {
                        "name": "v1",
                        "served": False,
                        "storage": True,
                        "schema": {
                            "openAPIV3Schema": {
                                "type": "object",
                                "properties": {
                                    "a": {"type": "object", "additionalProperties": False},
                                    "b": {"type": "object", "additionalProperties": {"type": "string"}},
                                    "c": {
                                        "type": "array",
                                        "items": {"type": "integer", "maximum": 1.5, "minimum": 0},
                                        "x-kubernetes-list-type": "set",
                                    },
                                    "d": {
                                        "type": "string",
                                        "default": "x",
                                        "enum": ["x", None],
                                        "x-kubernetes-int-or-string": True,
                                    },
                                    "e": {
                                        "x-kubernetes-preserve-unknown-fields": True,
                                        "x-kubernetes-validations": [{"rule": "self"}],
                                    },
                                },
                            }
                        },
                        "subresources": {"status": {}},
                    }
                ],
            },
        },
    ),
}


@pytest.mark.parametrize("kind", AS_WRITTEN_BY_GO)
def test_a_body_written_by_go_becomes_the_object_its_json_would_have_been(kind: str) -> None:
    body, expected = AS_WRITTEN_BY_GO[kind]
    assert decode(base64.b64decode(body), builtin.protobuf_table()) == expected


# An encoder for the tests only: small, and independent of the decoder's reading of the wire.


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def tagged(number: int, value: int | float | bytes) -> bytes:
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    return varint(number << 3) + varint(value)


def scalar(name: str, value: Any) -> int | float | bytes:
    if name == "string":
        return str(value).encode()
    if name == "bytes":
        return base64.b64decode(value)
    return float(value) if name == "double" else int(value)


def one(table: MessageTable, field: Field, value: Any) -> int | float | bytes:
    return message(table, table.message(field.message), value) if field.message else scalar(field.scalar, value)


def message(table: MessageTable, shape: Message, value: Mapping[str, Any]) -> bytes:
    out = b""
    for number, field in shape.fields.items():
        if field.json not in value:
            continue
        if field.shape == "[]":
            out += b"".join(tagged(number, one(table, field, item)) for item in value[field.json])
        elif field.shape == "{}":
            for key, item in value[field.json].items():
                out += tagged(number, tagged(1, key.encode()) + tagged(2, one(table, field, item)))
        else:
            out += tagged(number, one(table, field, value[field.json]))
    return out


def envelope(api_version: str, kind: str, raw: bytes, *, after: bytes = b"") -> bytes:
    type_meta = tagged(1, api_version.encode()) + tagged(2, kind.encode())
    return b"k8s\x00" + tagged(1, type_meta) + tagged(2, raw) + after


def decode_raw(fields: dict[str, Any], raw: bytes, **others: dict[str, Any]) -> dict[str, Any]:
    """Decode one message of a made-up kind, without its apiVersion and kind."""
    table = MessageTable({"Thing": fields, **others}, {("v1", "Thing"): "Thing"})
    decoded = decode(envelope("v1", "Thing", raw), table)
    assert (decoded.pop("apiVersion"), decoded.pop("kind")) == ("v1", "Thing")
    return decoded


JSON_NAMES = {
    "1": ["text", "*string"],
    "2": ["flag", "*bool"],
    "3": ["small", "*int32"],
    "4": ["large", "*int64"],
    "5": ["ratio", "*double"],
    "6": ["blob", "*bytes"],
    "7": ["words", "[]string"],
    "8": ["numbers", "[]int64"],
    "9": ["labels", "{}string"],
    "10": ["files", "{}bytes"],
    "11": ["child", "*Tree"],
    "12": ["children", "[]Tree"],
    "13": ["named", "{}Tree"],
}
TREES = MessageTable({"Tree": JSON_NAMES}, {("v1", "Tree"): "Tree"})

BASE64 = st.binary(max_size=8).map(lambda raw: base64.b64encode(raw).decode())
LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "text": st.text(max_size=8),
    "flag": st.booleans(),
    "small": st.integers(-(2**31), 2**31 - 1),
    "large": st.integers(-(2**63), 2**63 - 1),
    "ratio": st.floats(allow_nan=False, allow_infinity=False),
    "blob": BASE64,
    "words": st.lists(st.text(max_size=4), min_size=1, max_size=3),
    "numbers": st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=3),
    "labels": st.dictionaries(st.text(max_size=4), st.text(max_size=4), min_size=1, max_size=3),
    "files": st.dictionaries(st.text(max_size=4), BASE64, min_size=1, max_size=3),
}


def with_children(trees: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {},
        optional=LEAVES
        | {
            "child": trees,
            "children": st.lists(trees, min_size=1, max_size=2),
            "named": st.dictionaries(st.text(max_size=4), trees, min_size=1, max_size=2),
        },
    )


TREE = st.recursive(st.fixed_dictionaries({}, optional=LEAVES), with_children, max_leaves=6)


@given(TREE)
def test_decoding_undoes_encoding(tree: dict[str, Any]) -> None:
    body = envelope("v1", "Tree", message(TREES, TREES.message("Tree"), tree))
    assert decode(body, TREES) == {"apiVersion": "v1", "kind": "Tree", **tree}


@given(TREE, st.data())
def test_a_truncated_body_is_refused(tree: dict[str, Any], data: st.DataObject) -> None:
    raw = message(TREES, TREES.message("Tree"), tree)
    body = envelope("v1", "Tree", raw)
    whole_without_raw = len(body) - len(tagged(2, raw))
    cut = data.draw(st.integers(0, len(body) - 1).filter(lambda at: at != whole_without_raw))
    with pytest.raises(KubeProtoError):
        decode(body[:cut], TREES)


@settings(max_examples=300)
@given(st.binary(max_size=200), st.sampled_from(sorted(AS_WRITTEN_BY_GO)), st.data())
def test_any_bytes_give_an_object_or_the_one_error(noise: bytes, kind: str, data: st.DataObject) -> None:
    good = base64.b64decode(AS_WRITTEN_BY_GO[kind][0])
    at = data.draw(st.integers(0, len(good)))
    for body in (noise, b"k8s\x00" + noise, good[:at] + noise + good[at + len(noise) :]):
        try:
            decoded = decode(body, builtin.protobuf_table())
        except KubeProtoError:
            continue
        assert json.loads(json.dumps(decoded)) == decoded


@pytest.mark.parametrize(
    ("form", "fields", "raw", "expected"),
    [
        pytest.param("time", {"seconds": 0, "nanos": 5}, None, "1970-01-01T00:00:00Z", id="the epoch is a time"),
        pytest.param("time", {}, b"", None, id="no seconds at all is no time"),
        pytest.param("time", {"seconds": -1, "nanos": 0}, None, "1969-12-31T23:59:59Z", id="before the epoch"),
        pytest.param("microTime", {"seconds": 1, "nanos": 999}, None, "1970-01-01T00:00:01.000000Z", id="cut to us"),
        pytest.param("quantity", {"string": "100m"}, None, "100m", id="quantity"),
        pytest.param("intOrString", {"type": 1, "intVal": 0, "strVal": "25%"}, None, "25%", id="percent"),
        pytest.param("intOrString", {"type": 0, "intVal": 80, "strVal": ""}, None, 80, id="number"),
        pytest.param("json", {"raw": base64.b64encode(b'{"f:a":{}}').decode()}, None, {"f:a": {}}, id="JSON inside"),
        pytest.param("items", {"items": ["a", ""]}, None, ["a", ""], id="a list with a name of its own"),
    ],
)
def test_messages_with_a_json_form_of_their_own_take_it(
    form: str, fields: dict[str, Any], raw: bytes | None, expected: Any
) -> None:
    spelled = {
        "1": ["seconds", "*int64"],
        "2": ["nanos", "*int32"],
        "3": ["string", "*string"],
        "4": ["type", "*int64"],
        "5": ["intVal", "*int32"],
        "6": ["strVal", "*string"],
        "7": ["raw", "*bytes"],
        "8": ["items", "[]string"],
        "": form,
    }
    table = MessageTable({"Form": spelled}, {})
    body = tagged(1, raw if raw is not None else message(table, table.message("Form"), fields))
    decoded = decode_raw({"1": ["value", "*Form"]}, body, Form=spelled)
    assert decoded == ({} if expected is None else {"value": expected})


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_500, "1.5µs"),
        (300_000_000, "300ms"),
        (1_500_000_000, "1.5s"),
        (90_000_000_000, "1m30s"),
        (3_600_000_000_000, "1h0m0s"),
        (-5_400_000_000_001, "-1h30m0.000000001s"),
    ],
)
def test_durations_are_spelled_as_go_spells_them(nanoseconds: int, text: str) -> None:
    spelled = {"1": ["duration", "*int64"], "": "duration"}
    assert decode_raw({"1": ["d", "*D"]}, tagged(1, tagged(1, nanoseconds)), D=spelled) == {"d": text}


def test_zero_values_are_dropped_unless_json_writes_them() -> None:
    fields = {"1": ["a", "string"], "2": ["b", "*string"], "3": ["c", "int32"], "4": ["d", "+bool"]}
    raw = tagged(1, b"") + tagged(2, b"") + tagged(3, 0) + tagged(4, 0)
    assert decode_raw(fields, raw) == {"b": "", "d": False}


@pytest.mark.parametrize(
    ("status", "inner", "raw", "expected"),
    [
        pytest.param("Status", "+int32", tagged(1, 0), {}, id="zeros that are merely written say nothing"),
        pytest.param("Status", "*int32", tagged(1, 0), {"status": {"n": 0}}, id="a pointer to zero says zero"),
        pytest.param("Status", "+int32", tagged(1, 1), {"status": {"n": 1}}, id="anything else is something"),
        pytest.param("+Status", "+int32", tagged(1, 0), {"status": {"n": 0}}, id="a required struct stays"),
        pytest.param("*Status", "+int32", b"", {"status": {}}, id="so does a pointer to an empty one"),
        pytest.param("Status", "[]int32", tagged(1, 0), {"status": {"n": [0]}}, id="a list is something"),
        pytest.param("Status", "Status", tagged(1, tagged(1, b"")), {}, id="at any depth"),
    ],
)
def test_a_struct_of_zeros_is_left_out(status: str, inner: str, raw: bytes, expected: dict[str, Any]) -> None:
    assert decode_raw({"1": ["status", status]}, tagged(1, raw), Status={"1": ["n", inner]}) == expected


def test_unknown_fields_of_every_wire_type_are_skipped() -> None:
    raw = tagged(90, 5) + tagged(91, 1.5) + tagged(92, b"xyz") + varint(93 << 3 | 5) + b"\0\0\0\0" + tagged(1, b"v")
    assert decode_raw({"1": ["a", "string"]}, raw) == {"a": "v"}


def test_inlined_messages_give_their_fields_to_the_parent() -> None:
    decoded = decode_raw({"1": ["", "Source"]}, tagged(1, tagged(1, b"v")), Source={"1": ["a", "string"]})
    assert decoded == {"a": "v"}


def test_packed_and_unpacked_numbers_are_both_read() -> None:
    raw = tagged(1, varint(1) + varint(300)) + tagged(1, -1)
    assert decode_raw({"1": ["n", "[]int64"]}, raw) == {"n": [1, 300, -1]}


def test_a_map_entry_without_a_value_has_the_zero_value() -> None:
    assert decode_raw({"1": ["m", "{}string"]}, tagged(1, tagged(1, b"k"))) == {"m": {"k": ""}}


def test_the_last_of_two_values_wins_even_when_it_is_zero() -> None:
    assert decode_raw({"1": ["a", "string"]}, tagged(1, b"x") + tagged(1, b"")) == {}


def test_the_kind_of_the_url_stands_in_for_a_silent_envelope() -> None:
    body = b"k8s\x00" + tagged(2, b"")
    assert decode(body, TREES, default_kind=("v1", "Tree")) == {"apiVersion": "v1", "kind": "Tree"}


def test_delete_options_are_read_whatever_version_they_claim() -> None:
    decoded = decode(envelope("example.org/v7", "DeleteOptions", tagged(1, 0)), builtin.protobuf_table())
    assert decoded == {"apiVersion": "example.org/v7", "kind": "DeleteOptions", "gracePeriodSeconds": 0}


GROUP_START = varint(1 << 3 | 3)


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        pytest.param(b"", "does not start with", id="empty"),
        pytest.param(b'{"kind":"x"}', "does not start with", id="JSON"),
        pytest.param(b"k8s\x00", "does not name a kind", id="no envelope"),
        pytest.param(envelope("v1", "Widget", b""), 'no protobuf form is known for kind "Widget"', id="unknown kind"),
        pytest.param(envelope("v1", "Tree", b"", after=tagged(3, b"gzip")), "encoded", id="content encoding"),
        pytest.param(
            envelope("v1", "Tree", b"", after=tagged(4, b"application/json")), "not protobuf", id="JSON within"
        ),
        pytest.param(b"k8s\x00" + tagged(1, 7), "where bytes are expected", id="envelope of a wrong type"),
        pytest.param(envelope("v1", "Tree", tagged(1, 7)), "where a string is expected", id="number for a string"),
        pytest.param(envelope("v1", "Tree", tagged(2, b"x")), "where a bool is expected", id="bytes for a bool"),
        pytest.param(envelope("v1", "Tree", tagged(11, 7)), "where bytes are expected", id="number for a message"),
        pytest.param(envelope("v1", "Tree", tagged(5, float("inf"))), "no JSON form", id="infinity"),
        pytest.param(envelope("v1", "Tree", tagged(1, b"\xff")), "not UTF-8", id="not UTF-8"),
        pytest.param(envelope("v1", "Tree", GROUP_START), "wire type 3", id="group"),
        pytest.param(envelope("v1", "Tree", varint(0)), "field number 0", id="field 0"),
        pytest.param(envelope("v1", "Tree", b"\x80" * 11), "cut off or too long", id="endless number"),
        pytest.param(envelope("v1", "Tree", varint(1 << 3 | 2) + varint(2**63)), "past the end", id="huge length"),
        pytest.param(envelope("v1", "Tree", b"\x0a\x00" * 130_000 * 2), "more than 250000 values", id="too many"),
        pytest.param(
            envelope("v1", "Tree", tagged(8, b"\0" * 260_000)), "more than 250000 values", id="too many packed"
        ),
    ],
)
def test_a_body_that_is_wrong_is_refused_with_the_reason(body: bytes, complaint: str) -> None:
    with pytest.raises(KubeProtoError, match=complaint):
        decode(body, TREES)


def test_nesting_beyond_the_limit_is_refused_and_up_to_it_is_read() -> None:
    raw = b""
    for _ in range(kubeproto.MAX_DEPTH - 1):
        raw = tagged(11, raw)
    assert decode(envelope("v1", "Tree", raw), TREES)["child"]
    with pytest.raises(KubeProtoError, match="nests deeper"):
        decode(envelope("v1", "Tree", tagged(11, raw)), TREES)


def test_a_time_beyond_the_calendar_is_refused() -> None:
    spelled = {"1": ["seconds", "*int64"], "": "time"}
    with pytest.raises(KubeProtoError, match="out of range"):
        decode_raw({"1": ["t", "*T"]}, tagged(1, tagged(1, 2**62)), T=spelled)


def test_broken_json_inside_is_refused() -> None:
    for raw in (b"{", b"[" * 100_000, b"\xff"):
        with pytest.raises(KubeProtoError, match="embedded JSON"):
            decode_raw({"1": ["j", "*J"]}, tagged(1, tagged(1, raw)), J={"1": ["raw", "*bytes"], "": "json"})
