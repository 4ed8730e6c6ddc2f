"""Functions: each version of a Function is a FunctionRevision, and as many of them are active as its owner wants.

Installed are functions that ship with planform and functions that somebody runs and gives the address of. Pulling
packages and running them is the package manager's work, which adds to `_content` and `_runtime` and leaves the rest.

Nothing is lost on the way to a new revision: it is there, and says where it serves, before an older one is deactivated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from planform.api.kinds import Object
from planform.api.names import FUNCTION, FUNCTION_REVISION, PACKAGE_LABEL, PACKAGES_GROUP, SECRET, is_paused
from planform.builtin import find_builtin
from planform.client.informer import ObjectKey
from planform.composition.xr import XrCondition
from planform.controllers.function_catalogue import BUILTIN_CAPABILITIES, DETERMINISTIC, LiveFunctions
from planform.controllers.workbench import Workbench
from planform.controllers.writing import merge, set_status
from planform.errors import AlreadyExists, Forbidden, NotFound, PlanformError
from planform.machinery.names import label_value_problems
from planform.packages.endpoints import (
    ENDPOINT_ANNOTATION,
    EXTERNAL,
    RUNTIME_ANNOTATION,
    TLS_SECRET_ANNOTATION,
    TLS_SERVER_NAME_ANNOTATION,
    builtin_endpoint,
    runs_elsewhere,
    serving,
    tls_secret_of,
)
from planform.packages.revision_objects import (
    ACTIVE,
    INACTIVE,
    annotations_of,
    changes_to,
    controller_of,
    known_of,
    new_revision,
)
from planform.packages.revisions import active_revisions, content_of, number_of, revision_name, surplus_revisions
from planform.reconcile.controller import Result
from planform.reconcile.sources import Source, to_owner, to_self

NAME: Final = "functions"
_MANAGER: Final = "pkg.crossplane.io/functions"
_COPIED_ANNOTATIONS: Final = (
    ENDPOINT_ANNOTATION,
    RUNTIME_ANNOTATION,
    TLS_SECRET_ANNOTATION,
    TLS_SERVER_NAME_ANNOTATION,
)


class NotInstallable(PlanformError):
    """No revision can be made of a Function; the message says what is missing."""

    reason = "UnpackingPackage"


@dataclass(frozen=True, slots=True)
class _Runtime:
    """Where a revision serves and what it can do, as far as that is for us to say; None: somebody else says it."""

    endpoint: str | None
    capabilities: tuple[str, ...] | None = None


class FunctionController:
    """Keeps the revisions of every Function. `live` tells of Secrets that decide whether a revision can be called."""

    def __init__(self, bench: Workbench, live: LiveFunctions) -> None:
        self._bench = bench
        self._client = bench.client
        self._live = live

    def start(self) -> None:
        controller = self._bench.controller(NAME, self.reconcile)
        sources: list[Source[ObjectKey]] = [
            Source(FUNCTION, to_self),
            Source(FUNCTION_REVISION, to_owner(PACKAGES_GROUP, FUNCTION.kind, cluster_scoped=True)),
        ]

        def look_again(functions: frozenset[str]) -> None:
            for name in functions:
                controller.queue.add(ObjectKey("", name))

        if self._bench.plane.start(controller, sources):
            self._live.subscribe(look_again)

    async def reconcile(self, key: ObjectKey) -> Result:
        try:
            function = await self._client.get(FUNCTION, key.name)
        except NotFound:
            return Result()
        if function["metadata"].get("deletionTimestamp"):
            return Result()  # its revisions go with it
        if is_paused(function):
            paused = XrCondition("Synced", "False", "ReconcilePaused", "reconciliation is paused by annotation")
            await set_status(self._client, function, [paused], now=self._bench.timestamp(), manager=_MANAGER)
            return Result()
        function = await self._resume(function)
        revisions = await self._revisions(function)
        try:
            current = await self._ensure_current(function, revisions)
        except NotInstallable as error:
            for name in sorted(revisions):
                await self._tell_health(revisions, name)
            await self._tell_not_installable(function, error)
            return Result()
        await self._settle(function, current, revisions)
        return Result()

    # -- the current revision

    async def _revisions(self, function: Object) -> dict[str, Object]:
        """The revisions that this Function controls, by name."""
        uid, name = function["metadata"]["uid"], function["metadata"]["name"]
        if label_value_problems(name):
            return {}
        found = await self._client.list(FUNCTION_REVISION, labels=f"{PACKAGE_LABEL}={name}")
        return {each["metadata"]["name"]: each for each in found.items if controller_of(each) == uid}

    async def _ensure_current(self, function: Object, revisions: dict[str, Object]) -> str:
        """Have the revision that the Function means now, in `revisions` too; gives its name."""
        name = revision_name(function["metadata"]["name"], _content(function))
        number = number_of(name, [known_of(each) for each in revisions.values()])
        automatic = _is_automatic(function)
        wanted = new_revision(
            function, FUNCTION_REVISION, name, number, active=automatic, annotations=_COPIED_ANNOTATIONS
        )
        present = revisions.get(name)
        if present is None:
            try:
                revisions[name] = await self._client.create(wanted, manager=_MANAGER)
            except AlreadyExists:
                present = await self._unowned(name)
            else:
                self._record(function, "InstallPackageRevision", f'made revision "{name}", number {number}')
                return name
        if not automatic:
            wanted["spec"]["desiredState"] = present["spec"]["desiredState"]
        changes = changes_to(present, wanted, annotations=_COPIED_ANNOTATIONS)
        revisions[name] = await merge(self._client, present, changes, manager=_MANAGER) if changes else present
        return name

    async def _unowned(self, name: str) -> Object:
        """A revision that is there already and that nobody controls; it will be adopted."""
        present = await self._client.get(FUNCTION_REVISION, name)
        if controller_of(present):
            raise NotInstallable(
                f'FunctionRevision "{name}" is there and has another owner, whose it is until it is gone'
            )
        return present

    # -- all of them

    async def _settle(self, function: Object, current: str, revisions: dict[str, Object]) -> None:
        """Activate, deactivate and delete as the Function says, and say how everything is."""
        problems = {name: (await self._runtime_problem(each))[1] for name, each in revisions.items()}
        await self._tell_health(revisions, current)
        if _is_automatic(function):
            known = [known_of(each, works=not problems[name]) for name, each in revisions.items()]
            active = active_revisions(known, limit=self._limit(function["spec"]))
            # Activated before deactivated: there is never less to call than there was.
            for name in sorted(revisions, key=lambda each: (each not in active, each)):
                await self._set_state(function, revisions, name, ACTIVE if name in active else INACTIVE)
        history = int(function["spec"].get("revisionHistoryLimit", 1))
        known = [known_of(each) for each in revisions.values()]
        for name in surplus_revisions(known, current, history=history):
            await self._delete(revisions.pop(name))
            self._record(function, "GarbageCollect", f'deleted revision "{name}": more than revisionHistoryLimit')
        for name in sorted(revisions):
            await self._tell_health(revisions, name)
        await self._tell_installed(function, current, revisions, problems)

    async def _set_state(self, function: Object, revisions: dict[str, Object], name: str, state: str) -> None:
        if revisions[name]["spec"]["desiredState"] == state:
            return
        change = {"spec": {"desiredState": state}}
        revisions[name] = await merge(self._client, revisions[name], change, manager=_MANAGER)
        self._record(function, "TransitionRevision", f'revision "{name}" is now {state}')

    def _limit(self, spec: Mapping[str, Any]) -> int:
        if not self._bench.features.enabled("FunctionRevisionSelectors"):
            return 1
        return max(1, int(spec.get("activeRevisionLimit") or 1))

    async def _delete(self, revision: Object) -> None:
        metadata = revision["metadata"]
        try:
            await self._client.delete(
                FUNCTION_REVISION,
                metadata["name"],
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],  # somebody may be activating it
            )
        except NotFound:
            pass

    # -- what is said about it

    async def _runtime_problem(self, revision: Object) -> tuple[_Runtime, str]:
        """How a revision runs, and why it cannot be called; empty if it can."""
        annotations, runtime = annotations_of(revision), _runtime(revision)
        endpoint = runtime.endpoint
        if endpoint is None:
            endpoint = str((revision.get("status") or {}).get("endpoint") or "")
        reference, secret = tls_secret_of(annotations), None
        if reference is not None:
            try:
                secret = await self._client.get(SECRET, reference.name, namespace=reference.namespace)
            except (NotFound, Forbidden):
                pass  # which `serving` says, and `live` tells when it is there
        return runtime, serving(endpoint, annotations, secret).problem

    async def _tell_health(self, revisions: dict[str, Object], name: str) -> None:
        """Write how a revision is, where it serves and what it can do into its status."""
        runtime, problem = await self._runtime_problem(revisions[name])
        said: dict[str, Any] = {}
        if runtime.endpoint is not None:
            said["endpoint"] = runtime.endpoint
        if runtime.capabilities is not None:
            said["capabilities"] = list(runtime.capabilities)
        conditions = [_health("RevisionHealthy"), _health("RuntimeHealthy", problem)]
        revisions[name] = await set_status(
            self._client, revisions[name], conditions, now=self._bench.timestamp(), manager=_MANAGER, **said
        )

    async def _tell_installed(
        self, function: Object, current: str, revisions: Mapping[str, Object], problems: Mapping[str, str]
    ) -> None:
        if revisions[current]["spec"]["desiredState"] == ACTIVE:
            installed = XrCondition("Installed", "True", "ActivePackageRevision")
        else:
            installed = XrCondition(
                "Installed",
                "False",
                "InactivePackageRevision",
                f'revision "{current}" is inactive: set its spec.desiredState to Active',
            )
        sick = [
            f'revision "{name}": {problem}'
            for name, problem in sorted(problems.items(), key=lambda item: (item[0] != current, item[0]))
            if problem and name in revisions and (name == current or known_of(revisions[name]).active)
        ]
        healthy = _health("Healthy", "; ".join(sick) if problems[current] else "")
        if sick and not problems[current]:
            healthy = XrCondition("Healthy", "True", healthy.reason, "; ".join(sick))
        await set_status(
            self._client,
            function,
            [installed, healthy],
            now=self._bench.timestamp(),
            manager=_MANAGER,
            currentRevision=current,
            currentIdentifier=function["spec"]["package"],
        )

    async def _tell_not_installable(self, function: Object, error: NotInstallable) -> None:
        before = function["metadata"]["resourceVersion"]
        conditions = [
            XrCondition("Installed", "False", error.reason, error.message),
            _health("Healthy", "the package is not installed"),
        ]
        after = await set_status(self._client, function, conditions, now=self._bench.timestamp(), manager=_MANAGER)
        if after["metadata"]["resourceVersion"] != before:
            self._bench.events.record(function, "Warning", "UnpackPackage", error.message, by=NAME)

    async def _resume(self, function: Object) -> Object:
        """Take back what was said while the Function was paused."""
        conditions = (function.get("status") or {}).get("conditions") or []
        kept = [each for each in conditions if each["type"] != "Synced"]
        if len(kept) == len(conditions):
            return function
        return await merge(
            self._client, function, {"status": {"conditions": kept}}, manager=_MANAGER, subresource="status"
        )

    def _record(self, function: Object, reason: str, message: str) -> None:
        self._bench.events.record(function, "Normal", reason, message, by=NAME)


def _content(function: Object) -> str:
    """What the Function's revision is made of. Raises NotInstallable."""
    package, annotations = str(function["spec"]["package"]), annotations_of(function)
    runtime = annotations.get(RUNTIME_ANNOTATION)
    if label_value_problems(function["metadata"]["name"]):
        raise NotInstallable("the name of a Function must be a label: at most 63 characters")
    if runtime not in (None, EXTERNAL):
        raise NotInstallable(f'the annotation {RUNTIME_ANNOTATION} may be {EXTERNAL}, not "{runtime}"')
    if ENDPOINT_ANNOTATION in annotations:
        return content_of(package, annotations[ENDPOINT_ANNOTATION])
    if runtime == EXTERNAL:
        return content_of(package, EXTERNAL)
    if find_builtin(package) is not None:
        return content_of(package)
    raise NotInstallable(
        f'"{package}" is not a built-in function, and packages are pulled by the package manager, which this release'
        f" does not have: use a built-in (planform function list --all), or run the function yourself and say where in"
        f" the annotation {ENDPOINT_ANNOTATION}: HOST:PORT"
    )


def _runtime(revision: Object) -> _Runtime:
    annotations = annotations_of(revision)
    if ENDPOINT_ANNOTATION in annotations:
        return _Runtime(annotations[ENDPOINT_ANNOTATION])
    builtin = find_builtin(str(revision["spec"].get("image") or ""))
    if builtin is None or runs_elsewhere(annotations):
        return _Runtime(None)
    deterministic = (DETERMINISTIC,) if builtin.deterministic else ()
    return _Runtime(builtin_endpoint(builtin.name), (*BUILTIN_CAPABILITIES, *deterministic))


def _is_automatic(function: Object) -> bool:
    return str(function["spec"].get("revisionActivationPolicy") or "Automatic") == "Automatic"


def _health(type_: str, problem: str = "") -> XrCondition:
    if problem:
        return XrCondition(type_, "False", "UnhealthyPackageRevision", problem)
    return XrCondition(type_, "True", "HealthyPackageRevision")
