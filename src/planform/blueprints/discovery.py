"""The functions of this process over HTTP, for people and tools that write Blueprints:

    GET /v1/functions                           all of them
    GET /v1/functions/NAME                      one, with every version it ever had
    GET /v1/functions/NAME/versions/VERSION     one version; 410 with its replacement once it is removed

Answers follow from what is registered, the versions file, the overlay and who uses what, and from nothing else. They
have an ETag and hold no names of anybody's objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256

import orjson

from planform.api.kinds import Object
from planform.blueprints import FUNCTIONS_PATH, FUNCTIONS_PREFIX
from planform.blueprints.catalogue import Described, PhaseCatalogue
from planform.functions.semver import parse_semver

Uses = Callable[[str, str], Mapping[str, int]]
"""How many Blueprints pin a version of a function and how many runs are bound to it: {"blueprints", "actionSets"}."""

Answer = tuple[int, dict[str, str], bytes]


def answer(
    catalogue: PhaseCatalogue, path: str, headers: Mapping[str, str], *, method: str = "GET", uses: Uses | None = None
) -> Answer:
    """Status, headers and body. `headers` are the request's, with names in lower case."""
    if method not in ("GET", "HEAD"):
        return _refused(405, "MethodNotAllowed", "functions can only be read", {"allow": "GET, HEAD"})
    parts = tuple(part for part in path.partition("?")[0].split("/") if part)
    if parts[:2] != FUNCTIONS_PREFIX:
        return _refused(404, "NotFound", f"ask for {FUNCTIONS_PATH}")
    catalogue.refresh()
    match parts[2:]:
        case ():
            found: Object | None = {
                "release": catalogue.release,
                "functions": [_function(catalogue, name, uses) for name in catalogue.functions],
            }
        case (name,):
            known = name in catalogue.functions
            found = {"release": catalogue.release, **_function(catalogue, name, uses)} if known else None
        case (name, "versions", version):
            return _one_version(catalogue, name, version, headers, uses)
        case _:
            found = None
    if found is None:
        return _refused(404, "NotFound", f'there is no function "{"/".join(parts[2:])}"')
    return _answer(200, found, headers)


def function_list(catalogue: PhaseCatalogue, uses: Uses | None = None) -> list[Object]:
    """All functions as the list above has them."""
    return [_function(catalogue, name, uses) for name in catalogue.functions]


def _one_version(
    catalogue: PhaseCatalogue, name: str, version: str, headers: Mapping[str, str], uses: Uses | None
) -> Answer:
    number = parse_semver(version)
    for each in catalogue.describe(name):
        if number is not None and parse_semver(each.version) == number:
            body = {"release": catalogue.release, "function": name, **_version(name, each, uses)}
            return _answer(200, body, headers) if each.state != "removed" else _answer(410, _gone(body), headers)
    return _refused(404, "NotFound", f'function "{name}" has no version "{version}"')


def _function(catalogue: PhaseCatalogue, name: str, uses: Uses | None) -> Object:
    versions = catalogue.describe(name)
    stable = next((each for each in versions if each.stable), None)
    current = stable.function if stable is not None else None
    described = current or next((each.function for each in versions if each.function is not None), None)
    return {
        "name": name,
        "description": described.description if described is not None else "",
        "versioned": catalogue.is_versioned(name),
        "stable": stable.version if stable is not None else "",
        "versions": [_version(name, each, uses) for each in versions],
    }


def _version(name: str, each: Described, uses: Uses | None) -> Object:
    described: Object = {"version": each.version, "state": each.state}
    more = {
        "since": each.since,
        "deprecatedIn": each.deprecated_in,
        "removedIn": each.removed_in,
        "replacement": each.replacement,
        "note": each.note,
        "labels": dict(each.labels or {}),
    }
    described |= {key: value for key, value in more.items() if value}
    if each.function is not None:
        function = each.function
        described |= {
            "requiredArgs": sorted(function.required),
            "arguments": None if function.arguments is None else sorted({*function.arguments} - {*function.required}),
            "engines": list(function.engines),
            "capabilities": _capabilities(each),
            "description": function.description,
        }
        if function.reads:
            described["reads"] = dict(function.reads)
    if uses is not None:
        described["inUseBy"] = dict(uses(name, each.version))
    return described


def _gone(facts: Object) -> Object:
    """What is known of a removed version, told as a Status too, whose message clients like kubectl show."""
    parts = [f"removed in {facts['removedIn']}"]
    parts += [f"move to {facts['replacement']}"] if facts.get("replacement") else []
    parts += [facts["note"]] if facts.get("note") else []
    message = f"{facts['function']} {facts['version']}: {', '.join(parts)}"
    return {**facts, **_status(410, "Gone", message)}


def _capabilities(each: Described) -> list[str]:
    if each.function is None:
        return []
    flags = {"resumable": each.function.resumable, "rendersItself": each.function.renders_itself}
    return ["phase", *(name for name, has in flags.items() if has)]


def _answer(status: int, body: Object, headers: Mapping[str, str]) -> Answer:
    encoded = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    tag = f'"{sha256(encoded).hexdigest()[:32]}"'
    described = {"etag": tag, "content-type": "application/json", "cache-control": "no-cache"}
    wanted = headers.get("if-none-match", "")
    if status == 200 and (
        wanted.strip() == "*" or tag in (each.strip().removeprefix("W/") for each in wanted.split(","))
    ):
        return 304, described, b""
    return status, described, encoded


def _refused(status: int, reason: str, message: str, headers: Mapping[str, str] | None = None) -> Answer:
    body = orjson.dumps(_status(status, reason, message))
    return status, {"content-type": "application/json", **(headers or {})}, body


def _status(code: int, reason: str, message: str) -> Object:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
