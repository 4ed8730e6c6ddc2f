"""The one place that knows the KCL library: runs a program on its arguments, and reads its output and its errors.

The library is `kcl-lib`. It has no bound on time or memory, and a program that recurses without end takes the process
with it, so this belongs in a worker process.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

import msgspec

PACKAGE: Final = "kcl-lib"
FILE: Final = "main.k"
OUTPUT: Final = 4 << 20
"""Bytes that a program may give, as a function may over the wire."""
_WHERE: Final = re.compile(r"---> File (\S+?):(\d+)(?::(\d+))?: ?(.*)")
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_MISSING_MODULE: Final = re.compile(r"pkgpath (\S+) not found|[Cc]annot find the module (\S+)")
_ERRORS_SHOWN: Final = 3


class ProgramError(Exception):
    """A program that does not compile, fails, or gives what is no object; the text says where."""


@dataclass(frozen=True, slots=True)
class Program:
    """Its text, or the directory of the module that it is; and where the modules are that it may import, by name."""

    text: str
    directory: str = ""
    packages: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Arguments:
    """How the program is run, as its input says; `given` are arguments as `name=value`."""

    given: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    selectors: tuple[str, ...] = ()
    sort_keys: bool = False
    show_hidden: bool = False
    disable_none: bool = False
    strict_range_check: bool = False


def check_engine() -> None:
    """Raise ProgramError if the library is not installed."""
    if find_spec("kcl_lib") is None:
        raise ProgramError(
            f"cannot run KCL: the Python package {PACKAGE} is not installed: pip install 'planform[kcl]'"
        )


def run_program(program: Program, params: dict[str, Any], arguments: Arguments) -> list[Any]:
    """What the program gives: the elements of `items` if it has those, else its documents. Raises ProgramError."""
    documents = [msgspec.json.decode(line) for line in _output(program, params, arguments).splitlines() if line.strip()]
    if len(documents) == 1 and isinstance(documents[0], dict) and documents[0].get("items") is not None:
        items = documents[0]["items"]
        if not isinstance(items, list):
            raise ProgramError(f"{FILE}: items must be a list")
        return items
    return [document for document in documents if document is not None]


def _output(program: Program, params: dict[str, Any], arguments: Arguments) -> str:
    from kcl_lib import api

    named = [(name, value) for name, _, value in (one.partition("=") for one in arguments.given)]
    named += [("params", msgspec.json.encode(params).decode()), ("items", "[]"), ("resource_list", "{}"), ("env", "{}")]
    call = api.ExecProgramArgs(
        work_dir=program.directory,
        k_filename_list=[program.directory or FILE],
        k_code_list=[] if program.directory else [program.text],
        external_pkgs=[api.ExternalPkg(pkg_name=name, pkg_path=path) for name, path in program.packages],
        args=[api.Argument(name=name, value=value) for name, value in named],
        overrides=list(arguments.overrides),
        path_selector=list(arguments.selectors),
        sort_keys=arguments.sort_keys,
        show_hidden=arguments.show_hidden,
        disable_none=arguments.disable_none,
        strict_range_check=arguments.strict_range_check,
        disable_yaml_result=True,
    )
    try:
        done = api.API().exec_program(call)
    except Exception as error:  # the library raises nothing narrower, whatever is wrong with a program
        raise ProgramError(_in_one_line(str(error), program)) from None
    if done.err_message:
        raise ProgramError(_in_one_line(done.err_message, program))
    output = str(done.json_result)
    if len(output) > OUTPUT:
        raise ProgramError(f"the KCL program gives {len(output)} bytes; at most {OUTPUT} are allowed")
    return output


def _in_one_line(text: str, program: Program) -> str:
    """The library's report as `FILE:LINE:COLUMN: what`, for the first few errors in it; files by their module."""
    for name, path in (("", program.directory), *program.packages):
        text = text.replace(f"{path}/", f"{name}/" if name else "") if path else text
    if missing := _MISSING_MODULE.search(text):
        name = missing[1] or missing[2]
        return (
            f'failed to run the KCL program: there is no module "{name}"; only KCL\'s own modules can be imported, and'
            " those that spec.dependencies name by their digests"
        )
    found = [
        f"{file}:{line}{f':{column}' if column else ''}: {what}" for file, line, column, what in _WHERE.findall(text)
    ]
    text = "; ".join(dict.fromkeys(found[:_ERRORS_SHOWN])) or " ".join(_COLOURS.sub("", text).split())
    return f"failed to run the KCL program: {text}"
