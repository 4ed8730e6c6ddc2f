"""A preview that this process runs by itself: read-only, against any cluster with Crossplane, or in a snapshot.

Functions that ship with planform answer in this process; others are pulled with the caller's own registry credentials
and run here, or are where `--function` says. Nothing is written: dry-run applies are the only requests that are not
reads, and where even those are not allowed, objects are checked by their schemas alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from planform.api.kinds import GroupVersionKind, Object
from planform.api.metadata import name_of
from planform.api.names import COMPOSITION, COMPOSITION_REVISION, FUNCTION
from planform.api.previews import PreviewSpec
from planform.cli.functions.local import LocalFunction, functions_from, running, used_by
from planform.cli.functions.local_resolver import local_resolver
from planform.client.informer import list_pages
from planform.client.protocol import Client
from planform.clock import SystemClock
from planform.errors import Forbidden, NotFound, PlanformError
from planform.features import FeatureGates
from planform.functions.cache import ResponseCache
from planform.pipeline.pipeline import StepResolver
from planform.pipeline.running import ClientReader, Pipelines, SecretCredentials
from planform.preview.sessions import Findings, open_previewer, run_preview

Progress = Callable[[Findings], None]


@dataclass(frozen=True)
class LocalFunctions:
    """Functions that run here: those of the cluster, and on the candidate's side those that the change names."""

    live: Sequence[LocalFunction]
    candidate_ones: Sequence[LocalFunction]

    def resolver(self) -> StepResolver:
        return local_resolver(self.live)

    async def candidate(
        self,
        stack: AsyncExitStack,
        *,
        packages: Mapping[str, str],
        revisions: Mapping[str, str],
        removed: Collection[str],
    ) -> StepResolver:
        changed = {each.name for each in self.candidate_ones}
        kept = [each for each in self.live if each.name not in changed and each.name not in removed]
        return local_resolver([*kept, *self.candidate_ones])


async def preview_here(
    client: Client,
    spec: PreviewSpec,
    *,
    overrides: Sequence[str] = (),
    dry_run: bool = True,
    progress: Progress | None = None,
) -> tuple[Findings, list[str]]:
    """Run it; gives what was found, and what was missing to find more."""
    notes: list[str] = []
    async with (
        _functions(client, spec, overrides, notes) as (functions, pipelines),
        open_previewer(
            spec,
            client=client,
            functions=functions,
            pipelines=pipelines,
            features=FeatureGates({}),
            dry_run=dry_run,
            ask_first=True,
        ) as previewer,
    ):

        async def tell(findings: Findings) -> None:
            if progress is not None:
                progress(findings)

        findings = await run_preview(previewer, spec.scope, progress=tell)
    unchecked = {why for entry in findings.entries for each in entry.unchecked for why in [each.partition(": ")[2]]}
    notes += [f"some objects were not sent through a dry run: {why}" for why in sorted(unchecked)]
    return findings, notes


@asynccontextmanager
async def _functions(
    client: Client, spec: PreviewSpec, overrides: Sequence[str], notes: list[str]
) -> AsyncIterator[tuple[LocalFunctions, Pipelines]]:
    named = {text.partition("=")[0] for text in overrides}
    installed = await _listed(client, FUNCTION, notes)
    changed = [each for each in spec.change.manifests or () if each.get("kind") == FUNCTION.kind]
    compositions = [*await _listed(client, COMPOSITION_REVISION, notes), *await _listed(client, COMPOSITION, notes)]
    compositions += [each for each in spec.change.manifests or () if each.get("kind") == COMPOSITION.kind]
    live = _known([each for each in installed if name_of(each) not in named], overrides, notes)
    used = used_by(compositions, live)
    candidates = [
        each
        for each in _known(changed, (), notes)
        if (each.name, each.where) not in {(known.name, known.where) for known in used}
    ]
    clock = SystemClock()
    async with running([*used, *_renamed(candidates)]) as runner:
        pipelines = Pipelines(
            resolver=lambda _capability: local_resolver(used),
            runner=runner,
            reader=ClientReader(client),
            credentials=SecretCredentials(client),
            clock=clock,
            cache=ResponseCache(clock),
        )
        yield LocalFunctions(used, _renamed(candidates)), pipelines


def _renamed(candidates: Sequence[LocalFunction]) -> list[LocalFunction]:
    """Candidates serve beside what is live, so they need ids of their own."""
    return [replace(each, revision=f"{each.name}-candidate", any_revision=True) for each in candidates]


def _known(documents: Sequence[Object], overrides: Sequence[str], notes: list[str]) -> list[LocalFunction]:
    """Those of the documents that can be run here; the others are named once."""
    found = functions_from([], overrides)
    for document in documents:
        try:
            found += functions_from([document], ())
        except PlanformError as error:
            notes.append(f'function "{name_of(document)}" cannot be run here: {error}')
    return found


async def _listed(client: Client, kind: GroupVersionKind, notes: list[str]) -> list[Object]:
    try:
        return [each async for page in list_pages(client, kind) for each in page.items]
    except NotFound:
        return []
    except Forbidden as error:
        notes.append(f"{error}; grant it with a ClusterRole that may get and list it")
        return []
