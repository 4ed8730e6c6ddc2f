"""One write as admission asks about it: what shall become of which object, and who wants it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from planform.api.kinds import GroupVersionKind, Object
from planform.apiserver.admission.chain import Operation
from planform.apiserver.crds.registry import ServedKind
from planform.apiserver.verbs.requests import Request

SCALE: Final = GroupVersionKind("autoscaling", "v1", "Scale")


@dataclass(slots=True)
class Attributes:
    """`object` is None for DELETE, `old_object` for CREATE; both are in the version that was asked for, and a Scale
    for the subresource of that name. `name` is empty while it is still to be generated."""

    served: ServedKind
    operation: Operation
    namespace: str
    name: str
    subresource: str
    object: Object | None
    old_object: Object | None
    request: Request
    options: Object = field(default_factory=dict)

    def kind_as(self, served: ServedKind) -> GroupVersionKind:
        """What `object` is, where it is in another version of the same resource."""
        return SCALE if self.subresource == "scale" else served.kind.gvk

    @property
    def shown_namespace(self) -> str:
        """A Namespace counts as being in itself."""
        return self.name if self.is_namespace else self.namespace

    @property
    def is_namespace(self) -> bool:
        return self.served.kind.group == "" and self.served.kind.plural == "namespaces"


def operation_options(operation: Operation, request: Request) -> Object:
    """The options of a request, as the object that reviews show."""
    kind = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}[operation]
    return {"kind": kind, "apiVersion": "meta.k8s.io/v1", **request.options}


def user_fields(request: Request) -> dict[str, Any]:
    """The user as reviews and expressions show them."""
    user = request.user
    fields: dict[str, Any] = {"username": user.name}
    if user.uid:
        fields["uid"] = user.uid
    if user.groups:
        fields["groups"] = list(user.groups)
    if user.extra:
        fields["extra"] = {name: list(values) for name, values in user.extra.items()}
    return fields
