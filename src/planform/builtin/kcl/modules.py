"""KCL modules that a program is made of or imports: which those are, and what makes up each.

A module is fetched only if its name says exactly which bytes it is: an OCI artifact with its digest. Whoever fetches
decides whether it is allowed to. Modules may need others, by their `kcl.mod`; of two with one name the input's wins.
"""

from __future__ import annotations

import asyncio
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import parse_qs

from planform.builtin.inputs import InputError

MAX_MODULES: Final = 64
"""Modules that one program may be made of."""
REMOTE: Final = re.compile(r"(oci|git|https?|ssh|file)://|git@|(github|gitlab)\.com/")
VARYING: Final = re.compile(r"^\s*import\s+(datetime|crypto)\b", re.MULTILINE)
FILES: Final = re.compile(r"^\s*import\s+file\b", re.MULTILINE)
_OCI: Final = "oci://"
_GIT: Final = re.compile(r"(git|ssh)://|git@|(https?://)?(github|gitlab)\.com/|https?://\S+\.git\b")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}\Z")
_WHY_NOT_GIT: Final = (
    "sources in Git are not fetched here, pinned or not: push the module to a registry (kcl mod push) and name it by"
    " its digest"
)


class ModuleRefused(Exception):
    """A module that is not fetched, or cannot be; the text says which, why, and what to do."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """An artifact by `registry/repository` and digest: the same bytes for ever."""

    repository: str
    digest: str

    def __str__(self) -> str:
        return f"{_OCI}{self.repository}@{self.digest}"


class Modules(Protocol):
    """Whoever has modules, or may fetch them."""

    @property
    def directory(self) -> Path:
        """Where all of them are, and nothing else; a program's worker sees it."""
        ...

    async def fetch(self, module: Pinned, /) -> Path:
        """The files of a module, below the directory. Raises ModuleRefused."""
        ...


@dataclass(frozen=True, slots=True)
class Needed:
    """What the input asks for: the module that is the program, if it is one, and those it may import, by name."""

    source: Pinned | None
    dependencies: Mapping[str, Pinned]

    def __bool__(self) -> bool:
        return self.source is not None or bool(self.dependencies)


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a worker is told: the directory of the program, empty if it is inline, and those of modules by name."""

    source: str = ""
    packages: tuple[tuple[str, str], ...] = ()
    varies: bool = False
    """Whether a module asks for the time or for randomness."""


@dataclass(frozen=True, slots=True)
class _Module:
    """What is known of the files of a module."""

    path: Path
    dependencies: Mapping[str, Any]
    varies: bool


def needed(source: str, dependencies: Any) -> Needed:
    """The modules that an input names. Raises InputError for each that is not pinned."""
    program = None
    if is_remote(source):
        program = _pinned_source(source)
    listed = _listed(dependencies)
    pinned = {name: _pinned(name, given, "spec.dependencies") for name, given in listed.items()}
    return Needed(program, pinned)


def is_remote(source: str) -> bool:
    text = source.strip()
    return "\n" not in text and REMOTE.match(text) is not None


async def fetch_all(wanted: Needed, modules: Modules) -> Fetched:
    """Fetch all that a program needs, and what that needs in turn. Raises ModuleRefused and InputError."""
    source = await _open(modules, wanted.source) if wanted.source is not None else None
    found: dict[str, _Module] = {}
    waiting: dict[str, Pinned | Path] = dict(wanted.dependencies)
    if source is not None:
        waiting = _more(source, f"{wanted.source}", waiting.keys()) | waiting
    while waiting:
        name, what = waiting.popitem()
        if len(found) == MAX_MODULES:
            raise ModuleRefused(f"the program needs more than {MAX_MODULES} modules")
        found[name] = module = await (_read(what) if isinstance(what, Path) else _open(modules, what))
        known = found.keys() | waiting.keys() | wanted.dependencies.keys()
        waiting |= _more(module, name, known)
    return Fetched(
        str(source.path) if source is not None else "",
        tuple((name, str(module.path)) for name, module in sorted(found.items())),
        any(module.varies for module in (*found.values(), *((source,) if source else ()))),
    )


def _more(module: _Module, where: str, known: Collection[str]) -> dict[str, Pinned | Path]:
    """What a module's own `kcl.mod` asks for. Modules that are known by name need not be pinned again."""
    found: dict[str, Pinned | Path] = {}
    for name, given in module.dependencies.items():
        if name in known:
            continue
        path = given.get("path") if isinstance(given, dict) else None
        if isinstance(path, str):
            beside = (module.path / path).resolve()
            if not beside.is_relative_to(module.path.resolve()) or not beside.is_dir():
                raise ModuleRefused(f'the module "{name}" of {where} is not in its artifact: {path}')
            found[name] = beside
        else:
            found[name] = _pinned(name, given, f"kcl.mod of {where}")
    return found


async def _open(modules: Modules, module: Pinned) -> _Module:
    return await _read(await modules.fetch(module))


async def _read(path: Path) -> _Module:
    return await asyncio.to_thread(_inspected, path)


@lru_cache(maxsize=4 * MAX_MODULES)  # what is in a module's directory never changes
def _inspected(path: Path) -> _Module:
    varies = False
    for file in sorted(path.rglob("*.k")):
        text = file.read_text("utf-8", "replace")
        varies = varies or VARYING.search(text) is not None
        if FILES.search(text):
            raise ModuleRefused(f"{file.relative_to(path)} of a module imports file: a program has no files to read")
    try:
        parsed = tomllib.loads((path / "kcl.mod").read_text("utf-8"))
    except FileNotFoundError:
        return _Module(path, {}, varies)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ModuleRefused(f"kcl.mod of a module cannot be read: {error}") from None
    dependencies = parsed.get("dependencies")
    return _Module(path, dependencies if isinstance(dependencies, dict) else {}, varies)


# -- how modules are named


def _listed(dependencies: Any) -> Mapping[str, Any]:
    if not dependencies:
        return {}
    if not isinstance(dependencies, str):
        raise InputError("spec.dependencies: must be text, as the dependencies of a kcl.mod")
    try:
        return tomllib.loads(dependencies)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"spec.dependencies: must be as the dependencies of a kcl.mod: {error}") from None


def _pinned_source(source: str) -> Pinned:
    text = source.strip()
    if _GIT.match(text) and not text.startswith(_OCI):
        raise InputError(f"spec.source: {text}: {_WHY_NOT_GIT}")
    if not text.startswith(_OCI):
        raise InputError(f"spec.source: {text}: only sources inline and from registries (oci://) are run here")
    name, _, query = text.partition("?")
    asked = parse_qs(query)
    if "mod" in asked:
        raise InputError(f"spec.source: {text}: a module within an artifact cannot be chosen here")
    found = _of_oci(name, (asked.get("digest") or [""])[0])
    if found is None:
        raise InputError(
            f"spec.source: {text} is not pinned by its digest: write oci://REGISTRY/REPOSITORY@sha256:..., or &digest="
            " beside the tag"
        )
    return found


def _pinned(name: str, given: Any, where: str) -> Pinned:
    if isinstance(given, dict):
        if "git" in given:
            raise InputError(f'{where}: "{name}": {_WHY_NOT_GIT}')
        if "package" in given:
            raise InputError(f'{where}: "{name}": a module within an artifact cannot be chosen here')
        oci, digest = given.get("oci"), given.get("digest") or ""
        if isinstance(oci, str) and isinstance(digest, str):
            found = _of_oci(oci.partition("?")[0], digest)
            if found is not None:
                return found
    raise InputError(
        f'{where}: "{name}" is not pinned by its digest: write in spec.dependencies {name} = {{ oci ='
        ' "oci://REGISTRY/REPOSITORY", digest = "sha256:..." }'
    )


def _of_oci(name: str, digest: str) -> Pinned | None:
    repository, _, written = name.removeprefix(_OCI).partition("@")
    digest = written or digest
    if not repository or not _DIGEST.match(digest):
        return None
    return Pinned(repository.rstrip("/"), digest)
