"""HTTP of phases: the guarded client, with the operator's policy for phases and the errors that phases have."""

from __future__ import annotations

from planform.blueprints.errors import PhaseFailed
from planform.blueprints.functions.policy import ADDRESSES, Policy
from planform.client import guarded_http as guarded
from planform.client import web_requests
from planform.client.web_requests import Reach, WebRequest, shown

__all__ = ["AddressRefused", "Guard", "WebRequest", "send", "shown"]


class AddressRefused(PhaseFailed):
    """The request would go where phases may not go."""

    reason = "AddressRefused"


class Guard(guarded.Guard):
    """Lets through the addresses that phases may reach."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(_reach(policy))


async def send(request: WebRequest, policy: Policy) -> tuple[int, bytes]:
    """Status and body of the answer. Raises AddressRefused, or PhaseFailed if there is none or it is too large."""
    try:
        answer = await guarded.send(request, _reach(policy))
    except web_requests.AddressRefused as error:
        raise AddressRefused(str(error), hint=error.hint) from error
    except web_requests.RequestFailed as error:
        raise PhaseFailed(str(error), hint=error.hint) from error
    return answer.status, answer.body


def _reach(policy: Policy) -> Reach:
    return Reach(policy.addresses, whose="phases", opened_by=ADDRESSES)
