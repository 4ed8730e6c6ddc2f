"""What measuring takes: whom to ask, with whose rights, and how far requests may go."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from planform.api.authors import author_of, service_account, service_account_of
from planform.api.kinds import Object
from planform.api.names import SECRET
from planform.api.references import SecretRef
from planform.client.protocol import Client
from planform.client.rights import NoRights, Rights, impersonating
from planform.client.web_requests import Reach
from planform.clock import Clock
from planform.errors import Forbidden, NotFound, PlanformError
from planform.rollouts.gates.expressions import Expressions
from planform.telemetry.metrics import MetricsRegistry

OPTION: Final = "--rollout-addresses"


def rollout_reach(addresses: str = "") -> Reach:
    """How far gates and notifications may go, from what the operator opened."""
    return Reach.parse(addresses, whose="rollouts", opened_by=OPTION)


class SecretUnusable(PlanformError):
    """A Secret that a gate or a notification names is not there, may not be read by the policy's author, or lacks what
    is needed of it."""

    reason = "SecretUnusable"


@dataclass(frozen=True, kw_only=True)
class GateTools:
    """The tools of whoever measures and notifies for Rollouts."""

    client: Client
    clock: Clock
    rights: Rights = field(default_factory=NoRights)
    reach: Reach = field(default_factory=rollout_reach)
    jobs: bool = False
    """Whether somebody runs Jobs here: on Kubernetes."""
    expressions: Expressions = field(default_factory=Expressions)
    metrics: MetricsRegistry = field(default_factory=MetricsRegistry)

    async def acting(self, rollout: Object) -> Client:
        """A client with the rights of the policy's author, or of the ServiceAccount that the policy names. Raises
        Forbidden."""
        author, named = author_of(rollout), service_account_of(rollout)
        if named is None:
            return self.client if author is None else self.rights.acting(author)
        access = impersonating(*named)
        if author is not None and not await self.rights.allows(author, access):
            raise Forbidden(f'the policy names a ServiceAccount, and user "{author.user}" cannot {access}')
        return self.rights.acting(service_account(*named))

    async def secret(self, rollout: Object, reference: SecretRef) -> Mapping[str, str]:
        """What a Secret holds, read with the rights of the policy's author. Raises SecretUnusable."""
        shown = f'Secret "{reference.namespace}/{reference.name}"'
        try:
            client = await self.acting(rollout)
            found = await client.get(SECRET, reference.name, namespace=reference.namespace)
        except NotFound as error:
            raise SecretUnusable(f"{shown} is not there") from error
        except Forbidden as error:
            raise SecretUnusable(f"{shown} may not be read with the rights of the policy's author: {error}") from error
        try:
            return {name: base64.b64decode(value).decode() for name, value in (found.get("data") or {}).items()}
        except (binascii.Error, UnicodeDecodeError) as error:
            raise SecretUnusable(f"{shown} holds what is no text") from error


async def credentials(tools: GateTools, rollout: Object, reference: SecretRef) -> dict[str, str]:
    """The header that proves who asks: `token`, or `username` and `password`. Raises SecretUnusable."""
    held = await tools.secret(rollout, reference)
    if token := held.get("token", "").strip():
        return {"Authorization": f"Bearer {token}"}
    if "username" in held and "password" in held:
        pair = base64.b64encode(f"{held['username']}:{held['password']}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}
    raise SecretUnusable(
        f'Secret "{reference.namespace}/{reference.name}" has neither "token" nor "username" and "password"'
    )
