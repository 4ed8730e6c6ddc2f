"""The options that stand in a request's query, checked and worded as Kubernetes words them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from planform.apiserver.verbs import reads
from planform.apiserver.verbs.core import Core
from planform.apiserver.verbs.requests import Request, User, Validation
from planform.apiserver.wire.routes import truth
from planform.errors import BadRequest, FieldError, Invalid

Query = Mapping[str, list[str]]

_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
MAX_WATCH_SECONDS = 3600.0
"""Seconds after which every watch ends, whatever its timeoutSeconds asks for; clients begin another."""
_GATHER_SECONDS = 0.005
"""How long the events of a burst gather before they are sent."""


def write_request(query: Query, user: User, agent: str, warnings: list[str], kind: str) -> Request:
    """The options of a write, checked; `kind` names them in errors, `agent` is the manager unless one is given."""
    dry_run = query.get("dryRun", [])
    if dry_run and dry_run != ["All"]:
        shown = orjson.dumps(dry_run).decode()
        raise bad_option(kind, "dryRun", f'Unsupported value: {shown}: supported values: "All"')
    validation = one(query, "fieldValidation") or "Warn"
    if validation not in ("Strict", "Warn", "Ignore"):
        raise bad_option(
            kind,
            "fieldValidation",
            f'Unsupported value: "{validation}": supported values: "Ignore", "Strict", "Warn"',
        )
    manager = one(query, "fieldManager")
    if not manager:
        manager = agent.partition("/")[0][:128] or "unknown"
    elif len(manager.encode()) > 128:
        raise bad_option(kind, "fieldManager", "Too long: may not be more than 128 bytes")
    elif not manager.isprintable():
        raise bad_option(kind, "fieldManager", f'Invalid value: "{manager}": should only contain printable characters')
    options: dict[str, Any] = {}
    if dry_run:
        options["dryRun"] = dry_run
    for name in ("fieldManager", "fieldValidation") if kind != "DeleteOptions" else ():
        if given := one(query, name):
            options[name] = given
    checked: Validation = validation  # type: ignore[assignment]  # it is one of the three
    return Request(user, manager, bool(dry_run), checked, warnings, options=options)


def bad_option(kind: str, field: str, detail: str) -> Invalid:
    reason = {
        "Unsupported": "FieldValueNotSupported",
        "Required": "FieldValueRequired",
        "Forbidden:": "FieldValueForbidden",
        "Too": "FieldValueTooLong",
    }.get(detail.split()[0], "FieldValueInvalid")
    return Invalid.of("meta.k8s.io", kind, "", [FieldError(field, reason, detail)])


def list_options(query: Query) -> reads.Options:
    limit = number(query, "limit")
    version, match = one(query, "resourceVersion"), one(query, "resourceVersionMatch")
    if "sendInitialEvents" in query:
        raise bad_option("ListOptions", "sendInitialEvents", "Forbidden: sendInitialEvents is forbidden for list")
    if match:
        if match not in ("Exact", "NotOlderThan"):
            raise bad_option(
                "ListOptions",
                "resourceVersionMatch",
                f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan"',
            )
        if not version:
            raise bad_option(
                "ListOptions",
                "resourceVersionMatch",
                "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            )
        if match == "Exact" and version == "0":
            raise bad_option(
                "ListOptions",
                "resourceVersionMatch",
                'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
            )
    _check_version(version)
    return reads.Options(limit, one(query, "continue"), version, match)  # type: ignore[arg-type]  # checked above


def watch_options(query: Query, core: Core) -> reads.WatchOptions:
    version, match = one(query, "resourceVersion"), one(query, "resourceVersionMatch")
    initial: bool | None = None
    if "sendInitialEvents" in query:
        initial = is_true(query, "sendInitialEvents")
        if match != "NotOlderThan":
            raise bad_option(
                "ListOptions",
                "resourceVersionMatch",
                "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )
    elif match:
        raise bad_option(
            "ListOptions",
            "resourceVersionMatch",
            "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )
    _check_version(version)
    seconds = number(query, "timeoutSeconds")
    timeout = (
        min(float(seconds), MAX_WATCH_SECONDS)
        if seconds > 0
        else core.rng.uniform(MAX_WATCH_SECONDS / 2, MAX_WATCH_SECONDS)
    )
    return reads.WatchOptions(version, initial, is_true(query, "allowWatchBookmarks"), timeout, gather=_GATHER_SECONDS)


def _check_version(version: str) -> None:
    if version and not (version.isascii() and version.isdigit() and len(version) < 20):
        raise BadRequest(f'resourceVersion: Invalid value: "{version}": resource versions are decimal numbers')


def number(query: Query, name: str) -> int:
    text = one(query, name)
    if not text:
        return 0
    if _NUMBER.fullmatch(text) is None:
        raise BadRequest(f'{name}: Invalid value: "{text[:100]}": must be a number')
    return int(text)


def one(query: Query, name: str) -> str:
    values = query.get(name)
    return values[0] if values else ""


def is_true(query: Query, name: str) -> bool:
    values = query.get(name)
    return truth(values[0]) if values else False


def wants_indent(query: Query) -> bool:
    return bool(query) and is_true(query, "pretty")
