"""Packages and their revisions: what all kinds of packages have in common.

Each version of a package is a revision, known by its content, and as many of them are active as its owner wants.
Nothing is lost on the way to a new one: it is there, and works, before an older one is deactivated. What a version is
made of and whether it works is for the controllers of Functions, Providers and Configurations to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from planform.api.annotations import annotations_of, is_paused
from planform.api.conditions import XrCondition, condition_message, condition_of, condition_reason, conditions_of
from planform.api.extensions.packages import (
    FunctionRevisionStatus,
    PackageSpec,
    PackageStatus,
    RevisionSpec,
    RuntimeRef,
)
from planform.api.kinds import GroupVersionKind, Object
from planform.api.metadata import is_deleted, name_of, resource_version_of, uid_of
from planform.api.names import (
    IMAGE_CONFIG,
    PACKAGE_LABEL,
    PACKAGES_GROUP,
    RUNTIME_CONFIG,
    SECRET,
)
from planform.api.objects import spec_of, status_of
from planform.api.owners import controller_uid
from planform.apimachinery.names import label_value_problems
from planform.client.informer import InformerEvent, ObjectKey
from planform.errors import AlreadyExists, NotFound, PlanformError
from planform.packages.errors import PackageError
from planform.packages.fetching import PackageSource
from planform.packages.revision_objects import (
    ACTIVE,
    DIGEST_ANNOTATION,
    INACTIVE,
    changes_to,
    known_of,
    new_revision,
)
from planform.packages.revisions import active_revisions, number_of, revision_name, surplus_revisions
from planform.reconcile.context import ControllerContext
from planform.reconcile.controller import Controller, Result
from planform.reconcile.sources import Source, to_owner, to_self
from planform.reconcile.writes import merge, set_status

_PAUSED: Final = XrCondition("Synced", "False", "ReconcilePaused", "reconciliation is paused by annotation")
_FAILED: Final = "ReconcileError"
REVISION_PER_RUNTIME_CONFIG: Final = "RevisionPerRuntimeConfig"
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
    status_fields: Mapping[str, Any] = field(default_factory=dict)
    """What to say of it in the package's status."""


@dataclass(frozen=True, slots=True)
class Examined:
    """How a revision is. `runtime` is None if nothing of it runs; an empty problem is none."""

    revision: str = ""
    runtime: str | None = ""
    status_fields: Mapping[str, Any] = field(default_factory=dict)
    """What to say in its status."""
    users: int = 0
    pinned: bool = False
    """Whether it has to go on serving, whoever uses it."""
    conditions: Sequence[XrCondition] = ()
    """What else to say of it, beside its health."""
    remark: str = ""
    """What to know of how it runs, though nothing is wrong."""
    rests: tuple[str, str] = ("", "")
    """Reason and message, if nothing of it runs and that is as it should be."""

    @property
    def problem(self) -> str:
        return self.revision or self.runtime or ""


class PackageController:
    """Keeps the revisions of every package of one kind."""

    copied_annotations: Sequence[str] = ()
    replaces_when_healthy = False
    """Whether an older revision stays active until a newer one works; for what cannot be shared, it must not."""

    def __init__(
        self,
        context: ControllerContext,
        name: str,
        package: GroupVersionKind,
        revision: GroupVersionKind,
        source: PackageSource | None = None,
    ) -> None:
        """`source` is where packages come from; None if none are pulled."""
        self._context = context
        self._client = context.client
        self._name = name
        self._manager = f"{PACKAGES_GROUP}/{name}"
        self._package = package
        self._revision = revision
        self._source = source
        self._known: set[str] = set()  # packages that rules for images and programs, and Secrets, may be about

    def start(self) -> None:
        controller = self._context.controller(self._name, self.reconcile, on_failure=self._set_failed)
        sources: list[Source[ObjectKey]] = [
            Source(self._package, to_self),
            Source(self._revision, to_owner(PACKAGES_GROUP, self._package.kind, cluster_scoped=True)),
            Source(IMAGE_CONFIG, self._to_known),
            Source(RUNTIME_CONFIG, self._to_known),
        ]
        sources += self._more_sources()
        if self._source is not None:
            sources.append(Source(SECRET, self._on_secret, namespace=self._source.namespace))
        if self._context.manager.start(controller, sources):
            self._started(controller)

    async def reconcile(self, key: ObjectKey) -> Result:
        try:
            package = await self._client.get(self._package, key.name)
        except NotFound:
            self._known.discard(key.name)
            await self._gone(key.name)
            return Result()
        if is_deleted(package):
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
                await self._set_health(revisions, name)
            await self._set_not_installable(package, error)
            if error.retryable:
                raise
            return Result(requeue_after=_LOOK_AGAIN)
        settled = await self._settle(package, current, revisions, content)
        always = spec_of(package, PackageSpec).pull_policy == "Always" and content.digest
        return Result(requeue_after=_LOOK_AGAIN if always or not settled else None)

    def _to_known(self, _: InformerEvent) -> Iterable[ObjectKey]:
        return [ObjectKey("", name) for name in sorted(self._known)]

    def _on_secret(self, change: InformerEvent) -> Iterable[ObjectKey]:
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

    def _more_sources(self) -> Sequence[Source[ObjectKey]]:
        """What else packages of this kind have to be looked at for."""
        return ()

    async def _content(self, package: Object, revisions: Mapping[str, Object]) -> Content:
        """What the package means now. Raises NotInstallable or a PackageError."""
        raise NotImplementedError

    async def _examine(self, revision: Object) -> Examined:
        """See that an active revision works and an inactive one rests, as far as that is for us."""
        raise NotImplementedError

    def _limit(self, package: Object) -> int:
        return 1

    def _retains(self, package: Object) -> bool:
        """Whether a revision in use stays active above the limit."""
        return True

    async def _status_fields(
        self, package: Object, revisions: Mapping[str, Object], examined: Mapping[str, Examined]
    ) -> Object:
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
        uid, name = uid_of(package), name_of(package)
        if label_value_problems(name):
            return {}
        found = await self._client.list(self._revision, labels=f"{PACKAGE_LABEL}={name}")
        return {name_of(each): each for each in found.items if controller_uid(each) == uid}

    async def _ensure_current(self, package: Object, content: Content, revisions: dict[str, Object]) -> str:
        """Have the revision that the package means now, in `revisions` too; gives its name."""
        name = self._same_content(package, content, revisions) or self._new_name(package, content, revisions)
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
            wanted["spec"]["desiredState"] = spec_of(present, RevisionSpec).desired_state
        changes = changes_to(present, wanted, annotations=self.copied_annotations)
        revisions[name] = await merge(self._client, present, changes, manager=self._manager) if changes else present
        return name

    def _same_content(self, package: Object, content: Content, revisions: Mapping[str, Object]) -> str:
        """The newest revision there is of what was pulled: how it runs is no part of what it is, unless the gate says
        so. Older control planes gave the same content another name for each runtime configuration."""
        same = [
            known_of(each)
            for each in revisions.values()
            if content.digest
            and annotations_of(each).get(DIGEST_ANNOTATION) == content.digest
            and self._runs_alike(package, each)
        ]
        return max(same, key=lambda each: (each.number, each.name)).name if same else ""

    def _new_name(self, package: Object, content: Content, revisions: Mapping[str, Object]) -> str:
        """The name of a revision that there is not yet, or that lost the note of what it is."""
        name = name_of(package)
        plain = revision_name(name, content.identity)
        present = revisions.get(plain)
        if present is None or not content.digest or self._runs_alike(package, present):
            return plain
        return revision_name(name, f"{content.identity}{_runtime_config(package)}")

    def _runs_alike(self, package: Object, revision: Object) -> bool:
        """Whether a revision may be the package's as far as how it runs is concerned."""
        if not self._context.features.enabled(REVISION_PER_RUNTIME_CONFIG):
            return True
        return _runtime_config(package) == _runtime_config(revision)

    async def _follow(self, package: Object, revisions: dict[str, Object]) -> None:
        """Have the current revision be as its package says, as far as that is known without asking a registry: a label
        that steps choose by must not wait for one that does not answer."""
        status = status_of(package, PackageStatus)
        present = revisions.get(status.current_revision or "")
        if present is None or status.current_identifier != spec_of(package, PackageSpec).package:
            return
        before, now = annotations_of(present), annotations_of(package)
        if any(before.get(each) != now.get(each) for each in self.copied_annotations):
            return  # it may mean another revision
        if not self._runs_alike(package, present):
            return
        wanted = new_revision(
            package,
            self._revision,
            name_of(present),
            known_of(present).number,
            active=known_of(present).active,
            annotations=self.copied_annotations,
            digest=annotations_of(present).get(DIGEST_ANNOTATION, ""),
        )
        if changes := changes_to(present, wanted, annotations=self.copied_annotations):
            name = name_of(present)
            revisions[name] = await merge(self._client, present, changes, manager=self._manager)

    async def _unowned(self, name: str) -> Object:
        """A revision that is there already and that nobody controls; it will be adopted."""
        present = await self._client.get(self._revision, name)
        if controller_uid(present):
            raise NotInstallable(
                f'{self._revision.kind} "{name}" is there and has another owner, whose it is until it is gone'
            )
        return present

    # -- all of them

    async def _settle(self, package: Object, current: str, revisions: dict[str, Object], content: Content) -> bool:
        """Activate, deactivate and delete as the package says, and say how everything is. False if what a revision is
        made of is not in place: what is in its way may go without a word to us."""
        examined = {current: await self._set_health(revisions, current)}
        for name in sorted(revisions.keys() - examined.keys()):
            examined[name] = await self._examined(revisions[name])
        if is_automatic(package):
            await self._activate(package, revisions, examined)
        history = spec_of(package, PackageSpec).history_limit
        known = [
            known_of(each, users=examined[name].users, pinned=examined[name].pinned) for name, each in revisions.items()
        ]
        if self._may_collect():
            for name in surplus_revisions(known, current, history=history):
                await self._delete(revisions.pop(name))
                self._record(package, "GarbageCollect", f'deleted revision "{name}": more than revisionHistoryLimit')
        for name in sorted(revisions):
            examined[name] = await self._set_health(revisions, name)
        await self._set_installed(package, current, revisions, examined, content)
        return not any(examined[name].revision for name in revisions)

    async def _activate(self, package: Object, revisions: dict[str, Object], examined: Mapping[str, Examined]) -> None:
        known = [
            known_of(
                each,
                works=not self.replaces_when_healthy or not examined[name].problem,
                users=examined[name].users,
                pinned=examined[name].pinned,
            )
            for name, each in revisions.items()
        ]
        # Not a default of the schema: what nobody chose may become another, and is not written into objects.
        limit, retain = self._limit(package), self._retains(package)
        active = active_revisions(known, limit=limit, retain=retain)
        # Activated before deactivated: there is never less to call than there was.
        for name in sorted(revisions, key=lambda each: (each not in active, each)):
            users = examined[name].users
            if name not in active and users and spec_of(revisions[name], RevisionSpec).is_active:
                used = f'revision "{name}" is deactivated while {users} XRs or phases use it'
                message = f"{used}: more than activeRevisionLimit"
                self._context.events.record(package, "Warning", "RevisionInUse", message, by=self._name)
            await self._set_state(package, revisions, name, ACTIVE if name in active else INACTIVE)

    async def _set_state(self, package: Object, revisions: dict[str, Object], name: str, state: str) -> None:
        if spec_of(revisions[name], RevisionSpec).desired_state == state:
            return
        change = {"spec": {"desiredState": state}}
        revisions[name] = await merge(self._client, revisions[name], change, manager=self._manager)
        self._record(package, "TransitionRevision", f'revision "{name}" is now {state}')

    async def _delete(self, revision: Object) -> None:
        try:
            await self._client.delete(
                self._revision,
                name_of(revision),
                uid=uid_of(revision),
                resource_version=resource_version_of(revision),  # somebody may be activating it
            )
        except NotFound:
            pass

    async def _examined(self, revision: Object) -> Examined:
        """How a revision is. Nothing is done about one that is paused, and what was last said of it holds."""
        return _as_recorded(revision) if is_paused(revision) else await self._examine(revision)

    # -- what is said about it

    async def _set_health(self, revisions: dict[str, Object], name: str) -> Examined:
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
        revisions[name] = await self._set_status(revisions[name], conditions, **examined.status_fields)
        return examined

    async def _set_installed(
        self,
        package: Object,
        current: str,
        revisions: Mapping[str, Object],
        examined: Mapping[str, Examined],
        content: Content,
    ) -> None:
        if spec_of(revisions[current], RevisionSpec).is_active:
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
        if healthy.status == "True" and not message and (rests := examined[current].rests)[0]:
            healthy = XrCondition("Healthy", "True", *rests)
        status_fields = await self._status_fields(package, revisions, examined)
        more = self._conditions(package, revisions, examined, content)
        await self._set_status(
            package,
            [installed, healthy, *more],
            currentRevision=current,
            currentIdentifier=spec_of(package, PackageSpec).package,
            **content.status_fields,
            **status_fields,
        )

    async def _set_not_installable(self, package: Object, error: PlanformError) -> None:
        before = resource_version_of(package)
        conditions = [
            XrCondition("Installed", "False", "UnpackingPackage", error.message),
            health("Healthy", "the package is not installed"),
        ]
        after = await self._set_status(package, conditions)
        if resource_version_of(after) != before:
            self._context.events.record(package, "Warning", "UnpackPackage", error.message, by=self._name)

    async def _set_failed(self, key: ObjectKey, error: Exception) -> None:
        """Say of a package that reconciling it raised, so that nobody has to look for that in a log.

        Said once per kind of error: its words may differ each time, and each write would be followed by another try.
        """
        if isinstance(error, PlanformError) and is_about_package(error):
            return  # `reconcile` said so
        try:
            package = await self._client.get(self._package, key.name)
        except NotFound:
            return
        kind, reason = f"{type(error).__name__}: ", condition_reason(package, "Healthy")
        if reason == _FAILED and condition_message(package, "Healthy").startswith(kind):
            return
        message = f"{kind}{error}"
        conditions = [XrCondition("Healthy", "False", _FAILED, message)]
        if condition_of(package, "Installed") is None:
            conditions.insert(0, XrCondition("Installed", "False", _FAILED, message))
        await self._set_status(package, conditions)
        self._context.events.record(package, "Warning", _FAILED, message, by=self._name)

    async def _resume(self, obj: Object) -> Object:
        """Take back what was said while the package or revision was paused."""
        conditions = conditions_of(obj)
        kept = [each for each in conditions if each["type"] != "Synced"]
        if len(kept) == len(conditions):
            return obj
        return await merge(
            self._client, obj, {"status": {"conditions": kept}}, manager=self._manager, subresource="status"
        )

    async def _set_status(self, obj: Object, conditions: Sequence[XrCondition], **more: Any) -> Object:
        return await set_status(
            self._client, obj, conditions, now=self._context.timestamp(), manager=self._manager, **more
        )

    def _record(self, package: Object, reason: str, message: str) -> None:
        self._context.events.record(package, "Normal", reason, message, by=self._name)


def is_about_package(error: PlanformError) -> bool:
    """Whether it says something about the package, and not about the engine that everything is stored in."""
    return isinstance(error, NotInstallable | PackageError)


def health(type_: str, problem: str = "", *, remark: str = "") -> XrCondition:
    if problem:
        return XrCondition(type_, "False", "UnhealthyPackageRevision", problem)
    return XrCondition(type_, "True", "HealthyPackageRevision", remark)


def _as_recorded(revision: Object) -> Examined:
    status = status_of(revision, FunctionRevisionStatus)
    problems = {each.type: (each.message or "") if each.status == "False" else "" for each in status.conditions or ()}
    return Examined(problems.get("RevisionHealthy", ""), problems.get("RuntimeHealthy"), users=status.users or 0)


def _runtime_config(obj: Object) -> str:
    """Which runtime configuration a package or revision names."""
    return spec_of(obj, RuntimeRef).runtime_config


def _check_name(package: Object) -> None:
    """Raises NotInstallable: the name of a package is a label of its revisions."""
    if label_value_problems(name_of(package)):
        raise NotInstallable(f"the name of a {package['kind']} must be a label: at most 63 characters")


def is_automatic(package: Object) -> bool:
    return spec_of(package, PackageSpec).is_automatic
