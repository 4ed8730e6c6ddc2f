"""What of a control plane's Rollouts another one would not understand.

To Crossplane the condition `Released` means nothing: it would move every XR that follows by itself to the newest
revision at once. So whatever moves a control plane elsewhere asks here first, and only force goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planform.api.kinds import GroupVersionKind, Object
from planform.api.metadata import name_of
from planform.api.names import COMPOSITION_REVISION, ROLLOUT
from planform.api.owners import controller_of
from planform.api.rollouts import FINAL
from planform.api.xr import listed
from planform.client.informer import list_pages
from planform.client.protocol import Client
from planform.compositions.revisions import number_of
from planform.compositions.selection import release_of
from planform.errors import NotFound, PlanformError


class RolloutsUnderWay(PlanformError):
    """Somebody else would move all XRs at once to what a Rollout moves in waves."""

    reason = "RolloutsUnderWay"

    def __init__(self, rollouts: Sequence[str], held: Sequence[str] = ()) -> None:
        found = [f"Rollouts {listed(rollouts)} are under way"] if rollouts else []
        if held:
            found.append(f"the newest revisions of Compositions {listed(held)} are not released")
        words = "Crossplane knows nothing of that, and would move all XRs to the newest revisions at once"
        super().__init__(f"{' and '.join(found)}: {words}")
        self.rollouts, self.held = tuple(rollouts), tuple(held)
        first = f"planform rollout status {rollouts[0]}" if rollouts else "planform rollout list"
        self.hint = f"see {first}; let them end, or go on with --force"


def active(rollouts: Iterable[Object]) -> list[str]:
    """The names of those that have not come to an end."""
    return sorted(name_of(each) for each in rollouts if (each.get("status") or {}).get("phase") not in FINAL)


def unreleased(revisions: Iterable[Object]) -> list[str]:
    """The Compositions whose newest revision is not released."""
    newest: dict[str, Object] = {}
    for each in revisions:
        composition = str((controller_of(each) or {}).get("name") or "")
        if composition and number_of(each) >= number_of(newest.get(composition, each)):
            newest[composition] = each
    found = ((name, release_of(each)) for name, each in newest.items())
    return sorted(name for name, release in found if release is not None and release.withholds)


async def refuse_active(client: Client) -> None:
    """Raises RolloutsUnderWay if a Rollout is active."""
    if names := active(await _all(client, ROLLOUT)):
        raise RolloutsUnderWay(names)


async def refuse_unreleased(client: Client) -> None:
    """Raises RolloutsUnderWay if Crossplane would move XRs past what a policy holds."""
    names, held = active(await _all(client, ROLLOUT)), unreleased(await _all(client, COMPOSITION_REVISION))
    if names or held:
        raise RolloutsUnderWay(names, held)


async def _all(client: Client, kind: GroupVersionKind) -> list[Object]:
    try:
        return [each async for page in list_pages(client, kind) for each in page.items]
    except NotFound:
        return []  # the kind is not served here
