"""One object as people like to read it: who it is, what it says of itself, what happened to it."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Sequence
from typing import Any

from planform.api.kinds import Object
from planform.cli.output import table

_HIDDEN = ("apiVersion", "kind", "metadata", "status")


def describe_object(obj: Object, events: Sequence[Object]) -> str:
    return "\n".join(_lines(obj, events))


def _lines(obj: Object, events: Sequence[Object]) -> Iterator[str]:
    metadata = obj["metadata"]
    yield f"{obj['kind']}/{metadata['name']}" + (f"  in {metadata['namespace']}" if "namespace" in metadata else "")
    yield f"  API version   {obj['apiVersion']}"
    yield f"  Created       {metadata.get('creationTimestamp', '-')}"
    if metadata.get("deletionTimestamp"):
        waiting = ", ".join(metadata.get("finalizers", ())) or "its controller"
        yield f"  Deleting      since {metadata['deletionTimestamp']}, waiting for {waiting}"
    for title, field in (("Labels", "labels"), ("Annotations", "annotations")):
        for key, value in sorted((metadata.get(field) or {}).items()):
            yield f"  {title:<13} {key}={_short(value)}"
            title = ""
    for owner in metadata.get("ownerReferences") or ():
        yield f"  Owned by      {owner['kind']}/{owner['name']}"
    for field, value in obj.items():
        if field not in _HIDDEN:
            yield from _section(field, _masked(obj, field, value))
    status = dict(obj.get("status") or {})
    conditions = status.pop("conditions", None)
    if status:
        yield from _section("status", status)
    if conditions:
        yield ""
        yield "conditions"
        rows = [(c.get("type"), c.get("status"), c.get("reason"), c.get("message")) for c in conditions]
        yield _indented(table(("TYPE", "STATUS", "REASON", "MESSAGE"), rows))
    yield ""
    if not events:
        yield "no events"
        return
    yield "events"
    rows_ = sorted(
        (str(e.get("lastTimestamp") or e.get("eventTime") or ""), e.get("type"), e.get("reason"), e.get("message"))
        for e in events
    )
    yield _indented(table(("LAST SEEN", "TYPE", "REASON", "MESSAGE"), rows_))


def _section(title: str, value: Any) -> Iterator[str]:
    yield ""
    yield title
    from planform.apimachinery import yaml_loader

    yield _indented(yaml_loader.dump(value).rstrip("\n"))


def _masked(obj: Object, field: str, value: Any) -> Any:
    """A Secret's values are shown as sizes."""
    if obj["kind"] == "Secret" and obj["apiVersion"] == "v1" and field == "data" and isinstance(value, dict):
        return {key: f"{len(b64decode(text))} bytes" for key, text in value.items()}
    return value


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _short(text: str) -> str:
    first = text.splitlines()[0] if text else ""
    return first if len(first) <= 80 and first == text else f"{first[:77]}..."
