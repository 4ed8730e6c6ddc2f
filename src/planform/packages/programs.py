"""Programs to put into packages: a Python project with all it depends on, or one executable.

Dependencies are installed by pip into a directory of their own. Of what pip writes there, the parts that differ
between machines are left out: compiled bytecode, scripts with an interpreter's path, and notes on where files are.
Where nobody offers our SDK, the one that this interpreter has is taken.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from planform.packages.building import Program
from planform.packages.errors import BuildFailed
from planform.packages.layers import File
from planform.packages.oci import this_platform
from planform.packages.payloads import PYTHON, Payload, RuntimeKind
from planform.packages.sdk_wheel import SDK, write_sdk_wheel

_APP: Final = "app"
_LIB: Final = "lib"
_WHEELS: Final = "wheels"
_LEFT_OUT: Final = frozenset({"__pycache__", "tests", "test", "example", "examples", "venv", "env", "dist", "build"})
_MACHINE_FILES: Final = frozenset({"RECORD", "direct_url.json", "REQUESTED", "INSTALLER"})
_ENTRIES: Final = ("function.py", "main.py")
_COMPILED: Final = (".so", ".pyd", ".dylib")
_PIP_SECONDS: Final = 900


@dataclass(frozen=True, slots=True)
class Vendoring:
    """How dependencies are found. `requirements` is a file for pip that replaces the project's own list."""

    requirements: Path | None = None
    find_links: tuple[str, ...] = ()
    offline: bool = False
    """Ask no index: everything must be in `find_links`."""


def python_program(
    project: Path,
    scratch: Path,
    *,
    entry: str = "",
    leave_out: Sequence[Path] = (),
    vendoring: Vendoring = Vendoring(),  # noqa: B008
) -> Program:
    """The program of a Python project, with its dependencies. Files of it may be in `scratch` until it is packed.

    `entry` is FILE.py[:NAME] or MODULE[:NAME] of a function written with our SDK; by default the project's only
    script, else function.py or main.py.
    """
    settings = _settings(project)
    lib = scratch / _LIB
    lib.mkdir(parents=True)
    if wanted := _requirements(project, settings, vendoring):
        _vendor(wanted, lib, scratch / _WHEELS, vendoring)
    vendored = tuple(_vendored(lib))
    own = () if "build-system" in settings else tuple(_own(project, leave_out))
    payload = Payload(
        RuntimeKind.PROCESS,
        _command(project, settings, entry, lib),
        (_LIB, _APP) if own else (_LIB,),
        _python() if any(file.path.endswith(_COMPILED) for file in vendored) else "",
    )
    return Program(payload, (*vendored, *own), this_platform() if payload.python else None)


def executable_program(executable: Path) -> Program:
    """The program that one executable file is; it must not need anything else of this machine."""
    if not executable.is_file():
        raise BuildFailed(f"there is no file {executable}")
    if not os.access(executable, os.X_OK):
        raise BuildFailed(f"{executable} is not executable", hint=f"chmod +x {executable}")
    path = f"bin/{executable.name}"
    with executable.open("rb") as file:
        is_script = file.read(2) == b"#!"
    platform = None if is_script else this_platform()
    return Program(Payload(RuntimeKind.PROCESS, (path,)), (File(path, executable, executable=True),), platform)


def _settings(project: Path) -> dict[str, Any]:
    try:
        return tomllib.loads((project / "pyproject.toml").read_text())
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeError) as error:
        raise BuildFailed(f"{project / 'pyproject.toml'}: {error}") from error


def _requirements(project: Path, settings: dict[str, Any], vendoring: Vendoring) -> list[str]:
    """What pip is to install: the project itself if it says how it is built, else what it depends on."""
    listed = ["--requirement", str(vendoring.requirements)] if vendoring.requirements is not None else []
    if "build-system" in settings:
        return [*listed, *(["--no-deps"] if listed else []), str(project.resolve())]
    if listed:
        return listed
    dependencies = settings.get("project", {}).get("dependencies") or []
    if not dependencies and (project / "requirements.txt").is_file():
        return ["--requirement", str(project / "requirements.txt")]
    return [str(dependency) for dependency in dependencies]


def _vendor(wanted: Sequence[str], target: Path, wheels: Path, vendoring: Vendoring) -> None:
    try:
        _install(wanted, target, vendoring)
    except BuildFailed as error:
        if f"No matching distribution found for {SDK}" not in error.message or not write_sdk_wheel(wheels):
            raise
        _install(wanted, target, replace(vendoring, find_links=(*vendoring.find_links, str(wheels))))


def _install(wanted: Sequence[str], target: Path, vendoring: Vendoring) -> None:
    options = ["--target", str(target), "--no-compile", "--no-input", "--disable-pip-version-check", "--quiet"]
    options += ["--no-warn-conflicts", *(word for place in vendoring.find_links for word in ("--find-links", place))]
    options += ["--no-index"] if vendoring.offline else []
    command = [sys.executable, "-m", "pip", "install", *options, *wanted]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PIP_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise BuildFailed(f"pip did not install the dependencies within {_PIP_SECONDS} s") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        message = next(
            (line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else "nothing"
        )
        hint = "install pip for this Python: python -m ensurepip" if "No module named pip" in done.stderr else None
        raise BuildFailed(f"pip cannot install the dependencies: {message.removeprefix('ERROR: ')}", hint=hint)


def _vendored(lib: Path) -> Iterator[File]:
    for path in sorted(lib.rglob("*")):
        inside = path.relative_to(lib)
        scripts = inside.parts[0] == "bin"
        if path.is_file() and not scripts and "__pycache__" not in inside.parts and path.name not in _MACHINE_FILES:
            yield File(f"{_LIB}/{inside.as_posix()}", path, os.access(path, os.X_OK) and path.suffix != ".py")


def _own(project: Path, leave_out: Sequence[Path]) -> Iterator[File]:
    """The project's files as they are, without what only its author needs."""
    root, kept_out = project.resolve(), [path.resolve() for path in leave_out]
    for path in sorted(root.rglob("*")):
        inside = path.relative_to(root)
        private = any(part in _LEFT_OUT or part.startswith(".") or part.endswith(".egg-info") for part in inside.parts)
        if private or path.suffix == ".xpkg" or any(path.is_relative_to(each) for each in kept_out):
            continue
        if not path.resolve().is_relative_to(root):
            raise BuildFailed(f"{path} is a link to outside of the project")
        if path.is_file():
            yield File(f"{_APP}/{inside.as_posix()}", path.resolve(), os.access(path, os.X_OK))


def _command(project: Path, settings: dict[str, Any], entry: str, lib: Path) -> tuple[str, ...]:
    scripts = list((settings.get("project", {}).get("scripts") or {}).values())
    if not entry and len(scripts) == 1 and "build-system" in settings:
        module, _, name = str(scripts[0]).partition(":")
        return (PYTHON, "-c", f"import sys; from {module} import {name}; sys.exit({name}())")
    entry = entry or next((name for name in _ENTRIES if (project / name).is_file()), "")
    if not entry:
        raise BuildFailed(
            f"{project} has neither {' nor '.join(_ENTRIES)}, nor one script that starts it",
            hint="say which function to serve: --entry FILE.py[:NAME]",
        )
    file, colon, name = entry.partition(":")
    if file.endswith(".py"):
        if not (project / file).is_file():
            raise BuildFailed(f"there is no file {project / file}")
        entry = f"{_APP}/{file}{colon}{name}"
    if not (lib / "planform_sdk").is_dir():
        raise BuildFailed(
            f"{project} does not depend on planform-sdk, which serves {entry}",
            hint='add it to dependencies in pyproject.toml, or name a script of your own in "[project.scripts]"',
        )
    return (PYTHON, "-m", "planform_sdk", "serve", entry)


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"
