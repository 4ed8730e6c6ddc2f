"""The candidate side: what is live with a change in force, and what the change can reach."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from planform.api.kinds import Object, gvk_of
from planform.api.names import COMPOSITION, EXTENSIONS_GROUP, FUNCTION, PACKAGES_GROUP, XRD
from planform.api.previews import PreviewedChange
from planform.client.protocol import Client
from planform.errors import ApiError, BadRequest, Forbidden, Invalid, NotFound, PlanformError, UsageError
from planform.functions.resolution import Resolution
from planform.functions.sending import digest_of
from planform.pipeline.modes import pipeline_of
from planform.pipeline.pipeline import StepResolver
from planform.pipeline.random_keys import MANAGER as RANDOM_KEYS_MANAGER
from planform.pipeline.steps import Step, parse_pipeline
from planform.preview.dry_runs import DryRuns
from planform.preview.overlay import Place, place_of
from planform.preview.schema_changes import readers, removed_paths
from planform.preview.sides import Side, composed_type

MANAGER: Final = "planform-preview"
"""The field manager of dry runs of manifests that nobody has applied yet."""
_UNREACHABLE: Final = frozenset({"Provider", "Configuration", "ImageConfig", "DeploymentRuntimeConfig"})
"""Packages' own kinds: what they bring is not looked into."""


class Functions(Protocol):
    """Resolves steps on both sides."""

    def resolver(self) -> StepResolver: ...

    async def candidate(
        self,
        stack: AsyncExitStack,
        *,
        packages: Mapping[str, str],
        revisions: Mapping[str, str],
        removed: Collection[str],
    ) -> StepResolver: ...


@dataclass
class Reach:
    """What a change can reach. An XR counts as reached if it runs another revision or other functions than before, or
    if anything else of this holds for it."""

    definitions: dict[str, Object] = field(default_factory=dict)
    """XRDs that are changed, by kind and group."""
    xrs: dict[Place, Object | None] = field(default_factory=dict)
    """XRs that are changed; None for one that is deleted."""
    compositions: set[str] = field(default_factory=set)
    function: str = ""
    """Whose steps are compared wherever they are."""
    only: str = ""
    """The one Composition whose XRs a release is looked at for; empty for all."""
    others: list[str] = field(default_factory=list)
    """Objects that any pipeline may read."""
    refused: dict[Place, PlanformError] = field(default_factory=dict)
    """Manifests that the API server would refuse."""
    findings: list[str] = field(default_factory=list)
    release: bool = False
    """Whether XRs with built-in functions are compared with what is there, which another release made of them."""


async def candidate_of(
    change: PreviewedChange, baseline: Side, live: DryRuns, functions: Functions, stack: AsyncExitStack
) -> tuple[Side, Reach]:
    """The candidate side. Raises UsageError, BadRequest or NotFound for a change that makes no sense.

    A change from one function revision to another changes what the baseline calls, too.
    """
    side, reach = baseline.copy(), Reach()
    packages: dict[str, str] = {}
    revisions: dict[str, str] = {}
    removed: set[str] = set()
    for manifest in change.manifests or ():
        await _add(_checked(manifest), side, reach, live, packages)
    for reference in change.deleted or ():
        _remove(reference, side, reach, removed)
    for revision in change.all_revisions:
        known = [each["metadata"]["name"] for each in side.revisions.get(revision.composition, ())]
        if revision.name not in known:
            raise NotFound(f'composition "{revision.composition}" has no revision "{revision.name}"')
        side.with_revision(revision.composition, revision.name)
        reach.compositions.add(revision.composition)
    if change.function_revision and change.function_revision.from_:
        named = change.function_revision
        reach.function = named.function
        baseline.resolver = await _calling(named.function, named.from_, functions, stack)
        side.resolver = await _calling(named.function, named.name, functions, stack)
    elif change.function_revision:
        revisions[change.function_revision.function] = change.function_revision.name
    if change.release:
        reach.release, reach.only = True, change.release.composition
    if packages or revisions or removed:
        side.resolver = await functions.candidate(stack, packages=packages, revisions=revisions, removed=removed)
    return side, reach


async def _calling(function: str, revision: str, functions: Functions, stack: AsyncExitStack) -> StepResolver:
    """Steps of the function call this revision, whatever they select."""
    resolver = await functions.candidate(stack, packages={}, revisions={function: revision}, removed=())

    def resolve(step: Step) -> Resolution:
        return resolver(replace(step, revision_ref="", revision_selector=None) if step.function == function else step)

    return resolve


def change_digest(change: PreviewedChange) -> str:
    parts = [change.manifests or [], change.deleted or []]
    named = [
        [name for each in change.all_revisions for name in (each.composition, each.name)],
        [change.function_revision.function, change.function_revision.name] if change.function_revision else [],
    ]
    if change.function_revision and change.function_revision.from_:
        named.append([change.function_revision.from_])
    if change.release:
        named.append(["release", change.release.planform, change.release.composition])
    return f"sha256:{digest_of([*parts, *named]).hex()}"


async def _add(manifest: Object, side: Side, reach: Reach, live: DryRuns, packages: dict[str, str]) -> None:
    kind, name = gvk_of(manifest), manifest["metadata"]["name"]
    if (kind.group, kind.kind) == (EXTENSIONS_GROUP, COMPOSITION.kind):
        composition = await _as_stored(manifest, side, reach, live)
        _check_pipeline(composition, reach)
        side.with_composition(composition)
        reach.compositions.add(name)
    elif (kind.group, kind.kind) == (EXTENSIONS_GROUP, XRD.kind):
        xrd = await _as_stored(manifest, side, reach, live)
        before = dict(side.definitions)
        definition = side.with_definition({**xrd, "apiVersion": XRD.api_version})
        reach.definitions[definition.group_kind] = xrd
        if old := before.get(definition.group_kind):
            its = (definition.kind.group, definition.kind.kind)
            ours = [each for each in side.compositions.values() if composed_type(each) == its]
            reach.findings += readers(ours, removed_paths(old, definition))
    elif (kind.group, kind.kind) == (PACKAGES_GROUP, FUNCTION.kind):
        packages[name] = str((manifest.get("spec") or {}).get("package") or "")
    elif kind.group == PACKAGES_GROUP and kind.kind in _UNREACHABLE:
        reach.findings.append(f"{kind.kind} {name}: what the package brings is not looked into")
    elif side.definition_of(manifest) is not None:
        xr = await _as_stored(manifest, side, reach, live)
        reach.xrs[place_of(manifest)] = side.client.put(xr)
    else:
        side.client.put(await _as_stored(manifest, side, reach, live))
        reach.others.append(f"{kind.kind} {name}")


async def _as_stored(manifest: Object, side: Side, reach: Reach, live: DryRuns) -> Object:
    """What the API server would store. One that refuses it is remembered, and the manifest goes on as it is."""
    try:
        found = await _found(manifest, live.client)
        if found is not None and gvk_of(manifest).group == EXTENSIONS_GROUP:
            # An apply by another manager would leave what the manifest no longer has.
            return await live.update(_replaced(found, manifest), manager=MANAGER)
        return await live.apply(manifest, manager=_applier(found))
    except (Forbidden, NotFound) as error:
        if isinstance(error, Forbidden):
            reach.findings.append(
                f"{manifest['kind']} {manifest['metadata']['name']} was not sent through a dry run: {error}"
            )
    except (Invalid, BadRequest) as error:
        reach.refused[place_of(manifest)] = error
        reach.findings.append(f"{manifest['kind']} {manifest['metadata']['name']} would be refused: {error}")
    except ApiError as error:
        reach.findings.append(f"{manifest['kind']} {manifest['metadata']['name']} could not be checked: {error}")
    try:
        found = await _found(manifest, side.client)
    except Forbidden:
        return manifest
    return manifest if found is None else _replaced(found, manifest)


async def _found(manifest: Object, client: Client) -> Object | None:
    metadata = manifest["metadata"]
    try:
        return await client.get(gvk_of(manifest), metadata["name"], namespace=metadata.get("namespace") or "")
    except NotFound:
        return None


def _replaced(found: Object, manifest: Object) -> Object:
    """What is there with the manifest's fields instead of its own; labels and annotations are added."""
    metadata = {**found["metadata"], **manifest["metadata"]}
    for name in ("labels", "annotations"):
        if merged := {**(found["metadata"].get(name) or {}), **(manifest["metadata"].get(name) or {})}:
            metadata[name] = merged
    metadata["resourceVersion"] = found["metadata"].get("resourceVersion", "")
    return {**found, **manifest, "metadata": metadata}


def _applier(found: Object | None) -> str:
    """Whose apply a manifest takes the place of, so that fields which it no longer has go: whoever applied last."""
    entries = ((found or {}).get("metadata") or {}).get("managedFields") or ()
    theirs = [
        each
        for each in entries
        if each.get("operation") == "Apply" and not each.get("subresource") and not _is_ours(str(each["manager"]))
    ]
    return str(max(theirs, key=lambda each: str(each.get("time") or ""))["manager"]) if theirs else MANAGER


def _is_ours(manager: str) -> bool:
    """Whether the control plane applies by this name."""
    return "crossplane.io/" in manager or manager == RANDOM_KEYS_MANAGER


def _check_pipeline(composition: Mapping[str, Any], reach: Reach) -> None:
    name = composition["metadata"]["name"]
    try:
        spec = composition["spec"]
        parse_pipeline({**spec, "pipeline": pipeline_of(spec, name)})
    except PlanformError as error:
        reach.findings.append(f'Composition "{name}": {error}')


def _remove(reference: Object, side: Side, reach: Reach, removed: set[str]) -> None:
    obj = _checked({**reference, "metadata": {"name": reference.get("name"), "namespace": reference.get("namespace")}})
    kind, name = gvk_of(obj), obj["metadata"]["name"]
    if (kind.group, kind.kind) == (EXTENSIONS_GROUP, COMPOSITION.kind):
        side.without_composition(name)
        reach.compositions.add(name)
    elif (kind.group, kind.kind) == (EXTENSIONS_GROUP, XRD.kind):
        for group_kind, definition in side.definitions.items():
            if definition.name == name:
                reach.definitions[group_kind] = {}
        side.without_definition(name)
    elif (kind.group, kind.kind) == (PACKAGES_GROUP, FUNCTION.kind):
        removed.add(name)
    elif side.definition_of(obj) is not None:
        reach.xrs[place_of(obj)] = None
    else:
        reach.others.append(f"{kind.kind} {name}")
    side.client.remove(obj)


def _checked(manifest: Object) -> Object:
    metadata = manifest.get("metadata")
    if not manifest.get("apiVersion") or not manifest.get("kind"):
        raise UsageError("a manifest has no apiVersion or kind", hint="every document of a file is one object")
    if not isinstance(metadata, dict) or not metadata.get("name"):
        raise UsageError(
            f"a {manifest['kind']} has no metadata.name", hint="a preview needs to know which one is meant"
        )
    return {**manifest, "metadata": {key: value for key, value in metadata.items() if value is not None}}
