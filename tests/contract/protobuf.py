"""A tiny protobuf writer: what kubectl and helm send is a handful of nested fields behind a magic number."""

from __future__ import annotations

MAGIC = b"k8s\x00"


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, value: bytes | str | int) -> bytes:
    """One field: a number as a varint, a text or message by its length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def message(**fields: bytes | str | int) -> bytes:
    """A message from its fields, written as `f1=..., f2=...`."""
    return b"".join(field(int(name[1:]), value) for name, value in fields.items())


def pair(key: str, value: bytes | str) -> bytes:
    """An entry of a map."""
    return message(f1=key, f2=value)


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    """The bytes of a request body: magic, then type and content, then two empty texts as client-go writes them."""
    return MAGIC + message(f1=message(f1=api_version, f2=kind), f2=raw, f3="", f4="")


def metadata(name: str) -> bytes:
    """ObjectMeta as client-go writes it: fields that are not pointers stand there even when empty."""
    return message(f1=name, f2="", f3="", f4="", f5="", f6="", f7=0, f8=b"")
