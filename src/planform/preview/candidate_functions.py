"""Which function revisions serve on either side of a preview, and having those serve that only the candidate calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, replace

from planform.api.kinds import Object
from planform.api.names import FUNCTION_REVISION, PACKAGE_LABEL
from planform.client.informer import list_pages
from planform.client.protocol import Client
from planform.errors import NotFound, PlanformError
from planform.functions.resolution import Catalogue, Resolution, Version
from planform.pipeline.pipeline import StepResolver, resolver_for
from planform.pipeline.steps import Step
from planform.preview.subtraction import CannotPreview


@dataclass(frozen=True)
class InstalledFunctions:
    """Those of a control plane. `temporary_activation` has a revision run while its block does."""

    client: Client
    catalogue: Callable[[], Catalogue]
    temporary_activation: Callable[[str], AbstractAsyncContextManager[None]]
    selectors_enabled: bool = True

    def resolver(self) -> StepResolver:
        return resolver_for(self.catalogue(), selectors_enabled=self.selectors_enabled)

    async def candidate(
        self,
        stack: AsyncExitStack,
        *,
        packages: Mapping[str, str],
        revisions: Mapping[str, str],
        removed: Collection[str],
    ) -> StepResolver:
        """How steps are resolved with these packages or revisions of functions in force; what they need runs until the
        stack is closed. A package that is not installed makes XRs that need it impossible to preview."""
        catalogue, missing = self.catalogue(), dict[str, str]()
        chosen = dict(revisions)
        for function, package in packages.items():
            found = await self._installed(function, package)
            if found is not None:
                chosen[function] = found["metadata"]["name"]
            elif not _stands_in(catalogue, function, package):
                missing[function] = (
                    f'package {package} of function "{function}" is not installed here: install it with'
                    " revisionActivationPolicy: Manual, or give the preview a running one with --function"
                )
        for function, name in chosen.items():
            version = next((each for each in catalogue.versions(function) if each.id == name), None)
            if version is None:
                raise NotFound(f'function "{function}" has no revision "{name}"')
            if not (version.active and version.reachable):
                try:
                    await stack.enter_async_context(self.temporary_activation(name))
                except PlanformError as error:
                    missing[function] = f"{error}; {error.hint}" if error.hint else str(error)
        return _refusing(
            resolver_for(
                changed_catalogue(self.catalogue(), chosen, removed), selectors_enabled=self.selectors_enabled
            ),
            missing,
        )

    async def _installed(self, function: str, package: str) -> Object | None:
        """The newest revision of the function that is of this package."""
        found: list[Object] = []
        async for page in list_pages(self.client, FUNCTION_REVISION, labels=f"{PACKAGE_LABEL}={function}"):
            found += [each for each in page.items if (each["spec"] or {}).get("image") == package]
        return max(found, key=lambda each: int(each["spec"].get("revision") or 0), default=None)


def changed_catalogue(catalogue: Catalogue, chosen: Mapping[str, str], removed: Collection[str]) -> Catalogue:
    """The catalogue with these revisions in front of all others of their functions, and without these functions."""
    versions: list[Version] = []
    for function in catalogue.functions:
        if function in removed:
            continue
        known = catalogue.versions(function)
        highest = max((each.number for each in known), default=0)
        for each in known:
            if each.id == chosen.get(function):
                each = replace(each, number=highest + 1, active=True, ready=True, reachable=True)
            versions.append(each)
    return Catalogue(versions)


def _stands_in(catalogue: Catalogue, function: str, package: str) -> bool:
    """Whether a function that ships with planform answers for this package."""
    versions = catalogue.versions(function)
    name = package.partition("@")[0].rpartition("/")[2].partition(":")[0]
    return any(not each.number for each in versions) and function == name


def _refusing(resolver: StepResolver, missing: Mapping[str, str]) -> StepResolver:
    def resolve(step: Step) -> Resolution:
        if step.function in missing:
            raise CannotPreview(missing[step.function])
        return resolver(step)

    return resolve if missing else resolver
