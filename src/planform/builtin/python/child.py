"""Runs one script on one request: a RunFunctionRequest on standard input, a RunFunctionResponse on standard output.

A program of its own, run in the sandbox. What the script prints goes to standard error, so that it cannot spoil the
answer. Where Crossplane's SDK for Python is installed, a script that mentions it gets that SDK's messages; elsewhere
its name for the protocol's module leads to ours.
"""

from __future__ import annotations

import inspect
import linecache
import os
import sys
import traceback
import types
from importlib.util import find_spec
from typing import Any

SCRIPT = "script.py"
_UPSTREAM = "crossplane.function.proto.v1.run_function_pb2"
_ENTRIES = ("compose", "operate")


class ScriptError(Exception):
    """What is wrong with the script, in one line."""


def main() -> None:
    answer = os.dup(1)
    os.dup2(2, 1)
    data = sys.stdin.buffer.read()
    _skip_the_sdk(data)
    from planform_sdk.proto import v1

    source = str(v1.RunFunctionRequest.FromString(data).input["script"])
    protocol = _protocol(source, v1)
    request = protocol.RunFunctionRequest.FromString(data)
    response = _start(protocol, request)
    try:
        _call(_load(source), request, response)
    except ScriptError as error:
        response = _start(protocol, request)
        response.results.add(severity=protocol.SEVERITY_FATAL, message=str(error), target=protocol.TARGET_COMPOSITE)
    with os.fdopen(answer, "wb") as out:
        out.write(response.SerializeToString())


def _skip_the_sdk(data: bytes) -> None:
    """Let the messages be imported without the rest of the SDK, which takes longer, unless the script may use it."""
    if b"planform_sdk" not in data and (found := find_spec("planform_sdk")) is not None:
        package = types.ModuleType("planform_sdk")
        package.__path__ = list(found.submodule_search_locations or ())
        sys.modules["planform_sdk"] = package


def _protocol(source: str, ours: Any) -> Any:
    """The module whose messages the script can use together with its own imports."""
    if "crossplane" not in source:
        return ours
    if find_spec("crossplane") is not None and find_spec("crossplane.function") is not None:
        from importlib import import_module

        return import_module(_UPSTREAM)
    parent: types.ModuleType | None = None
    parts = _UPSTREAM.split(".")
    for end in range(1, len(parts)):
        module = types.ModuleType(".".join(parts[:end]))
        module.__path__ = []
        sys.modules[module.__name__] = module
        if parent is not None:
            setattr(parent, parts[end - 1], module)
        parent = module
    assert parent is not None
    setattr(parent, parts[-1], ours)
    sys.modules[_UPSTREAM] = ours
    return ours


def _start(protocol: Any, request: Any) -> Any:
    """A response that passes everything on."""
    response = protocol.RunFunctionResponse()
    response.meta.tag = request.meta.tag
    response.meta.ttl.seconds = 60
    response.desired.CopyFrom(request.desired)
    response.context.CopyFrom(request.context)
    return response


def _load(source: str) -> Any:
    """The one function that the script defines for us."""
    linecache.cache[SCRIPT] = (len(source), None, source.splitlines(keepends=True), SCRIPT)
    module = types.ModuleType("script")
    sys.modules["script"] = module
    try:
        exec(compile(source, SCRIPT, "exec"), module.__dict__)
    except SyntaxError as error:
        raise ScriptError(f"the script cannot be read: line {error.lineno}: {error.msg}") from None
    except BaseException as error:
        raise ScriptError(f"the script cannot be loaded: {_message_of(error)}") from None
    found = [name for name in _ENTRIES if callable(getattr(module, name, None))]
    if len(found) != 1:
        raise ScriptError(f"the script must define either compose(req, rsp) or operate(req, rsp), not {_both(found)}")
    return getattr(module, found[0])


def _call(entry: Any, request: Any, response: Any) -> None:
    try:
        result = entry(request, response)
        if inspect.isawaitable(result):
            import asyncio

            asyncio.run(_awaited(result))
    except BaseException as error:
        traceback.print_exc()
        raise ScriptError(f"the script failed: {_message_of(error)}") from None


async def _awaited(result: Any) -> None:
    await result


def _message_of(error: BaseException) -> str:
    """Where in the script, and what; `sys.exit()` is an error like others."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == SCRIPT]
    where = f"line {frames[-1].lineno}, in {frames[-1].name}: " if frames else ""
    return f"{where}{type(error).__name__}: {error}"


def _both(found: list[str]) -> str:
    return "both" if found else "neither"


if __name__ == "__main__":
    main()
