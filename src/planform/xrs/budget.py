"""The deletion budget: a desired state that suddenly shrinks stops for a human instead of deleting.

A function that lost its mind, an input that vanished or a typo in a template all look like "desire nothing any more".
So a reconcile that would delete everything without anybody having changed the XR waits until somebody confirms exactly
that set of deletions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from planform.api.annotations import annotations_of
from planform.api.metadata import is_deleted, uid_of
from planform.api.xr import listed
from planform.errors import PlanformError
from planform.pipeline.plan import Deletion, Plan

CONFIRM_ANNOTATION: Final = "planform.dev/confirm-deletion"


class DeletionBudgetExceeded(PlanformError):
    """A reconcile would delete more than it may without a human's word. `token` is what confirms it."""

    reason = "DeletionBudgetExceeded"

    def __init__(self, message: str, token: str) -> None:
        super().__init__(message)
        self.token = token
        self.hint = f"if this is meant, annotate the XR with {CONFIRM_ANNOTATION}={token}"


def check_budget(
    xr: Mapping[str, Any],
    decided: Plan,
    *,
    observed: Mapping[str, Mapping[str, Any]],
    answered_nothing: bool,
    spec_changed: bool | None,
    max_share: int | None = None,
) -> None:
    """Pass, or raise DeletionBudgetExceeded.

    `observed` are all composed resources that exist, by key; one that is being deleted already counts neither there nor
    among those that would vanish. `answered_nothing`: the last step returned no desired state at all. `spec_changed`:
    the XR's generation is not the one that was last carried out; None if that one is not known, as of an XR which
    another control plane has composed: nothing says then that anybody meant it. `max_share` is the Composition's own
    limit: so many percent of the existing resources may go in one reconcile.
    """
    doomed = [one for one in decided.delete if not _is_going(one.object)]
    there = {key for key, obj in observed.items() if not _is_going(obj)}
    if not doomed:
        return
    why = ""
    if answered_nothing:
        why = "the last step returned no desired state at all"
    elif not spec_changed and len(there) > 1 and {one.key for one in doomed} >= there:
        known = "although the XR did not change" if spec_changed is False else "and whether the XR changed is not known"
        why = f"all composed resources would vanish {known}"
    if not why and max_share is not None and len(doomed) * 100 > max_share * len(there):
        why = f"{len(doomed)} of {len(there)} composed resources would vanish, more than {max_share} %"
    if not why:
        return
    token = confirmation_of(doomed)
    if annotations_of(xr).get(CONFIRM_ANNOTATION) == token:
        return
    names = listed([one.key for one in doomed])
    raise DeletionBudgetExceeded(f"nothing was deleted: {why} ({names})", token)


def _is_going(obj: Mapping[str, Any]) -> bool:
    return is_deleted(obj)


def confirmation_of(doomed: Sequence[Deletion]) -> str:
    """A word for exactly these deletions: confirming one set does not confirm another."""
    lines = sorted(f"{one.key} {uid_of(one.object)}" for one in doomed)
    return sha256("\n".join(lines).encode()).hexdigest()[:12]
