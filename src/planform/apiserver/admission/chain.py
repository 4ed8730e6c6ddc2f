"""The admission chain: a list of plugins that app.py injects, the same for the embedded engine and the webhook.

A plugin sees every write after defaulting and before validation of the whole; it may change `new` in place, warn, or
refuse by raising an ApiError. Plugins do not wait: what they need to know they read from the store's staged view.
"""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from planform.api.kinds import Kind, Object
from planform.apiserver.verbs.requests import Request
from planform.client.protocol import Propagation

Operation = Literal["CREATE", "UPDATE", "DELETE"]


class Admission(msgspec.Struct, frozen=True):
    """One write on its way in. `new` is None for DELETE, `old` is None for CREATE."""

    operation: Operation
    kind: Kind
    namespace: str
    name: str
    new: Object | None
    old: Object | None
    subresource: str
    request: Request
    propagation: Propagation | None = None
    """What a DELETE asks for its dependents; None if it does not say."""


class AdmissionPlugin(Protocol):
    """Looks at writes of the kinds it cares about."""

    def admit(self, admission: Admission, /) -> None:
        """Raise an ApiError to refuse; change `admission.new` to amend.

        What is below the top level, or below that of the metadata, is replaced and not changed: `old` may share it.
        """
        ...
