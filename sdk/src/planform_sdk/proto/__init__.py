"""The protocol's messages, in descriptor pools of our own.

Protobuf's default pool is one for the whole process and takes each message name once, so our messages there would
clash with those of another SDK in the same process. The descriptors are committed (`descriptors.binpb`, made by
`sdk/tools/generate_proto.py`), and classes are made from them when first asked for.

There are two pools. `messages` is the protocol as its file says. In `envelopes` every `State` and every object
(`google.protobuf.Struct`) is a `bytes` field instead: on the wire both are a length and that many bytes, so an envelope
is parsed and written without a look into what it carries, which can be kept, compared and passed on as bytes.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool

PACKAGES = {"v1": "apiextensions.fn.proto.v1", "v1beta1": "apiextensions.fn.proto.v1beta1"}
SERVICES = {version: f"{package}.FunctionRunnerService" for version, package in PACKAGES.items()}
METHODS = {version: f"/{service}/RunFunction" for version, service in SERVICES.items()}

_OPAQUE = {".google.protobuf.Struct", *(f".{package}.State" for package in PACKAGES.values())}


@cache
def messages() -> DescriptorPool:
    """The pool that holds the protocol as its file says."""
    return _pool(_descriptors())


@cache
def envelopes() -> DescriptorPool:
    """The pool in which objects and states are bytes."""
    descriptors = _descriptors()
    for file in descriptors.file:
        for message in file.message_type:
            for field in message.field:
                if field.type_name not in _OPAQUE:
                    continue
                field.ClearField("type_name")
                field.type = field.TYPE_BYTES
                if not field.proto3_optional:
                    # A message field is there or not, and an empty one is not the same as none; so must the bytes be.
                    field.proto3_optional = True
                    field.oneof_index = len(message.oneof_decl)
                    message.oneof_decl.add(name=f"_{field.name}")
    return _pool(descriptors)


def message_class(pool: DescriptorPool, name: str) -> Any:
    """Give the class of a message, by its full name. Its fields are typed in the stubs beside the `.proto` files."""
    from google.protobuf.message_factory import GetMessageClass

    return GetMessageClass(pool.FindMessageTypeByName(name))


def module_contents(version: str) -> dict[str, Any]:
    """What the module of a protocol version defines: its descriptor, messages, enums and enum values."""
    from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

    package = PACKAGES[version]
    file = messages().FindFileContainingSymbol(f"{package}.RunFunctionRequest")
    contents: dict[str, Any] = {"DESCRIPTOR": file}
    for name in file.message_types_by_name:
        contents[name] = message_class(messages(), f"{package}.{name}")
    for name, enum in file.enum_types_by_name.items():
        contents[name] = EnumTypeWrapper(enum)
        contents.update({value.name: value.number for value in enum.values})
    return contents


def _descriptors() -> FileDescriptorSet:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    return FileDescriptorSet.FromString((files(__name__) / "descriptors.binpb").read_bytes())


def _pool(descriptors: FileDescriptorSet) -> DescriptorPool:
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    for file in descriptors.file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool
