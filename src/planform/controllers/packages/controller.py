"""Packages and their revisions: what all kinds of packages have in common.

Each version of a package is a revision, known by its content, and as many of them are active as its owner wants.
Nothing is lost on the way to a new one: it is there, and works, before an older one is deactivated. What a version is
made of and whether it works is for the controllers of Functions, Providers and Configurations to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from planform.api.kinds import GroupVersionKind, Object
from planform.api.names import IMAGE_CONFIG, PACKAGE_LABEL, PACKAGES_GROUP, RUNTIME_CONFIG, SECRET, is_paused
from planform.client.informer import Change, ObjectKey
from planform.composition.xr import XrCondition
from planform.controllers.workbench import Workbench
from planform.controllers.writing import merge, set_status
from planform.errors import AlreadyExists, NotFound, PlanformError
from planform.machinery.names import label_value_problems
from planform.packages.errors import PackageError
from planform.packages.fetching import PackageSource
from planform.packages.revision_objects import (
    ACTIVE,
    DIGEST_ANNOTATION,
    INACTIVE,
    annotations_of,
    changes_to,
    controller_of,
    known_of,
    new_revision,
)
from planform.packages.revisions import active_revisions, number_of, revision_name, surplus_revisions
from planform.reconcile.controller import Controller, Result
from planform.reconcile.sources import Source, to_owner, to_self

_PAUSED: Final = XrCondition("Synced", "False", "ReconcilePaused", "reconciliation is paused by annotation")
_FAILED: Final = "ReconcileError"
_LOOK_AGAIN: Final = 60.0
"""Seconds after which a package that cannot be had is asked for again, and one that is always pulled."""


class NotInstallable(PlanformError):
    """No revision can be made of a package; the message says what is missing."""

    reason = "UnpackingPackage"


@dataclass(frozen=True, slots=True)
class Content:
    """What a package's current revision is made of. `identity` makes it this revision and no other."""

    identity: str
    digest: str = ""
    told: Mapping[str, Any] = field(default_factory=dict)
    """What to say of it in the package's status."""


@dataclass(frozen=True, slots=True)
class Examined:
    """How a revision is. `runtime` is None if nothing of it runs; an empty problem is none."""

    revision: str = ""
    runtime: str | None = ""
    told: Mapping[str, Any] = field(default_factory=dict)
    """What to say in its status."""
    users: int = 0
    conditions: Sequence[XrCondition] = ()
    """What else to say of it, beside its health."""
    remark: str = ""
    """What to know of how it runs, though nothing is wrong."""

    @property
    def problem(self) -> str:
        return self.revision or self.runtime or ""


class PackageController:
    """Keeps the revisions of every package of one kind."""

    copied_annotations: Sequence[str] = ()
    hands_over = False
    """Whether an older revision stays active until a newer one works; for what cannot be shared, it must not."""

    def __init__(
        self,
        bench: Workbench,
        name: str,
        package: GroupVersionKind,
        revision: GroupVersionKind,
        source: PackageSource | None = None,
    ) -> None:
        """`source` is where packages come from; None if none are pulled."""
        self._bench = bench
        self._client = bench.client
        self._name = name
        self._manager = f"{PACKAGES_GROUP}/{name}"
        self._package = package
        self._revision = revision
        self._source = source
        self._known: set[str] = set()  # packages that rules for images and programs, and Secrets, may be about

    def start(self) -> None:
        controller = self._bench.controller(self._name, self.reconcile, on_failure=self._tell_failed)
        sources: list[Source[ObjectKey]] = [
            Source(self._package, to_self),
            Source(self._revision, to_owner(PACKAGES_GROUP, self._package.kind, cluster_scoped=True)),
            Source(IMAGE_CONFIG, self._to_known),
            Source(RUNTIME_CONFIG, self._to_known),
        ]
        if self._source is not None:
            sources.append(Source(SECRET, self._on_secret, namespace=self._source.namespace))
        if self._bench.plane.start(controller, sources):
            self._started(controller)

    async def reconcile(self, key: ObjectKey) -> Result:
        try:
            package = await self._client.get(self._package, key.name)
        except NotFound:
            self._known.discard(key.name)
            await self._gone(key.name)
            return Result()
        if package["metadata"].get("deletionTimestamp"):
            return Result()  # its revisions go with it
        if is_paused(package):
            await self._set_status(package, [_PAUSED])
            return Result()
        self._known.add(key.name)
        package = await self._resume(package)
        revisions = await self._revisions(package)
        await self._follow(package, revisions)
        try:
            _check_name(package)
            content = await self._content(package, revisions)
            current = await self._ensure_current(package, content, revisions)
        except PlanformError as error:
            if not is_about_package(error):
                raise
            for name in sorted(revisions):
                await self._tell_health(revisions, name)
            await self._tell_not_installable(package, error)
            if error.retryable:
                raise
            return Result(requeue_after=_LOOK_AGAIN)
        settled = await self._settle(package, current, revisions, content)
        always = package["spec"].get("packagePullPolicy") == "Always" and content.digest
        return Result(requeue_after=_LOOK_AGAIN if always or not settled else None)

    def _to_known(self, _: Change) -> Iterable[ObjectKey]:
        return [ObjectKey("", name) for name in sorted(self._known)]

    def _on_secret(self, change: Change) -> Iterable[ObjectKey]:
        """A login or a key that packages wait for, or that is another now."""
        assert self._source is not None
        return self._to_known(change) if self._source.asks_for(change.key.name) else ()

    def _look_again_on(self, controller: Controller[ObjectKey]) -> Callable[[str, str], None]:
        """Looks at a package of this kind again when it is told of it by kind and name."""

        def look_again(kind: str, name: str) -> None:
            if kind == self._package.kind:
                controller.queue.add(ObjectKey("", name))

        return look_again

    # -- what kinds of packages say for themselves

    def _started(self, controller: Controller[ObjectKey]) -> None:
        """The controller runs from now on."""

    async def _content(self, package: Object, revisions: Mapping[str, Object]) -> Content:
        """What the package means now. Raises NotInstallable or a PackageError."""
        raise NotImplementedError

    async def _examine(self, revision: Object) -> Examined:
        """See that an active revision works and an inactive one rests, as far as that is for us."""
        raise NotImplementedError

    def _limit(self, spec: Mapping[str, Any]) -> int:
        return 1

    async def _told(self, package: Object, revisions: Mapping[str, Object], examined: Mapping[str, Examined]) -> Object:
        """What else to say in the package's status."""
        return {}

    def _conditions(
        self, package: Object, revisions: Mapping[str, Object], examined: Mapping[str, Examined], content: Content
    ) -> Sequence[XrCondition]:
        """What else to say in the package's conditions."""
        return ()

    async def _gone(self, name: str) -> None:
        """There is no such package any more."""

    def _may_collect(self) -> bool:
        """Whether it is known which revisions are in use."""
        return True

    # -- the current revision

    async def _revisions(self, package: Object) -> dict[str, Object]:
        """The revisions that this package controls, by name."""
        uid, name = package["metadata"]["uid"], package["metadata"]["name"]
        if label_value_problems(name):
            return {}
        found = await self._client.list(self._revision, labels=f"{PACKAGE_LABEL}={name}")
        return {each["metadata"]["name"]: each for each in found.items if controller_of(each) == uid}

    async def _ensure_current(self, package: Object, content: Content, revisions: dict[str, Object]) -> str:
        """Have the revision that the package means now, in `revisions` too; gives its name."""
        name = _same_content(revisions, content) or revision_name(package["metadata"]["name"], content.identity)
        number = number_of(name, [known_of(each) for each in revisions.values()])
        automatic = is_automatic(package)
        wanted = new_revision(
            package,
            self._revision,
            name,
            number,
            active=automatic,
            annotations=self.copied_annotations,
            digest=content.digest,
        )
        present = revisions.get(name)
        if present is None:
            try:
                revisions[name] = await self._client.create(wanted, manager=self._manager)
            except AlreadyExists:
                present = await self._unowned(name)
            else:
                self._record(package, "InstallPackageRevision", f'made revision "{name}", number {number}')
                return name
        if not automatic:
            wanted["spec"]["desiredState"] = present["spec"]["desiredState"]
        changes = changes_to(present, wanted, annotations=self.copied_annotations)
        revisions[name] = await merge(self._client, present, changes, manager=self._manager) if changes else present
        return name

    async def _follow(self, package: Object, revisions: dict[str, Object]) -> None:
        """Have the current revision be as its package says, as far as that is known without asking a registry: a label
        that steps choose by must not wait for one that does not answer."""
        status = package.get("status") or {}
        present = revisions.get(str(status.get("currentRevision")))
        if present is None or status.get("currentIdentifier") != package["spec"]["package"]:
            return
        before, now = annotations_of(present), annotations_of(package)
        if any(before.get(each) != now.get(each) for each in self.copied_annotations):
            return  # it may mean another revision
        wanted = new_revision(
            package,
            self._revision,
            present["metadata"]["name"],
            known_of(present).number,
            active=known_of(present).active,
            annotations=self.copied_annotations,
            digest=annotations_of(present).get(DIGEST_ANNOTATION, ""),
        )
        if changes := changes_to(present, wanted, annotations=self.copied_annotations):
            name = present["metadata"]["name"]
            revisions[name] = await merge(self._client, present, changes, manager=self._manager)

    async def _unowned(self, name: str) -> Object:
        """A revision that is there already and that nobody controls; it will be adopted."""
        present = await self._client.get(self._revision, name)
        if controller_of(present):
            raise NotInstallable(
                f'{self._revision.kind} "{name}" is there and has another owner, whose it is until it is gone'
            )
        return present

    # -- all of them

    async def _settle(self, package: Object, current: str, revisions: dict[str, Object], content: Content) -> bool:
        """Activate, deactivate and delete as the package says, and say how everything is. False if what a revision is
        made of is not in place: what is in its way may go without a word to us."""
        examined = {current: await self._tell_health(revisions, current)}
        for name in sorted(revisions.keys() - examined.keys()):
            examined[name] = await self._examined(revisions[name])
        if is_automatic(package):
            await self._activate(package, revisions, examined)
        history = int(package["spec"].get("revisionHistoryLimit", 1))
        known = [known_of(each, users=examined[name].users) for name, each in revisions.items()]
        if self._may_collect():
            for name in surplus_revisions(known, current, history=history):
                await self._delete(revisions.pop(name))
                self._record(package, "GarbageCollect", f'deleted revision "{name}": more than revisionHistoryLimit')
        for name in sorted(revisions):
            examined[name] = await self._tell_health(revisions, name)
        await self._tell_installed(package, current, revisions, examined, content)
        return not any(examined[name].revision for name in revisions)

    async def _activate(self, package: Object, revisions: dict[str, Object], examined: Mapping[str, Examined]) -> None:
        spec = package["spec"]
        known = [
            known_of(each, works=not self.hands_over or not examined[name].problem, users=examined[name].users)
            for name, each in revisions.items()
        ]
        # Not a default of the schema: what nobody chose may become another, and is not written into objects.
        limit, retain = self._limit(spec), spec.get("inUsePolicy") != "Deactivate"
        active = active_revisions(known, limit=limit, retain=retain)
        # Activated before deactivated: there is never less to call than there was.
        for name in sorted(revisions, key=lambda each: (each not in active, each)):
            users = examined[name].users
            if name not in active and users and revisions[name]["spec"]["desiredState"] == ACTIVE:
                used = f'revision "{name}" is deactivated while {users} XRs or phases use it'
                message = f"{used}: more than activeRevisionLimit"
                self._bench.events.record(package, "Warning", "RevisionInUse", message, by=self._name)
            await self._set_state(package, revisions, name, ACTIVE if name in active else INACTIVE)

    async def _set_state(self, package: Object, revisions: dict[str, Object], name: str, state: str) -> None:
        if revisions[name]["spec"]["desiredState"] == state:
            return
        change = {"spec": {"desiredState": state}}
        revisions[name] = await merge(self._client, revisions[name], change, manager=self._manager)
        self._record(package, "TransitionRevision", f'revision "{name}" is now {state}')

    async def _delete(self, revision: Object) -> None:
        metadata = revision["metadata"]
        try:
            await self._client.delete(
                self._revision,
                metadata["name"],
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],  # somebody may be activating it
            )
        except NotFound:
            pass

    async def _examined(self, revision: Object) -> Examined:
        """How a revision is. Nothing is done about one that is paused, and what was last said of it holds."""
        return _as_said(revision) if is_paused(revision) else await self._examine(revision)

    # -- what is said about it

    async def _tell_health(self, revisions: dict[str, Object], name: str) -> Examined:
        """Write how a revision is, and what else there is to say of it, into its status."""
        examined = await self._examined(revisions[name])
        if is_paused(revisions[name]):
            revisions[name] = await self._set_status(revisions[name], [_PAUSED])
            return examined
        revisions[name] = await self._resume(revisions[name])
        conditions = [health("RevisionHealthy", examined.revision)]
        if examined.runtime is not None:
            conditions.append(health("RuntimeHealthy", examined.runtime, remark=examined.remark))
        conditions += examined.conditions
        revisions[name] = await self._set_status(revisions[name], conditions, **examined.told)
        return examined

    async def _tell_installed(
        self,
        package: Object,
        current: str,
        revisions: Mapping[str, Object],
        examined: Mapping[str, Examined],
        content: Content,
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
            f'revision "{name}": {each.problem}'
            for name, each in sorted(examined.items(), key=lambda item: (item[0] != current, item[0]))
            if each.problem and name in revisions and (name == current or known_of(revisions[name]).active)
        ]
        message = "; ".join(sick)
        healthy = health("Healthy", message if examined[current].problem else "", remark=message)
        told = await self._told(package, revisions, examined)
        more = self._conditions(package, revisions, examined, content)
        await self._set_status(
            package,
            [installed, healthy, *more],
            currentRevision=current,
            currentIdentifier=package["spec"]["package"],
            **content.told,
            **told,
        )

    async def _tell_not_installable(self, package: Object, error: PlanformError) -> None:
        before = package["metadata"]["resourceVersion"]
        conditions = [
            XrCondition("Installed", "False", "UnpackingPackage", error.message),
            health("Healthy", "the package is not installed"),
        ]
        after = await self._set_status(package, conditions)
        if after["metadata"]["resourceVersion"] != before:
            self._bench.events.record(package, "Warning", "UnpackPackage", error.message, by=self._name)

    async def _tell_failed(self, key: ObjectKey, error: Exception) -> None:
        """Say of a package that reconciling it raised, so that nobody has to look for that in a log.

        Said once per kind of error: its words may differ each time, and each write would be followed by another try.
        """
        if isinstance(error, PlanformError) and is_about_package(error):
            return  # `reconcile` said so
        try:
            package = await self._client.get(self._package, key.name)
        except NotFound:
            return
        kind, said = f"{type(error).__name__}: ", condition_of_type(package, "Healthy")
        if said.get("reason") == _FAILED and str(said.get("message")).startswith(kind):
            return
        message = f"{kind}{error}"
        conditions = [XrCondition("Healthy", "False", _FAILED, message)]
        if not condition_of_type(package, "Installed"):
            conditions.insert(0, XrCondition("Installed", "False", _FAILED, message))
        await self._set_status(package, conditions)
        self._bench.events.record(package, "Warning", _FAILED, message, by=self._name)

    async def _resume(self, obj: Object) -> Object:
        """Take back what was said while the package or revision was paused."""
        conditions = (obj.get("status") or {}).get("conditions") or []
        kept = [each for each in conditions if each["type"] != "Synced"]
        if len(kept) == len(conditions):
            return obj
        return await merge(
            self._client, obj, {"status": {"conditions": kept}}, manager=self._manager, subresource="status"
        )

    async def _set_status(self, obj: Object, conditions: Sequence[XrCondition], **more: Any) -> Object:
        return await set_status(
            self._client, obj, conditions, now=self._bench.timestamp(), manager=self._manager, **more
        )

    def _record(self, package: Object, reason: str, message: str) -> None:
        self._bench.events.record(package, "Normal", reason, message, by=self._name)


def is_about_package(error: PlanformError) -> bool:
    """Whether it says something about the package, and not about the engine that everything is stored in."""
    return isinstance(error, NotInstallable | PackageError)


def health(type_: str, problem: str = "", *, remark: str = "") -> XrCondition:
    if problem:
        return XrCondition(type_, "False", "UnhealthyPackageRevision", problem)
    return XrCondition(type_, "True", "HealthyPackageRevision", remark)


def _as_said(revision: Object) -> Examined:
    status = revision.get("status") or {}
    said = {each["type"]: each for each in status.get("conditions") or ()}
    problems = {type_: each.get("message", "") if each["status"] == "False" else "" for type_, each in said.items()}
    return Examined(
        problems.get("RevisionHealthy", ""), problems.get("RuntimeHealthy"), users=int(status.get("users") or 0)
    )


def _same_content(revisions: Mapping[str, Object], content: Content) -> str:
    """The newest revision there is of what was pulled: how it runs is no part of what it is. Older control planes gave
    the same content another name for each runtime configuration."""
    same = [
        known_of(each)
        for each in revisions.values()
        if content.digest and annotations_of(each).get(DIGEST_ANNOTATION) == content.digest
    ]
    return max(same, key=lambda each: (each.number, each.name)).name if same else ""


def condition_of_type(obj: Object, type_: str) -> Mapping[str, Any]:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == type_), {})


def _check_name(package: Object) -> None:
    """Raises NotInstallable: the name of a package is a label of its revisions."""
    if label_value_problems(package["metadata"]["name"]):
        raise NotInstallable(f"the name of a {package['kind']} must be a label: at most 63 characters")


def is_automatic(package: Object) -> bool:
    return str(package["spec"].get("revisionActivationPolicy") or "Automatic") == "Automatic"
