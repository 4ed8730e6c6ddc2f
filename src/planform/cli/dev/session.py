"""The loop behind `planform dev`: what is saved is served, applied and tested, and what that changes is shown.

One save is handled at a time; files that change meanwhile are the next save. Trees are followed beside it.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Final

from planform.api.kinds import GroupVersionKind, Kind, Object, gvk_of
from planform.api.metadata import name_of, namespace_of
from planform.cli.dev.debugging import patient
from planform.cli.dev.directory import Contents, Document, Source, Stamps, read_contents, stamps
from planform.cli.dev.effects import changes, objects_of
from planform.cli.dev.excerpts import Problem, at_field, at_python_line
from planform.cli.dev.serving import FunctionSources, function_object
from planform.cli.dev.testing import concerned, run_tests
from planform.cli.dev.view import Picture, View
from planform.cli.functions.from_source import FunctionDidNotStart
from planform.client.protocol import Client
from planform.client.resource_tree import Looking, Node, Target, changing_trees
from planform.errors import AlreadyExists, NotFound, PlanformError

MANAGER: Final = "planform-dev"
_POLL: Final = 0.03
_SERVED_WITHIN: Final = 5.0
_NAMESPACE: Final = "default"

Key = tuple[str, str, str, str]


class Session:
    """One directory, one control plane, and what was made of the one in the other."""

    def __init__(
        self, client: Client, picture: Picture, view: View, *, debug: bool = False, tests: bool = True
    ) -> None:
        self._client = client
        self._directory = picture.directory
        self._picture = picture
        self._view = view
        self._debug = debug
        self._with_tests = tests
        self._sources = FunctionSources(debug=debug)
        self._applied: dict[Key, tuple[Document, Object]] = {}
        self._failed: set[Key] = set()
        self._unserved: set[str] = set()
        self._trees: dict[Target, Node] = {}
        self._following: dict[Target, asyncio.Task[None]] = {}
        self._testing: asyncio.Task[None] | None = None
        self._before = objects_of({})
        self._printed = objects_of({})
        self._saved_at = 0.0
        self._problems: list[Problem] = []
        """Of files and objects, as the last save left them; those of XRs come and go with their conditions."""
        self._reported: frozenset[str] = frozenset()

    async def run(self, stopping: asyncio.Event) -> None:
        """Until told to stop. Cancelling it stops what it started."""
        seen: Stamps = {}
        try:
            while not stopping.is_set():
                now = stamps(self._directory)
                changed = {path for path in {*now, *seen} if now.get(path) != seen.get(path)}
                if changed:
                    first, seen = not seen, now
                    await self._save(now, frozenset(changed), first=first)
                try:
                    async with asyncio.timeout(_POLL):
                        await stopping.wait()
                except TimeoutError:
                    pass
        finally:
            await self._close()

    async def _close(self) -> None:
        tasks = [*self._following.values(), *([self._testing] if self._testing else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._sources.close()

    # -- one save

    async def _save(self, files: Stamps, changed: frozenset[Path], *, first: bool) -> None:
        started = time.perf_counter()
        self._saved_at = 0.0 if first else max((files[path][0] / 1e9 for path in changed if path in files), default=0.0)
        self._before = objects_of(self._trees)
        self._picture.changes, self._picture.effect = [], ""
        self._picture.saved = (
            f"read {len(files)} files" if first else f"saved {', '.join(sorted(map(self._shown, changed)))}"
        )
        self._view.say(self._picture.saved)
        contents = read_contents(self._directory, files)
        self._problems = list(contents.problems)
        await self._serve(contents, changed)
        await self._apply(contents)
        self._follow(contents)
        self._show_problems()
        self._view.say(f"applied in {(time.perf_counter() - started) * 1000:.0f} ms")
        self._test(contents.tests if first else concerned(contents.tests, changed))
        await self._sources.prepare()

    def _shown(self, path: Path) -> str:
        return str(path.relative_to(self._directory))

    async def _serve(self, contents: Contents, changed: frozenset[Path]) -> None:
        served = self._sources.addresses
        stale = [
            source
            for source in contents.functions
            if source.name not in served
            or source.name in self._unserved
            or any(source.directory in path.parents and path.suffix in (".py", ".toml") for path in changed)
        ]
        for name in set(served) - {source.name for source in contents.functions}:
            await self._sources.forget(name)
        await asyncio.gather(*(self._start(source) for source in stale))

    async def _start(self, source: Source) -> None:
        try:
            await self._sources.start(source)
        except FunctionDidNotStart as error:
            self._unserved.add(source.name)
            text = "\n".join(error.output[-6:])
            message = f"{error.message}\n{text}" if len(error.output) > 1 else error.message
            self._problems.append(_located(message, source))
        else:
            self._unserved.discard(source.name)

    async def _apply(self, contents: Contents) -> None:
        wanted: dict[Key, tuple[Document, Object]] = {}
        written = {name_of(each.object): each for each in contents.documents if _is_function(each.object)}
        for source in contents.functions:
            if address := self._sources.addresses.get(source.name):
                document = written.pop(source.name, None)
                obj = function_object(source, address, document.object if document else None)
                held = document or Document(obj, source.entry, 1)
                wanted[held.key] = held, obj
        local = frozenset(source.name for source in contents.functions)
        for document in contents.documents:
            obj = document.object
            if _is_function(obj) and name_of(obj) in local:
                continue
            if self._debug and obj["kind"] == "Composition":
                obj = patient(obj, local)
            wanted[document.key] = document, obj
        # What a file held stays for as long as the file cannot be read: half a line is no wish to delete anything.
        unread = {problem.file for problem in contents.problems}
        for key in [key for key in self._applied if key not in wanted]:
            if self._applied[key][0].file not in unread:
                await self._remove(*self._applied.pop(key))
        for key, (document, obj) in wanted.items():
            if key not in self._applied or key in self._failed or self._applied[key][1] != obj:
                self._applied[key] = document, obj
                self._failed.discard(key)
                if problem := await self._apply_one(document, obj):
                    self._failed.add(key)
                    self._problems.append(problem)

    async def _apply_one(self, document: Document, obj: Object) -> Problem | None:
        try:
            kind = await self._kind(gvk_of(obj))
            obj = copy.deepcopy(obj)
            if kind.namespaced:
                await self._namespace(obj["metadata"].setdefault("namespace", _NAMESPACE))
            await self._client.apply(obj, manager=MANAGER, force=True)
        except PlanformError as error:
            shown = f"{obj['kind']}/{name_of(obj)}: {error.message}"
            return at_field(shown, document.file, document.number)
        return None

    async def _kind(self, wanted: GroupVersionKind) -> Kind:
        """The kind, once it is served: its definition may have been applied just now."""
        defines = any(each[1].endswith("ResourceDefinition") for each in self._applied)
        deadline = time.monotonic() + (_SERVED_WITHIN if defines else 0.0)
        while True:
            try:
                return await self._client.kind(wanted)
            except NotFound:
                if time.monotonic() >= deadline:
                    raise
                await asyncio.sleep(0.02)

    async def _namespace(self, name: str) -> None:
        if name == _NAMESPACE:
            return
        try:
            await self._client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        except AlreadyExists:
            pass

    async def _remove(self, document: Document, obj: Object) -> None:
        try:
            kind = await self._client.kind(gvk_of(obj))
            namespace = obj["metadata"].get("namespace", _NAMESPACE) if kind.namespaced else ""
            await self._client.delete(kind.gvk, name_of(obj), namespace=namespace)
        except NotFound:
            pass
        except PlanformError as error:
            self._problems.append(Problem(f"{obj['kind']}/{name_of(obj)}: {error.message}", document.file))

    # -- what becomes of it

    def _follow(self, contents: Contents) -> None:
        targets = {_target(obj) for obj in examples(each.object for each in contents.documents)}
        for target in [target for target in self._following if target not in targets]:
            self._following.pop(target).cancel()
            self._trees.pop(target, None)
        for target in targets:
            if target not in self._following or self._following[target].done():
                self._following[target] = asyncio.create_task(self._follow_one(target), name=f"follow {target}")

    async def _follow_one(self, target: Target) -> None:
        try:
            kind = await self._client.kind(target.gvk)
            placed = target if kind.namespaced else target._replace(namespace="")
            async with aclosing(changing_trees(Looking(self._client), placed)) as found:
                async for tree in found:
                    self._trees[target] = tree
                    self._show_changes()
        except PlanformError:  # it could not be applied, which is said elsewhere
            self._trees.pop(target, None)

    def _show_changes(self) -> None:
        """Show how the trees differ from what they were at the last save, and at the last line."""
        now = objects_of(self._trees)
        lines = list(changes(self._before, now))
        new = list(changes(self._printed, now))
        self._printed = now
        self._picture.trees, self._picture.changes = dict(self._trees), lines
        if new and self._saved_at and not self._picture.effect:
            self._picture.effect = f"effect after {(time.time() - self._saved_at) * 1000:.0f} ms"
            self._view.say(self._picture.effect)
        self._show_problems()
        self._view.changed(new)

    def _show_problems(self) -> None:
        found = [*self._problems, *self._of_xrs()]
        self._picture.problems = found
        texts = frozenset(each.message for each in found)
        for each in found:
            if each.message not in self._reported:
                self._view.problem(each)
        if self._reported and not texts:
            self._view.say("nothing is wrong any more")
        self._reported = texts
        self._view.draw()

    def _of_xrs(self) -> Iterable[Problem]:
        for target, tree in sorted(self._trees.items(), key=lambda each: str(each[0])):
            conditions = ((tree.object or {}).get("status") or {}).get("conditions") or ()
            for condition in conditions:
                if condition["type"] == "Synced" and condition["status"] == "False":
                    message = f"{target}: {condition.get('message', '')}"
                    yield at_python_line(message, self._directory) or Problem(message)

    # -- tests

    def _test(self, files: list[Path]) -> None:
        if not files or not self._with_tests:
            return
        if self._testing is not None:
            self._testing.cancel()
        self._testing = asyncio.create_task(self._run_tests(files), name="tests")

    async def _run_tests(self, files: list[Path]) -> None:
        results = await run_tests(files)
        kept = [each for each in self._picture.tests if each.file not in files and each.file.exists()]
        self._picture.tests = [*kept, *results]
        self._view.tested(results)


def examples(objects: Iterable[Object]) -> list[Object]:
    """The XRs and claims among the objects: what some XRD among them defines."""
    known = list(objects)
    kinds = {
        (xrd["spec"].get("group"), (xrd["spec"].get(names) or {}).get("kind"))
        for xrd in known
        if xrd["kind"] == "CompositeResourceDefinition"
        for names in ("names", "claimNames")
    }
    return [obj for obj in known if (gvk_of(obj).group, obj["kind"]) in kinds]


def _target(obj: Object) -> Target:
    return Target(gvk_of(obj), str(namespace_of(obj) or _NAMESPACE), name_of(obj))


def _is_function(obj: Object) -> bool:
    return obj["kind"] == "Function" and gvk_of(obj).group == "pkg.crossplane.io"


def _located(message: str, source: Source) -> Problem:
    return at_python_line(message, source.directory) or Problem(message, source.entry)
