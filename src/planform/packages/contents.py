"""The content of revisions that come from registries: fetched, checked, and their objects brought to the engine.

Objects belong to the package, and to the revision that is the newest to bring them: when a version no longer has one,
it stays until the package goes. What somebody deletes or changes of the others is brought again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import planform
from planform.api.annotations import annotations_of
from planform.api.conditions import condition_status
from planform.api.extensions.packages import PackageSpec, PackageStatus, RevisionSpec, RevisionStatus, RuntimeRef
from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.metadata import label, name_of, uid_of
from planform.api.names import MANAGED_DEFINITION, PACKAGE_LABEL, RUNTIME_CONFIG
from planform.api.objects import spec_of, status_of
from planform.api.owners import controller_reference, controller_uid, owners_of
from planform.client.protocol import Client
from planform.errors import NotFound, PlanformError
from planform.packages.controller import Content
from planform.packages.deliveries import Deliveries, address_of
from planform.packages.dependencies import DependencyStatus
from planform.packages.errors import InvalidPackage, PackageError
from planform.packages.fetching import Fetched, Located, PackageSource
from planform.packages.references import parse_reference
from planform.packages.revision_objects import DIGEST_ANNOTATION
from planform.packages.revisions import content_of
from planform.packages.runtimes.deployments import Deployed
from planform.packages.runtimes.executables import NotRunnable, RuntimeSettings, network_in
from planform.packages.runtimes.launching import why_cut_off
from planform.packages.safe_start import as_definitions, is_safe_start
from planform.packages.webhooks import WebhookService, pointed_at

if TYPE_CHECKING:
    from planform.packages.xpkg import Dependency

_MANAGER: Final = "pkg.crossplane.io/revision"
CROSSPLANE_VERSION: Final = "v2.4.0"
"""The version whose packages are understood: what the constraints of packages are compared with."""


class CannotEstablish(PlanformError):
    """An object of a package cannot be brought to the engine."""

    reason = "EstablishControl"


class Dependencies(Protocol):
    """Whoever knows how it is with what revisions need."""

    def dependency_status(self, revision: str) -> DependencyStatus | None: ...

    def note(self, digest: str, needed: tuple[Dependency, ...]) -> None: ...


class BuiltInKinds(Protocol):
    """Whoever serves kinds without a package, and steps back for one."""

    def giving_way(self, objects: Iterable[Object]) -> AbstractAsyncContextManager[None]: ...


@dataclass(frozen=True, slots=True)
class Installed:
    """What has become of a revision's content; an empty problem is none."""

    problem: str = ""
    status_fields: Mapping[str, Any] = field(default_factory=dict)
    fetched: Fetched | None = None


@dataclass(slots=True)
class PackageContents:
    """Fetches what packages mean, and brings what revisions carry. Shared by the controllers of all kinds."""

    source: PackageSource
    client: Client
    deliveries: Deliveries
    dependencies: Dependencies | None = None
    built_in_kinds: BuiltInKinds | None = None
    _established: dict[str, tuple[object, ...]] = field(default_factory=dict)  # by uid of the revision

    async def content(self, package: Object, revisions: Mapping[str, Object]) -> Content:
        """What a package means now; without a question to anybody if that is known already. Raises PackageError."""
        spec = spec_of(package, PackageSpec)
        located = await self._locate(package, revisions)
        await self.source.fetch(located, policy=spec.pull_policy, pull_secrets=spec.pull_secrets)
        status_fields = {"resolvedPackage": located.image, "appliedImageConfigRefs": list(located.applied)}
        return Content(content_of(f"@{located.digest}"), located.digest, status_fields)

    async def _locate(self, package: Object, revisions: Mapping[str, Object]) -> Located:
        spec, status = spec_of(package, PackageSpec), status_of(package, PackageStatus)
        current = revisions.get(status.current_revision or "")
        text = spec.package
        if (
            current is not None
            and spec.pull_policy != "Always"
            and status.current_identifier == text
            and (digest := annotations_of(current).get(DIGEST_ANNOTATION))
        ):
            text = str(parse_reference(text).pinned(digest))
            located = await self.source.locate(text, policy=spec.pull_policy, pull_secrets=spec.pull_secrets)
            return Located(spec.package, _unpinned(located.image, spec), digest, located.treatment)
        return await self.source.locate(text, policy=spec.pull_policy, pull_secrets=spec.pull_secrets)

    async def fetched(self, revision: Object) -> Fetched:
        """The content of a revision, whatever its package means now. Raises PackageError."""
        spec = spec_of(revision, RevisionSpec)
        located = await self._located(revision)
        return await self.source.fetch(located, policy=spec.pull_policy, pull_secrets=spec.pull_secrets)

    async def _located(self, revision: Object) -> Located:
        spec, digest = spec_of(revision, RevisionSpec), annotations_of(revision)[DIGEST_ANNOTATION]
        pinned = str(parse_reference(spec.image).pinned(digest))
        return await self.source.locate(pinned, policy=spec.pull_policy, pull_secrets=spec.pull_secrets)

    async def settings(self, revision: Object) -> RuntimeSettings:
        """How a revision's program is to be run on this machine. Raises NotRunnable."""
        return RuntimeSettings.of(await self._runtime_config(revision, await self._located(revision)))

    async def deployed(self, revision: Object, *, provider: bool = False) -> Deployed:
        """How a revision's program is to be run in a cluster. Raises NotRunnable."""
        located = await self._located(revision)
        config = await self._runtime_config(revision, located)
        spec = spec_of(revision, RevisionSpec)
        pull_secrets = (*spec.pull_secrets, *filter(None, (located.treatment.pull_secret,)))
        return Deployed(
            label(revision, PACKAGE_LABEL),
            name_of(revision),
            uid_of(revision),
            located.image,
            controller_reference(revision),
            next(each for each in owners_of(revision) if each.get("controller")),
            provider,
            spec.pull_policy,
            tuple(dict.fromkeys(pull_secrets)),
            (config or {}).get("spec") or {},
            "" if provider else why_cut_off(network_in(config or {})),
        )

    async def _runtime_config(self, revision: Object, located: Located) -> Object | None:
        """A rule for the image counts more than what the package says. Raises NotRunnable if it is not there."""
        rule = located.treatment.runtime
        configured = spec_of(revision, RuntimeRef).runtime_config
        name = rule.name if rule is not None else configured
        try:
            return await self.client.get(RUNTIME_CONFIG, name)
        except NotFound:
            if name == "default":
                return None
            raise NotRunnable(f'there is no DeploymentRuntimeConfig "{name}"') from None

    async def install(self, revision: Object, kind: str, service: WebhookService | None = None) -> Installed:
        """Have the content of an active revision here and its objects in the engine, once what it needs is there.

        `service` is where the package serves webhooks; without it, nobody does.
        """
        try:
            fetched = await self.fetched(revision)
            self.check(fetched, kind, spec_of(revision, RevisionSpec))
            status_fields: dict[str, Any] = {"capabilities": list(fetched.package.capabilities)}
            if self.dependencies is not None:
                self.dependencies.note(fetched.digest, fetched.package.dependencies)
            if fetched.package.dependencies and not spec_of(revision, RevisionSpec).skip_dependency_resolution:
                dependency_status = self._dependency_status(revision)
                status_fields["foundDependencies"] = dependency_status.found
                status_fields["installedDependencies"] = dependency_status.installed
                status_fields["invalidDependencies"] = dependency_status.invalid
                if dependency_status.problem:
                    return Installed(dependency_status.problem, status_fields)
            status_fields["objectRefs"] = list(await self.establish(revision, fetched, service))
        except (PackageError, CannotEstablish) as error:
            return Installed(error.message)
        return Installed("", status_fields, fetched)

    def _dependency_status(self, revision: Object) -> DependencyStatus:
        """How it is with what a revision needs. After a start, what was said of one that is healthy holds until it is
        known: nothing is wrong, nobody has looked yet."""
        known = self.dependencies.dependency_status(name_of(revision)) if self.dependencies is not None else None
        if known is not None:
            return known
        status = status_of(revision, RevisionStatus)
        found, installed = status.found_dependencies or 0, status.installed_dependencies or 0
        invalid = status.invalid_dependencies or 0
        if found and condition_status(revision, "RevisionHealthy") == "True":
            return DependencyStatus(found, installed, invalid)
        return DependencyStatus(0, 0, 0, "it is not known yet whether what it needs is there")

    def check(self, fetched: Fetched, kind: str, spec: RevisionSpec) -> None:
        """Raises InvalidPackage if the package is of another kind, or made for another control plane."""
        package = fetched.package
        if package.kind != kind:
            raise InvalidPackage(f"the package is a {package.kind}, not a {kind}")
        constraint = package.crossplane_constraint
        if not constraint or spec.ignore_crossplane_constraints:
            return
        from planform.gotemplate.errors import CallFailed
        from planform.gotemplate.sprig.semver import semver_compare

        try:
            fits = semver_compare(constraint, CROSSPLANE_VERSION)
        except CallFailed as error:
            raise InvalidPackage(f'its constraint on Crossplane, "{constraint}", is no range of versions') from error
        if not fits:
            raise InvalidPackage(
                f"the package needs Crossplane {constraint}, and planform {planform.__version__} is like"
                f" {CROSSPLANE_VERSION}; set ignoreCrossplaneConstraints to try it all the same"
            )

    async def establish(
        self, revision: Object, fetched: Fetched, service: WebhookService | None = None
    ) -> Sequence[Object]:
        """Bring the objects of an active revision; gives references to them. Raises CannotEstablish."""
        from planform.packages.xpkg import INSTALLED_KINDS

        allowed = INSTALLED_KINDS[fetched.package.kind]
        brought = [each for each in fetched.package.objects if gvk_of(each) in allowed]
        if is_safe_start(fetched.package):
            brought = list(as_definitions(brought))
        objects = [self._owned(each, revision) for each in pointed_at(service, brought, fetched.package.kind)]
        every = tuple(objects)
        uid, spec = uid_of(revision), spec_of(revision, RevisionSpec)
        # The number is part of it: a revision that the package went back to has to bring its objects again.
        state = (
            controller_uid(revision),
            spec.revision,
            spec.common_labels or None,
            spec.common_annotations or None,
            service,
        )
        if self._established.get(uid) == state:
            undone = self.deliveries.undone(uid)
            objects = [each for each in objects if address_of(each) in undone]
        async with self.built_in_kinds.giving_way(objects) if self.built_in_kinds is not None else nullcontext():
            # All of them are tried before any is changed: half a package is worse than none.
            await asyncio.gather(*(self._apply(each, revision, dry_run=True) for each in objects))
            await self.deliveries.watch(map(gvk_of, objects))
            await asyncio.gather(*(self._bring(each, revision) for each in objects))
        self._established[uid] = state
        return sorted(map(self._reference, every), key=lambda each: (each["apiVersion"], each["kind"], each["name"]))[
            ::-1
        ]

    def _reference(self, obj: Object) -> Object:
        reference = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": name_of(obj)}
        uid = self.deliveries.uid_of(address_of(obj))
        return {**reference, "uid": uid} if uid else reference

    def rest(self, revision: Object) -> None:
        """An inactive revision releases its objects: those that are active bring theirs again."""
        self.deliveries.rest(uid_of(revision))
        if uid_of(revision) in self._established:
            package = controller_uid(revision)
            self._established = {uid: state for uid, state in self._established.items() if state[0] != package}

    async def _bring(self, obj: Object, revision: Object) -> None:
        address = address_of(obj)
        with self.deliveries.bringing(address):
            stored = await self._apply(obj, revision)
            if stored is None:
                self.deliveries.leave(address, uid_of(revision))
            else:
                self.deliveries.brought(revision, obj, stored)

    async def _apply(self, obj: Object, revision: Object, *, dry_run: bool = False) -> Object | None:
        """The object as it is stored then; None if it is not this revision's to bring. Raises CannotEstablish."""
        kind, name = gvk_of(obj), name_of(obj)
        try:
            present = await self.client.get(kind, name)
        except NotFound:
            present = None
        wanted = obj
        if present is not None:
            if not await self._may_bring(revision, present):
                return None
            ours = {each["uid"] for each in owners_of(obj)}
            others = [{**each, "controller": False} for each in owners_of(present) if each["uid"] not in ours]
            wanted = {
                **obj,
                "metadata": {**obj["metadata"], "ownerReferences": [*owners_of(obj), *others]},
            }
        try:
            return await self.client.apply(wanted, manager=_MANAGER, force=True, dry_run=dry_run)
        except PlanformError as error:
            if error.retryable:
                raise
            raise CannotEstablish(f"{kind.kind} {name}: {error.message}") from error

    async def _may_bring(self, revision: Object, present: Object) -> bool:
        """Whether an object that is there is this revision's to change. What another package controls is its; what
        another revision of this package controls is taken over, unless that one is newer and active."""
        controller = controller_uid(present)
        if not controller or controller == uid_of(revision):
            return True
        packages = {each["uid"] for each in owners_of(revision)}
        owners = owners_of(present)
        holder = next(each for each in owners if each["uid"] == controller)
        if not any(each["uid"] in packages for each in owners):
            raise CannotEstablish(
                f"cannot establish control of object: {present['kind']} {name_of(present)} is controlled by"
                f" {holder['kind']} {holder['name']}"
            )
        try:
            other = spec_of(await self.client.get(gvk_of(revision), holder["name"]), RevisionSpec)
        except NotFound:
            return True
        return not other.is_active or other.revision < spec_of(revision, RevisionSpec).revision

    def _owned(self, obj: Object, revision: Object) -> Object:
        spec = spec_of(revision, RevisionSpec)
        package = next(each for each in owners_of(revision) if each.get("controller"))
        kind = gvk_of(revision)
        owners = [
            _owner(kind, name_of(revision), uid_of(revision), controller=True),
            {**package, "controller": False, "blockOwnerDeletion": True},
        ]
        about = obj["metadata"]
        if gvk_of(obj) == MANAGED_DEFINITION and obj["spec"].get("state") == "Inactive":
            # Whether the kind is served is for policies to say, and what they have activated stays so.
            obj = {**obj, "spec": {key: value for key, value in obj["spec"].items() if key != "state"}}
        return {
            **{key: value for key, value in obj.items() if key != "status"},
            "metadata": {
                "name": about["name"],
                "labels": {**(about.get("labels") or {}), **(spec.common_labels or {})},
                "annotations": {**(about.get("annotations") or {}), **(spec.common_annotations or {})},
                "ownerReferences": owners,
            },
        }


def _owner(kind: GroupVersionKind, name: str, uid: str, *, controller: bool) -> Object:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": name,
        "uid": uid,
        "controller": controller,
        "blockOwnerDeletion": True,
    }


def _unpinned(image: str, spec: PackageSpec) -> str:
    """The image as the package names it, after rules; a digest that only we know of is left out."""
    return image if "@" in spec.package else image.partition("@")[0]
