"""PreviewReports: what a shard found out, cut into parts that any store takes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import orjson

from planform.api.kinds import Object
from planform.api.names import PREVIEW, PREVIEW_LABEL, PREVIEW_REPORT
from planform.api.previews import MAX_CLASSES, Blast, ChangeClass, ReportSpec, Summary, XrEntry
from planform.preview.classes import MAX_NAMESPACES, Classes

MAX_BYTES: Final = 200 * 1024
"""Of what a report holds: with its metadata and managed fields it stays well below 256 KiB."""
_MAX_VALUE: Final = 2000
_MAX_FIELDS: Final = 100


def report_objects(
    preview: Object, classes: Classes, entries: Sequence[XrEntry], *, shard: int = 0, shards: int = 1
) -> list[Object]:
    """The reports of one shard. Classes come first; the summary stands in the first part."""
    parts = list(_parts(classes.classes(), entries))
    blast = shortened_blast(classes.blast)
    made = []
    for number, (part_classes, part_entries) in enumerate(parts):
        spec: Object = {
            "shard": shard,
            "shards": shards,
            "part": number,
            "parts": len(parts),
            "classes": part_classes,
            "xrs": part_entries,
        }
        if number == 0:
            spec |= {"summary": plain(classes.summary), "blast": plain(blast)}
        made.append(_object(preview, shard, number, spec))
    return made


def plain(value: object) -> Any:
    """As JSON has it: lists, and no tuples."""
    return msgspec.json.decode(msgspec.json.encode(value))


def read_report(report: Object) -> ReportSpec:
    return msgspec.convert(report["spec"], ReportSpec, strict=False)


def merged(reports: Iterable[ReportSpec]) -> Classes:
    """What all shards found out together."""
    whole, namespaces = Classes(), set[str]()
    for report in reports:
        summary, blast = (report.summary, report.blast) if report.part == 0 else (Summary(), Blast())
        whole.merge(summary, blast, report.classes)
        namespaces.update(blast.by_namespace)
    if len(namespaces) < MAX_NAMESPACES:
        whole.blast.namespaces = len(namespaces)
    return whole


def status_classes(classes: Sequence[ChangeClass]) -> tuple[list[Object], int]:
    """The classes as a Preview's status lists them, and how many more there are."""
    shown = [{key: value for key, value in plain(each).items() if key != "changes"} for each in classes[:MAX_CLASSES]]
    return shown, max(0, len(classes) - MAX_CLASSES)


def shortened_blast(blast: Blast) -> Blast:
    """Only the namespaces with the most XRs by name."""
    largest = sorted(blast.by_namespace.items(), key=lambda each: (-each[1], each[0]))[:MAX_NAMESPACES]
    return msgspec.structs.replace(blast, by_namespace=dict(largest))


def _parts(classes: Sequence[ChangeClass], entries: Sequence[XrEntry]) -> Iterator[tuple[list[Object], list[Object]]]:
    some: tuple[list[Object], list[Object]] = ([], [])
    size = 0
    waiting: list[tuple[int, Object]] = [(0, _bounded(each)) for each in classes]
    waiting += [(1, plain(each)) for each in entries]
    for place, item in waiting:
        length = len(orjson.dumps(item))
        if size + length > MAX_BYTES and size:
            yield some
            some, size = ([], []), 0
        some[place].append(item)
        size += length
    yield some


def _bounded(each: ChangeClass) -> Object:
    """One class, however large what it changes is."""
    value: Object = plain(each)
    for change in value.get("changes") or ():
        fields = change.get("fields") or []
        for field in fields[:_MAX_FIELDS]:
            for side in ("before", "after"):
                if side in field:
                    field[side] = _bounded_value(field[side])
        if len(fields) > _MAX_FIELDS:
            change["fields"] = [*fields[:_MAX_FIELDS], {"path": f"… and {len(fields) - _MAX_FIELDS} more fields"}]
    return value


def _bounded_value(value: Any) -> Any:
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return value if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}… ({len(text)} characters)"


def _object(preview: Object, shard: int, part: int, spec: Object) -> Object:
    metadata = preview["metadata"]
    owner = {
        "apiVersion": PREVIEW.api_version,
        "kind": PREVIEW.kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": False,
    }
    return {
        "apiVersion": PREVIEW_REPORT.api_version,
        "kind": PREVIEW_REPORT.kind,
        "metadata": {
            "name": f"{metadata['name']}-{shard}-{part}",
            "labels": {PREVIEW_LABEL: metadata["name"][:63]},
            "ownerReferences": [owner],
        },
        "spec": spec,
    }
