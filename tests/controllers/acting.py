"""A stage for ActionSets: phase functions that a test watches and holds, Blueprints in a line, runs to their end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import ACTION_SET, BLUEPRINT
from planform.blueprints.arguments import Arguments
from planform.blueprints.catalogue import PhaseCatalogue
from planform.blueprints.contract import PhaseContext, PhaseEnvironment, PhaseFunction, phase_function
from planform.blueprints.controller import ActionSetController
from planform.blueprints.errors import PhaseFailed
from planform.blueprints.registry import PhaseFunctionRegistry
from planform.blueprints.versions import parse_versions
from planform.errors import NotFound
from planform.reconcile.context import ControllerContext
from tests.harness.contexts import eventually, read

CONFIG_MAP = GroupVersionKind("", "v1", "ConfigMap")
SECRET = GroupVersionKind("", "v1", "Secret")
NAMESPACE = GroupVersionKind("", "v1", "Namespace")
RELEASES = 'releases: ["0.1", "0.2", "0.3", "0.4"]\n'
TWO_VERSIONS = (
    RELEASES
    + """
functions:
  Dump:
    stable: v0.0.0
    versions:
      v0.0.0: {introducedIn: "0.1", promotedIn: "0.1"}
      v0.1.0: {introducedIn: "0.1", promotedIn: "0.2"}
"""
)
AGED = (
    RELEASES
    + """
functions:
  Dump:
    stable: v0.1.0
    versions:
      v0.0.0: {introducedIn: "0.1", promotedIn: "0.1", deprecatedIn: "0.2", removedIn: "0.4", replacement: v0.1.0}
      v0.1.0: {introducedIn: "0.1", promotedIn: "0.2"}
"""
)


async def version_of(context: PhaseContext, args: Arguments) -> Mapping[str, Any]:
    return {"ran": context.version}


DUMPS = [
    PhaseFunction(name="Dump", run=version_of, required=("path",), arguments=("level",)),
    PhaseFunction(name="Dump", run=version_of, version="v0.1.0", required=("path", "format"), arguments=()),
]


def phase(name: str, func: str = "Say", args: Mapping[str, Any] | None = None, **more: Any) -> Object:
    return {"name": name, "func": func, "args": dict(args or {}), **more}


def action(*phases: Object, defer: Object | None = None, outputs: Object | None = None, **more: Any) -> Object:
    made: Object = {"phases": list(phases), **more}
    if defer is not None:
        made["deferPhase"] = defer
    if outputs is not None:
        made["outputArtifacts"] = outputs
    return made


def catalogue(*functions: Any, versions: str = RELEASES, release: str = "0.1") -> PhaseCatalogue:
    registry = PhaseFunctionRegistry(plugins=lambda: ())
    registry.register(*functions)
    return PhaseCatalogue(registry, versions=parse_versions(versions), release=release)


class Theatre:
    """One namespace with an object to act on, and the functions of a test.

    `Say` notes its text and gives it back; `Fail` fails with it; `Hold` tells that it began and waits to be released.
    """

    def __init__(self, context: ControllerContext, namespace: str) -> None:
        self.context = context
        self.client = context.client
        self.namespace = namespace
        self.calls: list[str] = []
        self.contexts: list[PhaseContext] = []
        self.held = asyncio.Event()
        self.released = asyncio.Event()
        self.cancelled: list[str] = []
        self._count = 0
        self.controller: ActionSetController

    def functions(self) -> list[PhaseFunction]:
        @phase_function("Say", arguments=["text", "again", "list", "map"])
        async def say(context: PhaseContext, args: Arguments) -> Mapping[str, Any]:
            self.contexts.append(context)
            self.calls.append(args.text("text", ""))
            return dict(args)

        @phase_function("Fail", arguments=["text"])
        async def fail(context: PhaseContext, args: Arguments) -> None:
            self.calls.append(args.text("text", ""))
            raise PhaseFailed(args.text("text", "failed as told"))

        async def hold(context: PhaseContext, args: Arguments) -> Mapping[str, Any]:
            self.contexts.append(context)
            self.calls.append(args.text("text", ""))
            self.held.set()
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                self.cancelled.append(args.text("text", ""))
                raise
            return {"text": args.text("text", "")}

        return [
            say,  # type: ignore[list-item]  # carries its declaration
            fail,  # type: ignore[list-item]
            PhaseFunction(name="Hold", run=hold, arguments=("text",)),
            PhaseFunction(name="Resume", run=hold, arguments=("text",), resumable=True),
        ]

    @classmethod
    @asynccontextmanager
    async def open(
        cls, context: ControllerContext, namespace: str, *more: Any, start: bool = True, **settings: Any
    ) -> AsyncIterator[Theatre]:
        """Make the namespace and start the controller with `more` functions beside its own."""
        theatre = cls(context, namespace)
        await context.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        await theatre.create(CONFIG_MAP, "target", data={"colour": "red"})
        theatre.use(*more, start=start, **settings)
        try:
            yield theatre
        finally:
            theatre.released.set()
            for obj in (await context.client.list(ACTION_SET, namespace=namespace)).items:
                with suppress(NotFound):
                    await context.client.delete(ACTION_SET, obj["metadata"]["name"], namespace=namespace)

    def use(self, *more: Any, start: bool = True, **settings: Any) -> None:
        """Run ActionSets with these functions from now on; what ran them before must have been stopped."""
        versions, release = settings.pop("versions", RELEASES), settings.pop("release", "0.1")
        known = catalogue(*self.functions(), *more, versions=versions, release=release)
        settings.setdefault("here", PhaseEnvironment(engine="embedded"))
        self.controller = ActionSetController(self.context, known, **settings)
        if start:
            self.controller.start()

    async def until_called(self, text: str) -> None:
        async def check() -> bool:
            return text in self.calls

        await eventually(check, f"a call with {text}")

    async def idle(self) -> None:
        async def check() -> bool:
            return not self.controller.running

        await eventually(check, "nothing runs")

    async def create(self, gvk: GroupVersionKind, name: str, **content: Any) -> Object:
        metadata = {"name": name, "namespace": self.namespace, **content.pop("metadata", {})}
        return await self.client.create(
            {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata, **content}
        )

    async def blueprint(self, actions: Object, name: str = "blueprint", **more: Any) -> Object:
        return await self.create(BLUEPRINT, name, actions=actions, **more)

    def request(self, name: str, **more: Any) -> Object:
        target = {"apiVersion": "v1", "resource": "configmaps", "name": "target", "namespace": self.namespace}
        return {"name": name, "blueprint": "blueprint", "object": target, **more}

    async def submit(self, *requests: str | Object, name: str = "", **spec: Any) -> Object:
        """Create an ActionSet of these actions, by name or as `request` makes them."""
        self._count += 1
        actions = [self.request(each) if isinstance(each, str) else each for each in requests]
        return await self.create(ACTION_SET, name or f"run-{self._count}", spec={"actions": actions, **spec})

    async def run(self, *requests: str | Object, **more: Any) -> Object:
        """Create an ActionSet and wait for its end."""
        return await self.ended(await self.submit(*requests, **more))

    async def ended(self, obj: Object) -> Object:
        return await self.until(
            obj, lambda found: (found.get("status") or {}).get("state") in ("complete", "failed"), "its end"
        )

    async def until(self, obj: Object, holds: Any, what: str) -> Object:
        name = obj["metadata"]["name"]

        async def check() -> Object | None:
            found = await read(self.client, ACTION_SET, name, self.namespace)
            return found if found is not None and holds(found) else None

        return await eventually(check, f"{what} of ActionSet {name}")

    async def gone(self, obj: Object) -> None:
        name = obj["metadata"]["name"]

        async def check() -> bool:
            found = await read(self.client, ACTION_SET, name, self.namespace)
            return found is None or found["metadata"]["uid"] != obj["metadata"]["uid"]

        await eventually(check, f"ActionSet {name} is gone")

    async def delete(self, obj: Object) -> None:
        await self.client.delete(ACTION_SET, obj["metadata"]["name"], namespace=self.namespace)

    def states(self, obj: Object, index: int = 0) -> list[str]:
        """The states of an action's phases, its deferPhase last."""
        entry = obj["status"]["actions"][index]
        return [each["state"] for each in (*entry["phases"], *([entry["deferPhase"]] if "deferPhase" in entry else ()))]

    def errors(self, obj: Object) -> list[tuple[str, str]]:
        return [(each.get("phase", ""), each["reason"]) for each in obj["status"].get("errors") or ()]
