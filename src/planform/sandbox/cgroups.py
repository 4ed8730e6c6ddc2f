"""Limits that hold for a child and all it starts together: processes, memory and CPU by cgroups, of version 1 or 2.

Each controller is used where this machine has it, below the cgroup that the control plane itself runs in, so that the
limits of that one hold for all of them. Limits of single processes (`rlimits`) hold everywhere, but count neither
memory that is shared nor, for root, processes.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from planform.sandbox.leftovers import PREFIX, is_abandoned, scratch_prefix
from planform.sandbox.limits import Limits

CONTROLLERS: Final = ("pids", "memory", "cpu")
_OWN: Final = "planform-control-plane"
_PERIOD: Final = 100_000
_SLACK: Final = 64 << 20
"""Of memory, for what the kernel counts beside a program's own: page tables, its files in the page cache."""
_OURS: Final = 2
"""Processes of ours that share the cgroup: the first one of the namespace, and what moves ports."""
_KEPT: Final = 8
_LAST_TRIES: Final = 50


@dataclass(frozen=True, slots=True)
class Place:
    """Where a controller is, and in which version."""

    version: int
    directory: Path


@dataclass(frozen=True, slots=True)
class Group:
    """A cgroup for one child: a directory for each hierarchy that its controllers are in."""

    directories: tuple[Path, ...]
    key: tuple[int, int, float | None]

    @property
    def procs(self) -> list[str]:
        return [str(directory / "cgroup.procs") for directory in self.directories]


def find_controllers(proc: Path = Path("/proc/self"), root: Path = Path("/")) -> dict[str, Place]:
    """Where each of our controllers is for this process, whether or not we may use it there."""
    own: dict[str, str] = {}
    for line in _text(proc / "cgroup").splitlines():
        _, names, path = line.split(":", 2)
        own.update(dict.fromkeys(names.split(","), path))
    found: dict[str, Place] = {}
    for line in _text(proc / "mountinfo").splitlines():
        ahead, _, behind = line.partition(" - ")
        kind, *_, options = [*behind.split(), ""][:3] if behind else ["", ""]
        top, where = ahead.split()[3:5]
        if kind == "cgroup":
            for name in set(options.split(",")) & set(CONTROLLERS) & set(own):
                found[name] = Place(1, _inside(root, where, top, own[name]))
        elif kind == "cgroup2" and "" in own:
            directory = _inside(root, where, top, own[""])
            for name in set(_text(directory / "cgroup.controllers").split()) & set(CONTROLLERS):
                found.setdefault(name, Place(2, directory))
    return found


class Cgroups:
    """The cgroups of this process's children. Those of children that ended are kept for the next ones."""

    def __init__(self, places: Mapping[str, Place]) -> None:
        """Use what can be used of these; see `controllers`."""
        self._lock = threading.Lock()
        self._free: dict[tuple[int, int, float | None], list[Group]] = {}
        self._made: set[Path] = set()
        self._number = 0
        self._places: dict[str, Place] = {}
        for name, place in places.items():
            if place.version == 1 or _delegated(place.directory, name):
                self._places[name] = place
        self._places = {name: place for name, place in self._places.items() if self._usable(name, place)}

    @property
    def controllers(self) -> Mapping[str, Place]:
        """Those that hold."""
        return self._places

    def take(self, limits: Limits) -> Group | None:
        """A cgroup with these limits; None if there are none here."""
        if not self._places:
            return None
        key = (limits.processes, limits.memory + (limits.scratch or 0), limits.cpus)
        with self._lock:
            if free := self._free.get(key):
                return free.pop()
            self._number += 1
            name = f"{scratch_prefix()}{self._number}"
        try:
            return Group(tuple(self._make(name, key)), key)
        except OSError:
            return None

    def give_back(self, group: Group) -> None:
        """Kill what is left in it; it may be another child's then. Takes a moment if something is."""
        if not _emptied(group):
            return  # something cannot be killed: nobody else gets in, and the next start sweeps it
        with self._lock:
            kept = self._free.setdefault(group.key, [])
            if len(kept) < _KEPT:
                kept.append(group)
                return
        self._remove(group.directories)

    def close(self) -> None:
        """Remove all that are empty."""
        self._free.clear()
        self._remove(tuple(self._made))

    def sweep(self) -> int:
        """Remove those of control planes that were killed, and kill what may still run in them; gives how many."""
        swept = 0
        for directory in {place.directory for place in self._places.values()}:
            for path in directory.glob(f"{PREFIX}*"):
                if is_abandoned(path.name) and _emptied(Group((path,), (0, 0, None))):
                    with suppress(OSError):
                        path.rmdir()
                        swept += 1
        return swept

    def _usable(self, name: str, place: Place) -> bool:
        """Try it: whether directories can be made there, and have the controller's files."""
        trial = place.directory / f"{scratch_prefix()}trial-{name}"
        try:
            trial.mkdir()
        except OSError:
            return False
        try:
            for file, value in _settings(name, place.version, (64, 1 << 30, 1.0)):
                (trial / file).write_text(value)
            return True
        except OSError:
            return False
        finally:
            with suppress(OSError):
                trial.rmdir()

    def _make(self, name: str, key: tuple[int, int, float | None]) -> Iterator[Path]:
        for controller, place in self._places.items():
            directory = place.directory / name
            directory.mkdir(exist_ok=True)
            self._made.add(directory)
            for file, value in _settings(controller, place.version, key):
                (directory / file).write_text(value)
            yield directory

    def _remove(self, directories: tuple[Path, ...]) -> None:
        for directory in directories:
            with suppress(OSError):
                directory.rmdir()
                self._made.discard(directory)


def _settings(name: str, version: int, key: tuple[int, int, float | None]) -> Iterator[tuple[str, str]]:
    processes, memory, cpus = key
    match name, version:
        case "pids", _:
            yield "pids.max", str(processes + _OURS)
        case "memory", 1:
            yield "memory.limit_in_bytes", str(memory + _SLACK)
        case "memory", _:
            yield "memory.max", str(memory + _SLACK)
        case "cpu", 1 if cpus is not None:
            yield "cpu.cfs_period_us", str(_PERIOD)
            yield "cpu.cfs_quota_us", str(max(int(cpus * _PERIOD), 1000))
        case "cpu", 2 if cpus is not None:
            yield "cpu.max", f"{max(int(cpus * _PERIOD), 1000)} {_PERIOD}"
        case _:
            pass


def _delegated(directory: Path, name: str) -> bool:
    """Have the controller work in cgroups below this one, of version 2, where it is ours to say.

    There, processes are in leaves only. If nobody but us is in it, we go into a leaf of our own; if others are, it is
    not ours to divide.
    """
    below = directory / "cgroup.subtree_control"
    if name in _text(below).split():
        return True
    try:
        inside = {int(pid) for pid in _text(directory / "cgroup.procs").split()}
        if inside and (directory / "cgroup.type").exists():  # which only the root of all, which is an exception, lacks
            if not inside <= _ourselves():
                return False
            leaf = directory / _OWN
            leaf.mkdir(exist_ok=True)
            for pid in sorted(inside):
                (leaf / "cgroup.procs").write_text(str(pid))
        below.write_text(f"+{name}")
        return True
    except (OSError, ValueError):
        return False


def _ourselves() -> set[int]:
    """This process and the children that it has now."""
    found = {os.getpid()}
    for task in Path("/proc/self/task").iterdir():
        found |= {int(pid) for pid in _text(task / "children").split()}
    return found


def _emptied(group: Group) -> bool:
    for _ in range(_LAST_TRIES):
        left = {pid for path in group.procs for pid in _text(Path(path)).split()}
        if not left:
            return True
        for pid in left:
            with suppress(OSError, ValueError):
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.002)
    return False


def _inside(root: Path, where: str, top: str, path: str) -> Path:
    """The directory of this cgroup; what is mounted may be a part of the hierarchy that begins at `top`."""
    within = os.path.relpath(path, top)
    below = "" if within == "." or within.startswith("..") else within
    return root / where.lstrip("/") / below


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
