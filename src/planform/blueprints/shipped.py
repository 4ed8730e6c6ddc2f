"""The functions of this build as one catalogue: those that come with planform, and those that plug-ins bring."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint
from pathlib import Path

from planform.blueprints.catalogue import PhaseCatalogue
from planform.blueprints.functions import Policy, builtin_functions
from planform.blueprints.registry import PhaseFunctionRegistry, installed_plugins


def shipped_catalogue(
    *,
    overlay: Path | None = None,
    policy: Policy | None = None,
    plugins: Callable[[], Iterable[EntryPoint]] = installed_plugins,
    registry: PhaseFunctionRegistry | None = None,
) -> PhaseCatalogue:
    """Raises VersionsInvalid if the build contradicts its own versions file; a broken `overlay` is only told.

    With a `registry`, others may bring functions to it too; it has `plugins` of its own.
    """
    registry = registry if registry is not None else PhaseFunctionRegistry(plugins)
    registry.register(builtin_functions(policy))
    catalogue = PhaseCatalogue(registry)
    if overlay is not None:
        catalogue.follow(overlay)
    return catalogue
