"""Choosing an XR's Composition and revision, and what has to be written about the choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

import msgspec

from planform.api.kinds import Object
from planform.api.metadata import created_at, uid_of
from planform.api.xr import composition_fields
from planform.client.informer import ObjectKey
from planform.clock import Clock
from planform.compositions.selection import (
    PipelineNotValid,
    Policy,
    RevisionChoice,
    SelectionError,
    check_revision,
    choose_composition,
    choose_revision,
    is_released,
    is_validated,
    named_composition,
    release_of,
)
from planform.errors import PlanformError
from planform.xrs.connections import default_secret
from planform.xrs.index import ANY_COMPOSITION, XrIndex
from planform.xrs.live_compositions import LiveCompositions

VALIDATION_SECONDS: Final = 5.0
"""So long a new revision may take to be looked at before XRs say that it was not."""


class NotValidatedYet(PlanformError):
    """The revision, or its Composition, is so new that nobody has looked at it; a moment later somebody has."""

    reason = "NotValidatedYet"


class Chosen(msgspec.Struct, frozen=True):
    """What an XR is composed by. `fields` are the composition fields that do not say so yet."""

    composition: str
    choice: RevisionChoice
    fields: Object

    @property
    def revision(self) -> str:
        return self.choice.name

    @property
    def uid(self) -> str:
        return uid_of(self.choice.revision)

    @property
    def spec(self) -> Mapping[str, Any]:
        spec: Mapping[str, Any] = self.choice.revision["spec"]
        return spec

    @property
    def under_policy(self) -> bool:
        """Whether a RolloutPolicy holds, or held, the revision: only then is it told how the XR gets on with it."""
        return release_of(self.choice.revision) is not None

    @property
    def follows(self) -> str:
        """The Composition whose new revisions the XR wants to hear of."""
        return "" if self.choice.policy is Policy.MANUAL else self.composition


class HalfChosen(Exception):
    """The Composition is chosen, and none of its revisions can be: `cause` says why, `fields` what is known."""

    def __init__(self, cause: PlanformError, fields: Object) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.fields = fields


async def choose(
    xr_index: XrIndex,
    compositions: LiveCompositions,
    key: ObjectKey,
    xr: Object,
    clock: Clock,
    for_new: Callable[[str], str] | None = None,
) -> Chosen:
    """Decide. Raises a SelectionError that says what is missing, HalfChosen around one, or NotValidatedYet.

    `for_new` gives the revision of a Composition with which XRs begin that have none, if that is not the newest
    released one. Until the choice is made the XR follows whatever could make it possible.
    """
    definition, uid = xr_index.definition, uid_of(xr)
    style, spec = definition.style, definition.spec
    named = named_composition(xr, spec, style=style)
    if named is None:
        xr_index.follow(key, uid, ANY_COMPOSITION)
        found = await compositions.compositions(xr["apiVersion"], xr["kind"])
        named = choose_composition(xr, spec, found, style=style)
    xr_index.follow(key, uid, named.name)
    own = (xr.get("status") or {}).get("planform") or {}
    revisions = await compositions.revisions(named.name)
    if not revisions and (young := compositions.get(named.name)) and _age(young, clock) < VALIDATION_SECONDS:
        raise NotValidatedYet(f'composition "{named.name}" is new')
    fields: Object = {"compositionRef": {"name": named.name}} if named.write else {}
    choice_of = partial(
        choose_revision,
        xr,
        spec,
        named.name,
        style=style,
        last_selector=own.get("revisionSelector"),
        composition_uid=compositions.uid(named.name),
        for_new=for_new(named.name) if for_new is not None else "",
    )
    try:
        choice = choice_of(revisions)
        ref = str((composition_fields(xr, style).get("compositionRevisionRef") or {}).get("name") or "")
        read = frozenset[str]()
        # A watch may be behind, or tell once more what it told before. Under a policy an XR that moved by it would run
        # once more what has been taken back meanwhile, or leave a revision to which it has just been admitted.
        while _is_doubtful(choice, revisions) and (doubtful := frozenset({choice.name, ref} - {""}) - read):
            revisions, read = await compositions.fresh(doubtful, revisions), read | doubtful
            choice = choice_of(revisions)
    except SelectionError as error:
        raise HalfChosen(error, fields) from error
    if not is_validated(choice.revision) and _age(choice.revision, clock) < VALIDATION_SECONDS:
        raise NotValidatedYet(f'composition revision "{choice.name}" is new')
    try:
        check_revision(xr, choice.revision)
    except PipelineNotValid as error:  # an XR that has run another revision goes on saying so
        first = not composition_fields(xr, style).get("compositionRevisionRef")
        raise HalfChosen(
            error, fields | ({"compositionRevisionRef": {"name": choice.name}} if first else {})
        ) from error
    if choice.write_ref:
        fields["compositionRevisionRef"] = {"name": choice.name}
    if choice.write_selector is not None:
        fields["compositionRevisionSelector"] = choice.write_selector
    secret = default_secret(xr, choice.revision["spec"]) if style == "legacy" else None
    if secret is not None:
        fields["writeConnectionSecretToRef"] = secret
    return Chosen(named.name, choice, fields)


def _is_doubtful(choice: RevisionChoice, revisions: Sequence[Object]) -> bool:
    """Whether a choice has to be made from the API server: it moves an XR under a policy, or is of what is held."""
    if not is_released(choice.revision):
        return True
    return choice.write_ref and any(release_of(each) is not None for each in revisions)


def _age(obj: Mapping[str, Any], clock: Clock) -> float:
    created = datetime.fromisoformat(created_at(obj))
    return (clock.now() - created).total_seconds()
