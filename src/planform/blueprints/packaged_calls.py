"""How a phase calls a function that a package brings.

It is called in its revision's own runtime and over gRPC, as a step of a pipeline calls it:

    input          the phase's arguments, rendered
    context        `planform.dev/phase`: the run, and what it is about
    credentials    the Secrets of the ActionSet and of the phase, by alias
    output         what the function answers is the phase's output
    results        a fatal one fails the phase, others are lines of its log

Its versions are the tags of its packages; of those that are active at once, the one that is marked stable, or else the
newest, is what phases run that name none. A function has no way to change objects here: it answers, others act.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from planform.api.metadata import name_of, namespace_of
from planform.blueprints.arguments import Arguments
from planform.blueprints.contract import UNVERSIONED, PhaseContext, PhaseFunction
from planform.blueprints.errors import PhaseFailed
from planform.blueprints.registry import version_text
from planform.client.waits import time_limit
from planform.functions.resolution import Resolution, Rule, Version
from planform.functions.semver import parse_semver
from planform.functions.values import Object, State
from planform.packages.function_catalogue import LiveFunctions
from planform.pipeline.running import Pipelines
from planform.pipeline.steps import Credential, Step

CONTEXT: Final = "planform.dev/phase"
MAX_CALL_SECONDS: Final = 3600.0
"""Seconds that a phase without a timeout waits for an answer."""
MAX_START_SECONDS: Final = 60.0
"""Seconds that it waits for a runtime that has just been started, as all are with the control plane."""


def by_tag(versions: Iterable[Version]) -> dict[str, Version]:
    """What each version that a phase may name means: of two with one tag the one that is active, or else the newer."""
    found: dict[str, Version] = {}
    for version in sorted(versions, key=lambda each: (each.active, each.number)):
        number = parse_semver(version.semver)
        found[UNVERSIONED if number is None else version_text(number)] = version
    return found


def followed(versions: Iterable[Version]) -> Version:
    """What phases run that name no version: the one marked stable, or else the newest, of those that are active if any
    is."""
    known = list(versions)
    return max([each for each in known if each.active] or known, key=lambda each: (each.is_stable, each.number))


@dataclass(frozen=True)
class PackagedCalls:
    """What it takes to call them: pipelines, and the functions there are."""

    pipelines: Pipelines
    functions: LiveFunctions

    def declared(self, versions: Iterable[Version]) -> Iterator[PhaseFunction]:
        """The active versions of one function as phases know them; of two with one tag, the newer."""
        tagged = by_tag(versions)
        stable = followed(tagged.values())
        for tag, version in tagged.items():
            yield PhaseFunction(
                name=version.function,
                run=partial(self._call, version),
                version=tag,
                stable=version is stable,
                arguments=None,
                labels=version.labels,
                description=f"Served by the package's revision {version.id}.",
            )

    async def _call(self, version: Version, context: PhaseContext, args: Arguments) -> Mapping[str, Any] | None:
        await self._served(version, context)
        step = Step(
            context.phase,
            version.function,
            input=dict(args),
            credentials=tuple(_credentials(context)),
            timeout=MAX_CALL_SECONDS,
        )
        outcome = await self.pipelines.run(
            [step],
            observed=State(),
            cached=False,
            context={CONTEXT: _about(context)},
            resolver=lambda _: Resolution(version, Rule.LOCK),
        )
        for each in outcome.results:
            context.log(each.result.message)
        if outcome.failure is not None:
            raise PhaseFailed(str(outcome.failure))
        if outcome.desired.resources:
            raise PhaseFailed(
                f"{version.function} wants objects applied, which a phase does not do",
                hint="run it in an Operation, which applies what its functions want",
            )
        calls = outcome.steps[-1].calls
        return calls[-1].response.output if calls else None

    async def _served(self, version: Version, context: PhaseContext) -> None:
        """Wait until the revision can be called."""
        changed = asyncio.Event()
        unsubscribe = self.functions.subscribe(lambda _: changed.set())
        try:
            async with time_limit(context.clock, MAX_START_SECONDS):
                while self.functions.endpoint(version.revision) is None:
                    await changed.wait()
                    changed.clear()
        except TimeoutError as error:
            raise PhaseFailed(f"{version.function}: revision {version.id} does not serve") from error
        finally:
            unsubscribe()


def _about(context: PhaseContext) -> Object:
    """Which run this is and what it is about. What is secret goes as credentials, and nowhere else."""
    target = context.params.get("Object") or {}
    return {
        "actionSet": context.actionset,
        "namespace": context.namespace,
        "uid": context.uid,
        "action": context.action,
        "phase": context.phase,
        "version": context.version,
        "attempt": context.attempt,
        "deferred": context.deferred,
        "time": context.params.get("Time") or "",
        "options": dict(context.params.get("Options") or {}),
        "object": {
            "apiVersion": target.get("apiVersion") or "",
            "kind": target.get("kind") or "",
            "name": name_of(target),
            "namespace": namespace_of(target),
        },
    }


def _credentials(context: PhaseContext) -> Iterator[Credential]:
    """The ActionSet's Secrets, and the phase's own, which come first where an alias is used twice."""
    own = context.params.get("DeferPhase" if context.deferred else "CurrentPhase") or {}
    secrets = {**(context.params.get("Secrets") or {}), **(own.get("Secrets") or {})}
    for alias, secret in sorted(secrets.items()):
        yield Credential(alias, str(secret["Namespace"]), str(secret["Name"]))
