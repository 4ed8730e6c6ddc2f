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
from planform.api.kinds import GroupVersionKind, Object, gvk_of
from planform.api.names import MANAGED_DEFINITION, PACKAGE_LABEL, RUNTIME_CONFIG
from planform.api.owners import controller_reference
from planform.client.protocol import Client
from planform.controllers.packages.controller import Content
from planform.controllers.packages.deliveries import Deliveries, address_of
from planform.errors import NotFound, PlanformError
from planform.packages.dependencies import Standing
from planform.packages.errors import InvalidPackage, PackageError
from planform.packages.fetching import Fetched, Located, PackageSource
from planform.packages.references import parse_reference
from planform.packages.revision_objects import (
    ACTIVE,
    DIGEST_ANNOTATION,
    annotations_of,
    condition_status,
    controller_of,
)
from planform.packages.revisions import content_of
from planform.packages.runtimes.deployments import Deployed
from planform.packages.runtimes.executables import NotRunnable, RuntimeSettings
from planform.packages.webhooks import WebhookService, pointed_at

if TYPE_CHECKING:
    from planform.packages.xpkg import Dependency

_MANAGER: Final = "pkg.crossplane.io/revision"
_COUNTED: Final = ("found", "installed", "invalid")
CROSSPLANE_VERSION: Final = "v2.4.0"
"""The version whose packages are understood: what the constraints of packages are compared with."""


class CannotEstablish(PlanformError):
    """An object of a package cannot be brought to the engine."""

    reason = "EstablishControl"


class Dependencies(Protocol):
    """Whoever knows how it is with what revisions need."""

    def standing(self, revision: str) -> Standing | None: ...

    def note(self, digest: str, needed: tuple[Dependency, ...]) -> None: ...


class BuiltInKinds(Protocol):
    """Whoever serves kinds without a package, and steps back for one."""

    def giving_way(self, objects: Iterable[Object]) -> AbstractAsyncContextManager[None]: ...


@dataclass(frozen=True, slots=True)
class Installed:
    """What has become of a revision's content; an empty problem is none."""

    problem: str = ""
    told: Mapping[str, Any] = field(default_factory=dict)
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
        spec = package["spec"]
        located = await self._locate(package, revisions)
        await self.source.fetch(located, policy=_policy(spec), pull_secrets=_secrets(spec))
        told = {"resolvedPackage": located.image, "appliedImageConfigRefs": list(located.applied)}
        return Content(content_of(f"@{located.digest}"), located.digest, told)

    async def _locate(self, package: Object, revisions: Mapping[str, Object]) -> Located:
        spec, status = package["spec"], package.get("status") or {}
        current = revisions.get(str(status.get("currentRevision")))
        text = str(spec["package"])
        if (
            current is not None
            and _policy(spec) != "Always"
            and status.get("currentIdentifier") == text
            and (digest := annotations_of(current).get(DIGEST_ANNOTATION))
        ):
            text = str(parse_reference(text).pinned(digest))
            located = await self.source.locate(text, policy=_policy(spec), pull_secrets=_secrets(spec))
            return Located(str(spec["package"]), _unpinned(located.image, spec), digest, located.treatment)
        return await self.source.locate(text, policy=_policy(spec), pull_secrets=_secrets(spec))

    async def fetched(self, revision: Object) -> Fetched:
        """The content of a revision, whatever its package means now. Raises PackageError."""
        spec = revision["spec"]
        located = await self._located(revision)
        return await self.source.fetch(located, policy=_policy(spec), pull_secrets=_secrets(spec))

    async def _located(self, revision: Object) -> Located:
        spec, digest = revision["spec"], annotations_of(revision)[DIGEST_ANNOTATION]
        pinned = str(parse_reference(str(spec["image"])).pinned(digest))
        return await self.source.locate(pinned, policy=_policy(spec), pull_secrets=_secrets(spec))

    async def settings(self, revision: Object) -> RuntimeSettings:
        """How a revision's program is to be run on this machine. Raises NotRunnable."""
        return RuntimeSettings.of(await self._runtime_config(revision, await self._located(revision)))

    async def deployed(self, revision: Object, *, provider: bool = False) -> Deployed:
        """How a revision's program is to be run in a cluster. Raises NotRunnable."""
        located = await self._located(revision)
        config = await self._runtime_config(revision, located)
        metadata, spec = revision["metadata"], revision["spec"]
        pull_secrets = (*_secrets(spec), *filter(None, (located.treatment.pull_secret,)))
        return Deployed(
            str(metadata["labels"][PACKAGE_LABEL]),
            metadata["name"],
            metadata["uid"],
            located.image,
            controller_reference(revision),
            next(each for each in metadata["ownerReferences"] if each.get("controller")),
            provider,
            _policy(spec),
            tuple(dict.fromkeys(pull_secrets)),
            (config or {}).get("spec") or {},
        )

    async def _runtime_config(self, revision: Object, located: Located) -> Object | None:
        """A rule for the image counts more than what the package says. Raises NotRunnable if it is not there."""
        rule = located.treatment.runtime
        said = str((revision["spec"].get("runtimeConfigRef") or {}).get("name") or "default")
        name = rule.name if rule is not None else said
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
            self.check(fetched, kind, revision["spec"])
            told: dict[str, Any] = {"capabilities": list(fetched.package.capabilities)}
            if self.dependencies is not None:
                self.dependencies.note(fetched.digest, fetched.package.dependencies)
            if fetched.package.dependencies and not revision["spec"].get("skipDependencyResolution"):
                standing = self._standing(revision)
                told["foundDependencies"] = standing.found
                told["installedDependencies"] = standing.installed
                told["invalidDependencies"] = standing.invalid
                if standing.problem:
                    return Installed(standing.problem, told)
            told["objectRefs"] = list(await self.establish(revision, fetched, service))
        except (PackageError, CannotEstablish) as error:
            return Installed(error.message)
        return Installed("", told, fetched)

    def _standing(self, revision: Object) -> Standing:
        """How it is with what a revision needs. After a start, what was said of one that is healthy holds until it is
        known: nothing is wrong, nobody has looked yet."""
        known = self.dependencies.standing(revision["metadata"]["name"]) if self.dependencies is not None else None
        if known is not None:
            return known
        status = revision.get("status") or {}
        found, installed, invalid = (int(status.get(f"{each}Dependencies") or 0) for each in _COUNTED)
        if found and condition_status(revision, "RevisionHealthy") == "True":
            return Standing(found, installed, invalid)
        return Standing(0, 0, 0, "it is not known yet whether what it needs is there")

    def check(self, fetched: Fetched, kind: str, spec: Mapping[str, Any]) -> None:
        """Raises InvalidPackage if the package is of another kind, or made for another control plane."""
        package = fetched.package
        if package.kind != kind:
            raise InvalidPackage(f"the package is a {package.kind}, not a {kind}")
        constraint = package.crossplane_constraint
        if not constraint or spec.get("ignoreCrossplaneConstraints"):
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
        objects = [self._owned(each, revision) for each in pointed_at(service, brought, fetched.package.kind)]
        every = tuple(objects)
        metadata, spec = revision["metadata"], revision["spec"]
        # The number is part of it: a revision that the package went back to has to bring its objects again.
        state = (
            controller_of(revision),
            spec["revision"],
            spec.get("commonLabels"),
            spec.get("commonAnnotations"),
            service,
        )
        if self._established.get(metadata["uid"]) == state:
            undone = self.deliveries.undone(metadata["uid"])
            objects = [each for each in objects if address_of(each) in undone]
        async with self.built_in_kinds.giving_way(objects) if self.built_in_kinds is not None else nullcontext():
            # All of them are tried before any is changed: half a package is worse than none.
            await asyncio.gather(*(self._apply(each, revision, dry_run=True) for each in objects))
            await self.deliveries.watch(map(gvk_of, objects))
            await asyncio.gather(*(self._bring(each, revision) for each in objects))
        self._established[metadata["uid"]] = state
        return sorted(map(self._reference, every), key=lambda each: (each["apiVersion"], each["kind"], each["name"]))[
            ::-1
        ]

    def _reference(self, obj: Object) -> Object:
        reference = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": obj["metadata"]["name"]}
        uid = self.deliveries.uid_of(address_of(obj))
        return {**reference, "uid": uid} if uid else reference

    def rest(self, revision: Object) -> None:
        """An inactive revision lets go of its objects: those that are active bring theirs again."""
        self.deliveries.rest(revision["metadata"]["uid"])
        if revision["metadata"]["uid"] in self._established:
            package = controller_of(revision)
            self._established = {uid: state for uid, state in self._established.items() if state[0] != package}

    async def _bring(self, obj: Object, revision: Object) -> None:
        address = address_of(obj)
        with self.deliveries.bringing(address):
            stored = await self._apply(obj, revision)
            if stored is None:
                self.deliveries.leave(address, revision["metadata"]["uid"])
            else:
                self.deliveries.brought(revision, obj, stored)

    async def _apply(self, obj: Object, revision: Object, *, dry_run: bool = False) -> Object | None:
        """The object as it is stored then; None if it is not this revision's to bring. Raises CannotEstablish."""
        kind, name = gvk_of(obj), obj["metadata"]["name"]
        try:
            present = await self.client.get(kind, name)
        except NotFound:
            present = None
        wanted = obj
        if present is not None:
            if not await self._may_bring(revision, present):
                return None
            ours = {each["uid"] for each in obj["metadata"]["ownerReferences"]}
            others = [
                {**each, "controller": False}
                for each in present["metadata"].get("ownerReferences") or ()
                if each["uid"] not in ours
            ]
            wanted = {
                **obj,
                "metadata": {**obj["metadata"], "ownerReferences": [*obj["metadata"]["ownerReferences"], *others]},
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
        controller = controller_of(present)
        if not controller or controller == revision["metadata"]["uid"]:
            return True
        packages = {each["uid"] for each in revision["metadata"].get("ownerReferences") or ()}
        owners = present["metadata"].get("ownerReferences") or ()
        holder = next(each for each in owners if each["uid"] == controller)
        if not any(each["uid"] in packages for each in owners):
            raise CannotEstablish(
                f"cannot establish control of object: {present['kind']} {present['metadata']['name']} is controlled by"
                f" {holder['kind']} {holder['name']}"
            )
        try:
            other = (await self.client.get(gvk_of(revision), holder["name"]))["spec"]
        except NotFound:
            return True
        return bool(other["desiredState"] != ACTIVE or other["revision"] < revision["spec"]["revision"])

    def _owned(self, obj: Object, revision: Object) -> Object:
        metadata, spec = revision["metadata"], revision["spec"]
        package = next(each for each in metadata["ownerReferences"] if each.get("controller"))
        kind = gvk_of(revision)
        owners = [
            _owner(kind, metadata["name"], metadata["uid"], controller=True),
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
                "labels": {**(about.get("labels") or {}), **(spec.get("commonLabels") or {})},
                "annotations": {**(about.get("annotations") or {}), **(spec.get("commonAnnotations") or {})},
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


def _unpinned(image: str, spec: Mapping[str, Any]) -> str:
    """The image as the package names it, after rules; a digest that only we know of is left out."""
    return image if "@" in str(spec["package"]) else image.partition("@")[0]


def _policy(spec: Mapping[str, Any]) -> str:
    return str(spec.get("packagePullPolicy") or "IfNotPresent")


def _secrets(spec: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(each["name"]) for each in spec.get("packagePullSecrets") or ())
