"""planform's own release is a change like any other: where a policy holds a Composition, what it changes waits.

Every process that composes XRs asks here before it carries out for an XR what only another version of a built-in
function wants. The first one that asks makes a Rollout of cause `release`, which has a Preview and is judged, approved
or aborted as any other; it moves nobody, since there is no revision to move to and no way back to a program that is
gone. Once it is completed, all XRs follow. XRs for which the release changes nothing never ask.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from planform.api.authors import authority_annotations
from planform.api.kinds import Object
from planform.api.metadata import name_of
from planform.api.names import COMPOSITION_REVISION, ROLLOUT, ROLLOUT_FINALIZER, ROLLOUT_POLICY
from planform.api.rollouts import FINAL
from planform.apimachinery.names import LABEL_LENGTH, child_name
from planform.builtin import BuiltinName
from planform.compositions.live_rollouts import LiveRollouts, RolloutChange
from planform.compositions.released import verdict_of
from planform.compositions.revisions import is_revision_of, newest_first, number_of
from planform.compositions.selection import is_released
from planform.errors import AlreadyExists, NotFound
from planform.functions.sending import digest_of
from planform.reconcile.context import ControllerContext
from planform.rollouts.starting import COMPOSITION_LABEL
from planform.rollouts.xr_facts import MANAGER
from planform.xrs.live_compositions import LiveCompositions

MAX_ATTEMPTS: Final = 100
_WAITS: Final = 'waits for Rollout "{name}": planform rollout status {name}'
_logger = logging.getLogger(__name__)


def release_id(builtins: Iterable[BuiltinName], versions: Mapping[str, str]) -> str:
    """What tells releases apart as far as XRs can notice: the versions of the built-in functions."""
    known = sorted((each.name, versions.get(each.name, each.version)) for each in builtins)
    return digest_of([list(each) for each in known]).hex()[:8]


class ReleaseRollouts:
    """A ReleaseGate. `release` is the `release_id` of this process."""

    def __init__(
        self, context: ControllerContext, rollouts: LiveRollouts, compositions: LiveCompositions, release: str
    ) -> None:
        self._context = context
        self._client = context.client
        self._rollouts = rollouts
        self._compositions = compositions
        self._release = release
        self._waiting: set[str] = set()
        self._listens = False

    async def admits(self, composition: str, controller: str, /) -> str:
        if not self._listens:
            self._listens = True
            self._rollouts.start()
            self._rollouts.subscribe(self._changed)
        await self._rollouts.synced()
        known = self._compositions.get(composition)
        policy = self._rollouts.policy(known)[0] if known is not None else None
        if known is None or policy is None:
            return ""
        self._waiting.add(controller)
        for attempt in range(1, MAX_ATTEMPTS + 1):
            name = release_name(composition, self._release, attempt)
            if name not in self._rollouts.rollouts:
                return await self._begin(name, known, policy.metadata.name, attempt)
            actions = self._rollouts.actions(name)
            verdict, _ = verdict_of(actions)
            if verdict == "Completed":
                return ""
            again = verdict == "Superseded" or any(each.spec.action == "Retry" for each in actions)
            if verdict == "Active" or not again:
                break
        return _WAITS.format(name=name)

    async def _begin(self, name: str, composition: Object, policy: str, attempt: int) -> str:
        active = [each for each in self._rollouts.of(name_of(composition)) if each.phase not in FINAL]
        if active:
            return f'waits until Rollout "{active[0].metadata.name}" is through'
        found = await self._compositions.revisions(name_of(composition))
        ours = newest_first(each for each in found if is_revision_of(each, *_identity(composition)))
        if not ours or not is_released(ours[0]):
            return "waits until the newest revision is released"
        try:
            held = await self._client.get(ROLLOUT_POLICY, policy)
            wanted = new_release(name, composition, ours[0], held, self._release, attempt)
            await self._client.create(wanted, manager=MANAGER)
        except (AlreadyExists, NotFound):
            pass  # another process was first, or the policy has just gone: the watch tells
        return _WAITS.format(name=name)

    def _changed(self, change: RolloutChange) -> None:
        """Have XRs that wait looked at again whenever something was decided."""
        for name in self._waiting:
            try:
                self._context.manager.revisit(name)
            except KeyError:
                _logger.debug("controller %s has been stopped", name)


def release_name(composition: str, release: str, attempt: int) -> str:
    """`db-release-0b1c2d3e`, and a number behind it for another attempt."""
    name = f"{composition}-release-{release}" + (f"-{attempt}" if attempt > 1 else "")
    return name if len(name) <= LABEL_LENGTH else child_name(composition, release, str(attempt))


def new_release(name: str, composition: Object, newest: Object, policy: Object, release: str, attempt: int) -> Object:
    """The Rollout of this release of planform for one Composition."""
    metadata = composition["metadata"]
    change: Object = {
        "composition": metadata["name"],
        "uid": metadata["uid"],
        "to": name_of(newest),
        "toNumber": number_of(newest),
        "cause": {"release": release},
    }
    owner = {
        "apiVersion": COMPOSITION_REVISION.api_version,
        "kind": COMPOSITION_REVISION.kind,
        "name": name_of(newest),
        "uid": newest["metadata"]["uid"],
    }
    annotations = authority_annotations(policy)
    return {
        "apiVersion": ROLLOUT.api_version,
        "kind": ROLLOUT.kind,
        "metadata": {
            "name": name,
            "labels": {COMPOSITION_LABEL: metadata["name"][:LABEL_LENGTH].rstrip("-.")},
            "ownerReferences": [owner],
            "finalizers": [ROLLOUT_FINALIZER],
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": {
            "policy": name_of(policy),
            "changes": [change],
            "attempt": attempt,
            "previewRef": {"name": name},
            "strategy": {key: value for key, value in policy["spec"].items() if key != "for"},
        },
    }


def _identity(composition: Object) -> tuple[str, str]:
    return name_of(composition), str(composition["metadata"]["uid"])
