"""With whose rights an ActionSet is carried out: its author's, or those of a ServiceAccount that was named for it.

The ActionSet may name one, if its author may impersonate it. Or its Blueprint does, whose author may: then running that
Blueprint needs the verb `use` on it, so that a team can run the platform's backup without its rights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from planform.api.authors import Author, author_of, service_account, service_account_of
from planform.api.kinds import Object
from planform.api.names import BLUEPRINTS_GROUP
from planform.blueprints.errors import PreflightFailed
from planform.blueprints.model import ActionRequest
from planform.client.rights import Access, Rights, impersonating


@dataclass(frozen=True)
class ActionRights:
    """Decided before a run begins, and again before one goes on that a restart cut off."""

    author: Author | None = None
    by_blueprint: Mapping[str, Author] = field(default_factory=dict)

    def whose(self, request: ActionRequest) -> Author | None:
        return self.by_blueprint.get(request.blueprint, self.author)


async def decide_rights(rights: Rights, obj: Object, blueprints: Iterable[Object]) -> ActionRights:
    """Raises PreflightFailed if a ServiceAccount is named that may not be used."""
    author = author_of(obj)
    named = service_account_of(obj)
    if named is not None:
        await _check(rights, author, impersonating(*named), "the ActionSet names a ServiceAccount")
        return ActionRights(service_account(*named))
    accounts = {}
    for blueprint in blueprints:
        account = await _account_of(rights, author, blueprint)
        if account is not None:
            accounts[blueprint["metadata"]["name"]] = account
    return ActionRights(author, accounts)


async def _account_of(rights: Rights, author: Author | None, blueprint: Mapping[str, Any]) -> Author | None:
    named = service_account_of(blueprint)
    if named is None:
        return None
    metadata = blueprint["metadata"]
    why = f'Blueprint "{metadata["name"]}" names a ServiceAccount'
    use = Access("use", BLUEPRINTS_GROUP, "blueprints", metadata["namespace"], metadata["name"])
    await _check(rights, author, use, why)
    await _check(rights, author_of(blueprint), impersonating(*named), why)
    return service_account(*named)


async def _check(rights: Rights, author: Author | None, access: Access, why: str) -> None:
    if author is not None and not await rights.allows(author, access):
        raise PreflightFailed(f'{why}, and user "{author.user}" cannot {access}')
