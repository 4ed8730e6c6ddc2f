"""Policies, Rollouts and fleets in a line or two, on whichever engine a test runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planform.api.kinds import Object
from planform.api.names import COMPOSITION, ROLLOUT, ROLLOUT_ACTION, ROLLOUT_POLICY
from planform.client.protocol import Patch, PatchType
from tests.controllers.composing import Platform, config_map, from_xr, script, templates
from tests.harness.contexts import condition_of, eventually

BAD = "def main(req):\n    fail('broken on purpose')\n"
"""A step that no XR gets on with."""


def good(text: str) -> Object:
    """A step that composes one ConfigMap which says this."""
    return templates(config_map("it", from_xr("metadata.name", "data.xr"), version=text))


def bad() -> Object:
    return script(BAD)


async def policy(platform: Platform, name: str = "", **spec: Any) -> Object:
    """A policy for the platform's Composition."""
    composition = f"{platform.unique}-apps"
    spec.setdefault("for", {"compositions": {"names": [composition]}})
    wanted = {
        "apiVersion": ROLLOUT_POLICY.api_version,
        "kind": ROLLOUT_POLICY.kind,
        "metadata": {"name": name or f"{platform.unique}-policy"},
        "spec": spec,
    }
    return await platform.client.apply(wanted, manager="author", force=True)


async def fleet(platform: Platform, count: int, labels: Mapping[int, Mapping[str, str]] | None = None) -> list[Object]:
    """So many XRs that are ready."""
    xrs = []
    for number in range(count):
        xr = platform.xr(f"x{number:03}")
        xr["metadata"]["labels"] = dict((labels or {}).get(number, {}))
        xrs.append(await platform.client.create(xr))
    for xr in xrs:
        await platform.ready(xr)
    return xrs


async def rollouts(platform: Platform) -> list[Object]:
    """Those of the platform's Composition, the oldest first."""
    composition = f"{platform.unique}-apps"
    listed = await platform.client.list(ROLLOUT)
    ours = [each for each in listed.items if each["spec"]["changes"][0]["composition"] == composition]
    return sorted(ours, key=lambda each: (each["spec"]["changes"][0]["toNumber"], each["spec"].get("attempt", 1)))


async def until_phase(platform: Platform, phase: str, *, revision: str = "", attempt: int = 1) -> Object:
    """Wait until the Rollout to this revision, or the latest, is in this phase; gives it as it is then."""
    seen: list[Any] = []

    async def look() -> Object | None:
        found = [
            each
            for each in await rollouts(platform)
            if revision in ("", each["spec"]["changes"][0]["to"]) and each["spec"].get("attempt", 1) >= attempt
        ]
        seen[:] = [(each["metadata"]["name"], each.get("status")) for each in found[-1:]]
        return found[-1] if found and (found[-1].get("status") or {}).get("phase") == phase else None

    try:
        return await eventually(look, f"a Rollout is {phase}", seconds=30)
    except (AssertionError, TimeoutError) as error:
        raise AssertionError(f"no Rollout is {phase}: {seen}") from error


async def act(platform: Platform, rollout: Object, action: str, **spec: Any) -> Object:
    return await platform.client.create(
        {
            "apiVersion": ROLLOUT_ACTION.api_version,
            "kind": ROLLOUT_ACTION.kind,
            "metadata": {"generateName": f"{rollout['metadata']['name']}-{action.lower()}-"},
            "spec": {"rollout": rollout["metadata"]["name"], "action": action, **spec},
        }
    )


def revision_of(xr: Object) -> str:
    return str(((xr["spec"].get("crossplane") or {}).get("compositionRevisionRef") or {}).get("name") or "")


async def revisions_used(platform: Platform, xrs: Sequence[Object]) -> list[str]:
    return [revision_of(await platform.get(xr)) for xr in xrs]


async def all_on(platform: Platform, xrs: Sequence[Object], revision: Object) -> None:
    wanted = revision["metadata"]["name"]

    async def there() -> bool:
        return set(await revisions_used(platform, xrs)) == {wanted}

    await eventually(there, f"all XRs are on {wanted}", seconds=30)


def release(revision: Object) -> tuple[str, str] | None:
    found = condition_of(revision, "Released")
    return None if found is None else (found["status"], found["reason"])


async def releases(platform: Platform) -> list[tuple[str, str] | None]:
    """What the revisions say of their release, the oldest number first."""
    return [release(each) for each in await platform.revisions()]


async def composition_condition(platform: Platform, type_: str) -> Object | None:
    found = await platform.client.get(COMPOSITION, f"{platform.unique}-apps")
    return condition_of(found, type_)


async def patch(platform: Platform, xr: Object, body: Object) -> Object:
    return await platform.client.patch(
        platform.kind, xr["metadata"]["name"], Patch(PatchType.MERGE, body), namespace=platform.namespace
    )
