"""With whose rights an ActionSet is carried out: its author's, or those of a ServiceAccount that was named for it.

The ActionSet may name one, if its author may impersonate it. Or its Blueprint does, whose author may: then running that
Blueprint needs the verb `use` on it, so that a team can run the platform's backup without its rights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from planform.api.authors import Author, author_of, service_account, service_account_of
from planform.api.kinds import Object
from planform.api.metadata import name_of, namespace_of
from planform.api.names import BLUEPRINTS_GROUP
from planform.blueprints.errors import PreflightFailed
from planform.blueprints.model import ActionRequest
from planform.client.rights import Access, Rights, impersonating


class Needed(NamedTuple):
    """Something that somebody must be allowed for a run to act with a ServiceAccount's rights, and for what."""

    author: Author | None
    access: Access
    why: str


@dataclass(frozen=True)
class ActionRights:
    """Decided before a run begins, and again before one goes on that a restart cut off.

    What it rests on is asked once more before each phase: a right that was taken away ends the run there.
    """

    author: Author | None = None
    needed: tuple[Needed, ...] = ()
    by_blueprint: Mapping[str, Author] = field(default_factory=dict)
    needed_by_blueprint: Mapping[str, tuple[Needed, ...]] = field(default_factory=dict)

    def whose(self, request: ActionRequest) -> Author | None:
        return self.by_blueprint.get(request.blueprint, self.author)

    async def confirm(self, rights: Rights, request: ActionRequest) -> None:
        """Raises PreflightFailed if what an action acts with is no longer allowed."""
        await _check(rights, (*self.needed, *self.needed_by_blueprint.get(request.blueprint, ())))


async def decide_rights(rights: Rights, obj: Object, blueprints: Iterable[Object]) -> ActionRights:
    """Raises PreflightFailed if a ServiceAccount is named that may not be used."""
    author = author_of(obj)
    named = service_account_of(obj)
    if named is not None:
        needed = (Needed(author, impersonating(*named), "the ActionSet names a ServiceAccount"),)
        await _check(rights, needed)
        return ActionRights(service_account(*named), needed)
    accounts, asked = {}, {}
    for blueprint in blueprints:
        account, name = service_account_of(blueprint), name_of(blueprint)
        if account is not None:
            asked[name] = _needed_to_run(author, blueprint, account)
            await _check(rights, asked[name])
            accounts[name] = service_account(*account)
    return ActionRights(author, (), accounts, asked)


def _needed_to_run(author: Author | None, blueprint: Mapping[str, Any], account: tuple[str, str]) -> tuple[Needed, ...]:
    why = f'Blueprint "{name_of(blueprint)}" names a ServiceAccount'
    use = Access("use", BLUEPRINTS_GROUP, "blueprints", namespace_of(blueprint), name_of(blueprint))
    return Needed(author, use, why), Needed(author_of(blueprint), impersonating(*account), why)


async def _check(rights: Rights, needed: Iterable[Needed]) -> None:
    for author, access, why in needed:
        if author is not None and not await rights.allows(author, access):
            raise PreflightFailed(f'{why}, and user "{author.user}" cannot {access}')
