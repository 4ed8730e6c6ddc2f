"""The protocol's descriptors: Crossplane's, as installed from PyPI, plus what we list here; in a pool of our own."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pool

from planform_sdk.proto import envelopes, message_class, messages

OURS = {"Requirements": {(1000, "watch_resources")}}
OUR_MESSAGES = {"ResourceRef"}
GENERATE = Path(__file__).parents[2] / "sdk" / "tools" / "generate_proto.py"


def described(file: Any) -> dict[str, Any]:
    """Everything of a file that matters on the wire or to a client."""
    facts: dict[str, Any] = {"package": file.package}
    for message in file.message_types_by_name.values():
        facts[message.name] = {
            (field.number, field.name): (
                field.type,
                bool(field.is_repeated),
                field.has_presence,
                field.json_name,
                _type_of(field),
                field.containing_oneof.name if field.containing_oneof else None,
                field.GetOptions().deprecated,
            )
            for field in message.fields
        }
    for enum in file.enum_types_by_name.values():
        facts[enum.name] = {value.name: value.number for value in enum.values}
    for service in file.services_by_name.values():
        facts[service.full_name] = {
            (method.name, method.input_type.full_name, method.output_type.full_name) for method in service.methods
        }
    return facts


def _type_of(field: Any) -> Any:
    if field.enum_type is not None:
        return field.enum_type.full_name
    if field.message_type is None:
        return None
    if field.message_type.GetOptions().map_entry:
        return {(each.number, each.type, _type_of(each)) for each in field.message_type.fields if _type_of(each)} or [
            (each.number, each.type) for each in field.message_type.fields
        ]
    return field.message_type.full_name


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_descriptors_are_upstreams_field_by_field_plus_the_listed_addition(version: str) -> None:
    pytest.importorskip("crossplane.function")
    theirs = described(importlib.import_module(f"crossplane.function.proto.{version}.run_function_pb2").DESCRIPTOR)
    ours = described(importlib.import_module(f"planform_sdk.proto.{version}").DESCRIPTOR)
    for message, added in OURS.items():
        assert added <= ours[message].keys()
        ours[message] = {field: facts for field, facts in ours[message].items() if field not in added}
    assert ours.keys() - theirs.keys() == OUR_MESSAGES
    assert {name: facts for name, facts in ours.items() if name not in OUR_MESSAGES} == theirs


def test_our_messages_are_not_in_the_pool_of_the_process() -> None:
    """In a fresh process, both SDKs in both orders."""
    both = """
import sys
names = sys.argv[1:]
for name in names:
    __import__(name)
from google.protobuf import descriptor_pool
ours = sys.modules["planform_sdk.proto.v1"].DESCRIPTOR
theirs = sys.modules["crossplane.function.proto.v1.run_function_pb2"].DESCRIPTOR
assert ours.package == theirs.package and ours.pool is not descriptor_pool.Default()
"""
    pytest.importorskip("crossplane.function")
    modules = ["planform_sdk.proto.v1", "crossplane.function.proto.v1.run_function_pb2"]
    for order in (modules, modules[::-1]):
        subprocess.run([sys.executable, "-c", both, *order], check=True, timeout=60)


def test_envelopes_hold_states_and_objects_as_bytes_and_change_nothing_on_the_wire() -> None:
    name = "apiextensions.fn.proto.v1.RunFunctionRequest"
    message = message_class(messages(), name)()
    message.observed.composite.resource.update({"a": {"b": 1}})
    message.context.update({"k": "v"})
    envelope = message_class(envelopes(), name).FromString(message.SerializeToString(deterministic=True))
    assert envelope.observed == message.observed.SerializeToString()
    assert envelope.context == message.context.SerializeToString()
    assert envelope.SerializeToString(deterministic=True) == message.SerializeToString(deterministic=True)
    assert envelopes() is not descriptor_pool.Default()


def test_in_an_envelope_an_empty_state_is_not_the_same_as_none() -> None:
    name = "apiextensions.fn.proto.v1.RunFunctionResponse"
    envelope = message_class(envelopes(), name)()
    assert not envelope.HasField("desired")
    envelope.desired = b""
    assert message_class(messages(), name).FromString(envelope.SerializeToString()).HasField("desired")
    assert message_class(envelopes(), name).FromString(envelope.SerializeToString()).HasField("desired")


def test_the_two_versions_differ_in_nothing_but_the_package() -> None:
    v1 = described(importlib.import_module("planform_sdk.proto.v1").DESCRIPTOR)
    beta = described(importlib.import_module("planform_sdk.proto.v1beta1").DESCRIPTOR)
    assert str(beta).replace("v1beta1", "v1") == str(v1)


def test_committed_files_are_what_the_proto_file_gives() -> None:
    pytest.importorskip("grpc_tools")
    check = subprocess.run([sys.executable, str(GENERATE), "--check"], capture_output=True, text=True, timeout=60)
    assert check.returncode == 0, check.stdout + check.stderr
