"""Keeps the phase functions of a control plane in step with the packages that are installed.

Those are the Functions whose package says `capabilities: [phase]`; `packaged_calls` says how a phase calls one. As long
as there is none, nothing of phase functions is loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from planform.blueprints.actions import PhaseFunctions
from planform.functions.resolution import Version
from planform.packages.function_catalogue import LiveFunctions
from planform.pipeline.running import Pipelines

CAPABILITY: Final = "phase"

_logger = logging.getLogger(__name__)


class PackagedPhases:
    """Brings the active revisions of such Functions to the registry, and takes those away that are so no longer."""

    def __init__(self, functions: LiveFunctions, pipelines: Pipelines, phases: PhaseFunctions) -> None:
        self._functions = functions
        self._pipelines = pipelines
        self._phases = phases
        self._known: dict[str, tuple[Version, ...]] = {}

    def start(self) -> None:
        self._functions.subscribe(self._changed)
        self._changed(self._functions.catalogue.functions)

    def _changed(self, names: Iterable[str]) -> None:
        before = dict(self._known)
        for name in names:
            versions = self._functions.catalogue.versions(name)
            found = tuple(each for each in versions if each.active and each.can(CAPABILITY))
            if found:
                self._known[name] = found
            else:
                self._known.pop(name, None)
        if self._known != before:
            self._bring()

    def _bring(self) -> None:
        from planform.blueprints.errors import RegistrationRefused
        from planform.blueprints.packaged_calls import PackagedCalls

        calls = PackagedCalls(self._pipelines, self._functions)
        try:
            self._phases.registry.bring(each for found in self._known.values() for each in calls.declared(found))
        except RegistrationRefused as error:
            _logger.error("phase functions of packages are not up to date: %s", error)
