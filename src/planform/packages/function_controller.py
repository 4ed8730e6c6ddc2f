"""Functions: each version of a Function is a FunctionRevision, and as many of them are active as its owner wants.

A function ships with planform, or somebody runs it and gives its address, or its package is pulled and run: on this
machine, or by the cluster that the control plane is in.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import UNSET

from planform.api.annotations import annotations_of
from planform.api.conditions import XrCondition, condition_of
from planform.api.extensions.packages import FunctionRevisionStatus, FunctionSpec, RevisionSpec
from planform.api.kinds import Object
from planform.api.metadata import labels_of, name_of, uid_of
from planform.api.names import FUNCTION, FUNCTION_REVISION, PACKAGE_LABEL, SECRET
from planform.api.objects import spec_of, status_of
from planform.api.xr import listed
from planform.builtin import BuiltinName, find_builtin
from planform.client.informer import ObjectKey
from planform.client.waits import time_limit
from planform.errors import Forbidden, NotFound
from planform.functions.errors import MAX_ANSWER_SIZE_ANNOTATION, FunctionUnavailable, mebibytes
from planform.packages.contents import PackageContents
from planform.packages.controller import (
    Content,
    Examined,
    NotInstallable,
    PackageController,
    is_automatic,
)
from planform.packages.endpoints import (
    BUILT_IN,
    ENDPOINT_ANNOTATION,
    EXTERNAL,
    LARGEST_ANSWER,
    RUNTIME_ANNOTATION,
    RUNTIMES,
    TLS_SECRET_ANNOTATION,
    TLS_SERVER_NAME_ANNOTATION,
    builtin_endpoint,
    max_answer_size_of,
    runs_externally,
    serving,
    tls_secret_of,
)
from planform.packages.errors import InvalidReference
from planform.packages.fetching import Fetched
from planform.packages.function_catalogue import BUILTIN_CAPABILITIES, DETERMINISTIC, LiveFunctions
from planform.packages.revision_objects import DIGEST_ANNOTATION, known_of
from planform.packages.revisions import content_of, retained_revisions
from planform.packages.runtimes.executables import NotRunnable
from planform.packages.runtimes.kubernetes import KubernetesHost
from planform.packages.runtimes.launching import Wanted
from planform.packages.shipped_functions import SERVED, difference, stand_in
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Controller

if TYPE_CHECKING:
    from planform.packages.locking import LockController
    from planform.packages.runtimes.host import RuntimeHost, RuntimeStatus

NAME: Final = "functions"
LIMIT_EXCEEDED: Final = "ActiveRevisionLimitExceeded"
_MAX_NAMED: Final = 3
_COUNT_EVERY: Final = 1.0
"""Seconds between counts of the XRs that use a revision, while these come and go."""

_ACTIVATION_SECONDS: Final = 20.0
"""Seconds within which a temporarily active revision must serve."""


@dataclass(frozen=True, slots=True)
class Packaging:
    """What it takes to pull packages and run them, on this machine or in a cluster."""

    contents: PackageContents
    host: RuntimeHost | KubernetesHost
    lock: LockController | None = None


@dataclass(frozen=True, slots=True)
class FunctionContent(Content):
    """What a Function means now: perhaps a function that ships with planform."""

    builtin: BuiltinName | None = None


class RevisionUsers(Protocol):
    """Who uses which revision of a function; `xrs.function_users` knows it."""

    def subscribe(self, callback: Callable[[str], None]) -> None:
        """Call back with the name of each function whose users changed."""

    def complete(self) -> bool:
        """Whether everything was looked at since the start."""

    def users(self, function: str) -> Mapping[str, int]:
        """How many XRs use each revision."""

    def users_by_composition(self, function: str) -> Mapping[str, frozenset[str]]:
        """The Compositions whose XRs use each revision."""

    def phases(self, function: str) -> Mapping[str, int]:
        """How many phases of Blueprints use each revision."""

    def pinned(self, function: str) -> Mapping[str, frozenset[str]]:
        """The revisions that have to go on serving, each with the Compositions that pin it."""


class FunctionController(PackageController):
    """Keeps the revisions of every Function. `live` tells of Secrets that decide whether a revision can be called.

    With `external`, somebody else runs every function that does not ship with planform.
    """

    copied_annotations = (
        ENDPOINT_ANNOTATION,
        RUNTIME_ANNOTATION,
        TLS_SECRET_ANNOTATION,
        TLS_SERVER_NAME_ANNOTATION,
        MAX_ANSWER_SIZE_ANNOTATION,
    )
    replaces_when_healthy = True

    def __init__(
        self,
        context: ControllerContext,
        live: LiveFunctions,
        packaging: Packaging | None = None,
        users: RevisionUsers | None = None,
        *,
        external: bool = False,
    ) -> None:
        source = packaging.contents.source if packaging is not None else None
        super().__init__(context, NAME, FUNCTION, FUNCTION_REVISION, source)
        self._live = live
        self._packaging = packaging
        self._users = users
        self._external = external
        self._hosted: dict[str, str] = {}  # the Function of each revision that runs here
        self._temporarily_active: Counter[str] = Counter()  # revisions that run because somebody wants to try them
        self._controller: Controller[ObjectKey] | None = None

    def _started(self, controller: Controller[ObjectKey]) -> None:
        def look_again(functions: frozenset[str]) -> None:
            for name in functions:
                controller.queue.add(ObjectKey("", name))

        def runs_otherwise(revision: str) -> None:
            if function := self._hosted.get(revision):
                controller.queue.add(ObjectKey("", function))

        def used_otherwise(function: str) -> None:
            controller.queue.add_after(ObjectKey("", function), _COUNT_EVERY)

        self._controller = controller
        self._live.subscribe(look_again)
        if self._packaging is not None:
            self._packaging.host.subscribe(runs_otherwise)
            self._packaging.contents.deliveries.subscribe(self._look_again_on(controller))
            if self._packaging.lock is not None:
                self._packaging.lock.subscribe(self._look_again_on(controller))
        if self._users is not None:
            self._users.subscribe(used_otherwise)

    # -- what a Function means

    async def _content(self, package: Object, revisions: Mapping[str, Object]) -> Content:
        reference, annotations = spec_of(package, FunctionSpec).package, annotations_of(package)
        runtime = annotations.get(RUNTIME_ANNOTATION)
        if runtime not in (None, *RUNTIMES):
            known = ", ".join(RUNTIMES)
            raise NotInstallable(f'the annotation {RUNTIME_ANNOTATION} may be one of {known}, not "{runtime}"')
        if max_answer_size_of(annotations) is None:
            raise NotInstallable(
                f"the annotation {MAX_ANSWER_SIZE_ANNOTATION} must be a quantity such as 16Mi,"
                f' not "{annotations[MAX_ANSWER_SIZE_ANNOTATION]}"; at most {mebibytes(LARGEST_ANSWER)}'
            )
        if ENDPOINT_ANNOTATION in annotations:
            return _external_content(content_of(reference, annotations[ENDPOINT_ANNOTATION]))
        if runtime == EXTERNAL:
            return _external_content(content_of(reference, EXTERNAL))
        builtin = stand_in(reference, annotations, self._context.builtin_functions)
        if builtin is not None and (runtime == BUILT_IN or not await self._is_rewritten(reference)):
            status_fields = {"servedBy": f"built-in {builtin.name} {builtin.version}"}
            return FunctionContent(content_of(reference), status_fields=status_fields, builtin=builtin)
        if runtime == BUILT_IN:
            raise NotInstallable(
                f'"{reference}" is no function that ships with planform (planform function list --all)'
            )
        if self._external:
            return _external_content(content_of(reference, EXTERNAL))
        if self._packaging is None:
            raise NotInstallable(
                f'"{reference}" is not a built-in function, and this control plane has no directory to pull packages'
                f" to: use a built-in (planform function list --all), or run the function yourself and say where in"
                f" the annotation {ENDPOINT_ANNOTATION}: HOST:PORT"
            )
        try:
            content = await self._packaging.contents.content(package, revisions)
        except InvalidReference as error:
            raise NotInstallable(
                f'"{reference}" is not a built-in function, and no package: {error.message}'
            ) from error
        return replace(content, status_fields={**content.status_fields, "servedBy": "package"})

    async def _is_rewritten(self, reference: str) -> bool:
        """Whether a rule for images says where the package is: who says so wants that one, and not what we ship."""
        return self._packaging is not None and await self._packaging.contents.source.is_rewritten(reference)

    def _limit(self, package: Object) -> int:
        if not self._context.features.enabled("FunctionRevisionSelectors"):
            return 1
        return max(1, spec_of(package, FunctionSpec).active_revision_limit or 1)

    def _retains(self, package: Object) -> bool:
        return spec_of(package, FunctionSpec).in_use_policy != "Deactivate"

    def _may_collect(self) -> bool:
        return self._users is None or self._users.complete()

    # -- how a revision is

    async def _examine(self, revision: Object) -> Examined:
        annotations = annotations_of(revision)
        if DIGEST_ANNOTATION in annotations and not runs_externally(annotations):
            examined = await self._examine_package(revision)
        else:
            examined = await self._examine_external(revision)
        if self._users is None:
            return examined
        if not self._users.complete():  # as after a start: what was in use is not deactivated for want of knowledge
            users = status_of(revision, FunctionRevisionStatus).users or 0
            return replace(examined, users=users, pinned=bool(self._pinned_by(revision)))
        name, function = name_of(revision), str(labels_of(revision).get(PACKAGE_LABEL))
        pinned_by = self._pinned_by(revision)
        xrs, phases = self._users.users(function).get(name, 0), self._users.phases(function).get(name, 0)
        status_fields, conditions = {**examined.status_fields, "users": xrs + phases}, [_in_use(xrs, phases, pinned_by)]
        return replace(
            examined, status_fields=status_fields, users=xrs + phases, pinned=bool(pinned_by), conditions=conditions
        )

    def _pinned_by(self, revision: Object) -> frozenset[str]:
        """The Compositions that need the revision to go on serving."""
        if self._users is None:
            return frozenset()
        function = str(labels_of(revision).get(PACKAGE_LABEL))
        return self._users.pinned(function).get(name_of(revision), frozenset())

    async def _examine_external(self, revision: Object) -> Examined:
        """A function of ours, or one that somebody else runs."""
        annotations, status_fields = annotations_of(revision), _status_fields_of(revision)
        endpoint = status_fields.get("endpoint")
        if endpoint is None:
            endpoint = status_of(revision, FunctionRevisionStatus).endpoint or ""
        reference, secret = tls_secret_of(annotations), None
        if reference is not None:
            try:
                secret = await self._client.get(SECRET, reference.name, namespace=reference.namespace)
            except (NotFound, Forbidden):
                pass  # which `serving` says, and `live` tells when it is there
        return Examined("", serving(endpoint, annotations, secret).problem, status_fields)

    async def _examine_package(self, revision: Object) -> Examined:
        """A function that was pulled. An active one is run; an inactive one serves until its last call has ended."""
        name, packaging = name_of(revision), self._packaging
        if packaging is None:
            return Examined("", "nothing here runs packages", {"endpoint": ""})
        self._hosted[name] = str(labels_of(revision)[PACKAGE_LABEL])
        if not spec_of(revision, RevisionSpec).is_active:
            if not self._temporarily_active[name]:
                packaging.host.release(name)
            packaging.contents.rest(revision)
            runtime_status = packaging.host.runtime_status(name)
            return Examined("", "", {"endpoint": runtime_status.endpoint if runtime_status is not None else ""})
        installed = await packaging.contents.install(revision, FUNCTION.kind)
        if installed.fetched is None:
            return Examined(
                installed.problem, "its package is not installed", {**installed.status_fields, "endpoint": ""}
            )
        try:
            runtime_status = await self._run(packaging, revision, installed.fetched)
        except NotRunnable as error:
            before = packaging.host.runtime_status(name)  # what runs goes on as it was told before
            endpoint = before.endpoint if before is not None else ""
            return Examined("", error.message, {**installed.status_fields, "endpoint": endpoint})
        status_fields = {**installed.status_fields, "endpoint": runtime_status.endpoint}
        return Examined("", runtime_status.problem, status_fields, remark=runtime_status.remark)

    async def _run(self, packaging: Packaging, revision: Object, fetched: Fetched) -> RuntimeStatus:
        if isinstance(packaging.host, KubernetesHost):
            return packaging.host.ensure(await packaging.contents.deployed(revision))
        return packaging.host.ensure(await self._wanted(packaging, revision, fetched))

    async def _wanted(self, packaging: Packaging, revision: Object, fetched: Fetched) -> Wanted:
        if fetched.executable is None:
            raise NotRunnable("the package has no program to run: its image has neither an entrypoint nor our label")
        settings = await packaging.contents.settings(revision)
        return Wanted(
            str(labels_of(revision)[PACKAGE_LABEL]),
            name_of(revision),
            uid_of(revision),
            fetched.executable,
            settings,
            fetched.digest,
        )

    @asynccontextmanager
    async def temporary_activation(self, name: str) -> AsyncIterator[None]:
        """Have a revision run while the block does, though it may be inactive; pipelines do not get it for that.

        Nothing else of its package is installed. Raises FunctionUnavailable if it does not serve in time.
        """
        revision = await self._client.get(FUNCTION_REVISION, name)
        function, packaging = str(labels_of(revision)[PACKAGE_LABEL]), self._packaging
        if packaging is None or DIGEST_ANNOTATION not in annotations_of(revision):
            if any(each.id == name and each.reachable for each in self._live.catalogue.versions(function)):
                yield  # it serves for as long as whoever runs it likes
                return
            raise FunctionUnavailable(
                f'revision "{name}" does not serve',
                function=function,
                hint=f"activate it: planform function activate {function} --revision {name}",
            )
        self._hosted[name] = function
        self._temporarily_active[name] += 1
        try:
            await self._run(packaging, revision, await packaging.contents.fetched(revision))
            await self._until_serving(packaging.host, name, function)
            yield
        finally:
            self._temporarily_active[name] -= 1
            if self._controller is not None:
                self._controller.queue.add(ObjectKey("", function))  # which lets it go unless it is active by now

    async def _until_serving(self, host: RuntimeHost | KubernetesHost, name: str, function: str) -> None:
        heard = asyncio.Event()
        unsubscribe = host.subscribe(lambda _: heard.set())
        try:
            async with time_limit(self._context.clock, _ACTIVATION_SECONDS):
                while (runtime_status := host.runtime_status(name)) is None or not runtime_status.ready:
                    await heard.wait()
                    heard.clear()
        except TimeoutError as error:
            problem = runtime_status.problem if runtime_status is not None else "it was stopped"
            raise FunctionUnavailable(f'revision "{name}" does not serve: {problem}', function=function) from error
        finally:
            unsubscribe()

    # -- what is said of all of them

    async def _status_fields(
        self, package: Object, revisions: Mapping[str, Object], examined: Mapping[str, Examined]
    ) -> Object:
        active = sorted(
            (each for each in revisions.values() if spec_of(each, RevisionSpec).is_active),
            key=lambda each: spec_of(each, RevisionSpec).revision,
            reverse=True,
        )
        shown = []
        for each in active:
            name, status = name_of(each), status_of(each, FunctionRevisionStatus)
            one = {
                "name": name,
                "revision": spec_of(each, RevisionSpec).revision,
                "healthy": not examined[name].problem,
                "endpoint": status.endpoint or "",
            }
            if status.users is not UNSET:
                one["users"] = status.users
            shown.append(one)
        return {"activeRevisions": shown, "endpoint": shown[0]["endpoint"] if shown else ""}

    def _conditions(
        self, package: Object, revisions: Mapping[str, Object], examined: Mapping[str, Examined], content: Content
    ) -> Sequence[XrCondition]:
        return [*self._limit_exceeded(package, revisions, examined), *self._package_served(package, content)]

    def _limit_exceeded(
        self, package: Object, revisions: Mapping[str, Object], examined: Mapping[str, Examined]
    ) -> list[XrCondition]:
        """Whether more are active than the Function asks for, because they are used."""
        name, limit = name_of(package), self._limit(package)
        known = [
            known_of(
                each,
                works=not examined[each_name].problem,
                users=examined[each_name].users,
                pinned=examined[each_name].pinned,
            )
            for each_name, each in revisions.items()
        ]
        retained = retained_revisions(known, limit=limit) if is_automatic(package) else ()
        if not retained:
            before = condition_of(package, LIMIT_EXCEEDED)
            return [XrCondition(LIMIT_EXCEEDED, "False", "WithinLimit")] if before else []
        compositions = self._users.users_by_composition(name) if self._users is not None else {}
        used = "; ".join(f'revision "{each}" by {_users_of(compositions.get(each, ()))}' for each in retained)
        message = (
            f"activeRevisionLimit is {limit}, and revisions that are used stay active: {used}. They are deactivated"
            f" once nothing uses them, or at once with inUsePolicy: Deactivate"
        )
        return [XrCondition(LIMIT_EXCEEDED, "True", "RevisionsInUse", message)]

    def _package_served(self, package: Object, content: Content) -> list[XrCondition]:
        """Whether what serves is the version that the package names; told once as an event if it is not."""
        reference, before = spec_of(package, FunctionSpec).package, condition_of(package, SERVED)
        builtin = content.builtin if isinstance(content, FunctionContent) else None
        if builtin is None:
            return [XrCondition(SERVED, "True", "PackageServes")] if before else []
        problem = difference(builtin, reference)
        if not problem:
            return [XrCondition(SERVED, "True", "BuiltInAlike")] if before or "/" in reference else []
        if before is None or before.message != problem:
            self._context.events.record(package, "Warning", "BuiltInServes", problem, by=self._name)
        return [XrCondition(SERVED, "False", "BuiltInServes", problem)]

    async def _settle(self, package: Object, current: str, revisions: dict[str, Object], content: Content) -> bool:
        before = set(revisions)
        settled = await super()._settle(package, current, revisions, content)
        for name in before - revisions.keys():
            self._release(name)
        return settled

    async def _gone(self, name: str) -> None:
        """Nothing of a Function that was uninstalled goes on running."""
        if self._packaging is not None:
            self._packaging.contents.deliveries.gone(FUNCTION.kind, name)
        for revision in [each for each, function in self._hosted.items() if function == name]:
            self._release(revision)

    def _release(self, revision: str) -> None:
        if self._packaging is not None and self._hosted.pop(revision, None) is not None:
            self._packaging.host.forget(revision)


def _in_use(xrs: int, phases: int, pinned_by: Collection[str] = ()) -> XrCondition:
    """How many they are changes too often for a condition; `status.users` says so."""
    if xrs:
        return XrCondition("InUse", "True", "ChosenByPipelines", "pipelines of XRs choose it")
    if phases:
        return XrCondition("InUse", "True", "BoundToPhases", "phases of Blueprints or ActionSets are bound to it")
    if pinned_by:
        names = listed(sorted(pinned_by))
        return XrCondition("InUse", "True", "Pinned", f"drained; kept as a way back for Composition {names}")
    return XrCondition("InUse", "False", "NotChosen")


def _external_content(identity: str) -> Content:
    return Content(identity, status_fields={"servedBy": "external"})


def _users_of(compositions: Iterable[str]) -> str:
    """Who uses a revision, in words that stay the same while as many come as go."""
    names = sorted(compositions)
    if not names:
        return "phases of Blueprints or ActionSets"
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"XRs of Composition {', '.join(names[:_MAX_NAMED])}{more}"


def _status_fields_of(revision: Object) -> dict[str, Any]:
    """Where a revision serves and what it can do, as far as that is for us to say."""
    annotations = annotations_of(revision)
    if ENDPOINT_ANNOTATION in annotations:
        return {"endpoint": annotations[ENDPOINT_ANNOTATION]}
    builtin = find_builtin(spec_of(revision, RevisionSpec).image)
    if builtin is None or runs_externally(annotations):
        return {}
    deterministic = (DETERMINISTIC,) if builtin.deterministic else ()
    return {
        "endpoint": builtin_endpoint(builtin.name),
        "capabilities": [*BUILTIN_CAPABILITIES, *deterministic],
    }
