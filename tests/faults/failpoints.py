"""Failpoints from outside: where a control plane may die, found by watching a run of it, not by hooks in its code.

Every write to the store, every call of a function and every write to the journal is met twice, before it is made and
after it is done but before anybody hears of it. A run that is not armed gives the list of all of them; an armed one is
killed by the kernel at its point, so nothing is closed, flushed or said.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from planform.api.xr import RESOURCE_NAME_ANNOTATION
from planform.functions.routing import RoutingRunner
from planform.functions.runner import FunctionRevision
from planform.functions.values import FunctionRequest, FunctionResponse
from planform.journal.outbox import Batch
from planform.journal.tables import Tables, Written
from planform.packages import payloads
from planform.packages.blobs import BlobStore
from planform.packages.runtimes import certificates
from planform.store import Change, Key, Store


class Point(NamedTuple):
    """A moment of a run. It has the same name in another run, whatever the uids and whoever was faster."""

    phase: str
    what: str
    occurrence: int
    moment: str

    def __str__(self) -> str:
        count = f" ({self.occurrence})" if self.occurrence > 1 else ""
        return f"{self.phase}: {self.moment} {self.what}{count}"


class Failpoints:
    """All points that this process meets while `phase` is set."""

    def __init__(self) -> None:
        self.phase = ""
        self.armed: Point | int | None = None
        """Where to end: at this point, or at whichever comes after so many others."""
        self.met: list[Point] = []
        self._occurrences: Counter[tuple[str, str, str]] = Counter()

    def reset(self, armed: Point | int | None) -> None:
        """Begin to count anew."""
        self.armed = armed
        self.met.clear()
        self._occurrences.clear()

    def meet(self, what: str, moment: str) -> None:
        """Go on, or end here; may be called from any thread."""
        phase = self.phase
        if not phase:
            return
        self._occurrences[phase, what, moment] += 1
        point = Point(phase, what, self._occurrences[phase, what, moment], moment)
        if self.armed in (point, len(self.met)):
            os.kill(os.getpid(), signal.SIGKILL)
        self.met.append(point)

    def surround_writers_and_callers(self) -> None:
        """Meet points at everything below, in this process, from now on."""
        self._surround_store()
        self._surround_functions()
        self._surround_journal()

    def committed(self, changes: Sequence[Change]) -> None:
        """Subscribe this to the store: it is called when a batch is on the disk and before its writers are."""
        for change in changes:
            after = None if change.type == "DELETED" else change.value
            self.meet(describe(change.key, change.previous, after), "after")

    def _surround_store(self) -> None:
        stage = Store.stage

        def stage_or_die(store: Store, key: Key, value: bytes | None, *, last: bytes | None = None) -> Any:
            head = store.head(key)
            self.meet(describe(key, head.value if head else None, value), "before")
            return stage(store, key, value, last=last)

        Store.stage = stage_or_die  # type: ignore[method-assign,assignment]

    def _surround_functions(self) -> None:
        run = RoutingRunner.run

        async def run_or_die(
            runner: RoutingRunner, revision: FunctionRevision, request: FunctionRequest, /, *, timeout: float
        ) -> FunctionResponse:
            self.meet(f"call {revision.function}", "before")
            response = await run(runner, revision, request, timeout=timeout)
            self.meet(f"call {revision.function}", "after")
            return response

        RoutingRunner.run = run_or_die  # type: ignore[method-assign]

    def surround_package_files(self) -> None:
        """Meet points at everything that installing packages does to the disk."""
        self._surround(BlobStore, "_publish", "disk publish")
        self._surround(BlobStore, "remember", "disk remember name")
        self._surround(BlobStore, "sweep", "disk sweep")
        self._surround(BlobStore, "forget_names", "disk forget names")
        self._surround(shutil, "rmtree", "disk remove files")
        self._surround(BlobStore, "adopt", "disk adopt download")
        self._surround(certificates, "_write", "disk write certificate")
        self._surround(payloads, "unpack_process", "disk unpack")

    def _surround(self, owner: Any, name: str, what: str) -> None:
        done = getattr(owner, name)

        def do_or_die(*arguments: Any, **options: Any) -> Any:
            self.meet(what, "before")
            result = done(*arguments, **options)
            self.meet(what, "after")
            return result

        setattr(owner, name, do_or_die)

    def _surround_journal(self) -> None:
        write = Tables.write

        def write_or_die(tables: Tables, batch: Batch, now: datetime) -> Written:
            self.meet("write journal", "before")
            written = write(tables, batch, now)
            self.meet("write journal", "after")
            return written

        Tables.write = write_or_die  # type: ignore[method-assign,assignment]


def describe(key: Key, before: bytes | None, after: bytes | None) -> str:
    """A write in words that do not depend on uids: what is done to which object, and to which part of it."""
    old: Mapping[str, Any] = orjson.loads(before) if before else {}
    new: Mapping[str, Any] = orjson.loads(after) if after else {}
    about = new or old
    verb = "create" if not old else "delete" if not new else "change"
    role = (about["metadata"].get("annotations") or {}).get(RESOURCE_NAME_ANNOTATION)
    if key.resource == "events":
        role = f"{about['reason']} of {about['involvedObject']['kind']}"
    subject = f"{key.resource} {role}" if role else key.resource
    return f"{verb} {subject}{_parts(old, new) if verb == 'change' else ''}"


def _parts(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    held, holds = (set(each["metadata"].get("finalizers") or ()) for each in (old, new))
    parts = [f"+{name}" for name in sorted(holds - held)] + [f"-{name}" for name in sorted(held - holds)]
    parts += [name for name in sorted(old.keys() | new.keys()) if name != "metadata" and old.get(name) != new.get(name)]
    if "deletionTimestamp" in new["metadata"] and "deletionTimestamp" not in old["metadata"]:
        parts.append("deletionTimestamp")
    if old["metadata"].get("labels") != new["metadata"].get("labels"):
        parts.append("labels")
    return f" {','.join(parts)}" if parts else ""
