"""The Operations of one CronOperation or WatchOperation: finding them, adding one, letting old ones go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from planform.api.kinds import Object
from planform.api.metadata import name_of, uid_of
from planform.api.names import OPERATION
from planform.api.owners import owners_of
from planform.client.protocol import Client, Propagation
from planform.errors import AlreadyExists, NotFound, PlanformError
from planform.operations.operations import Family, family_of, origin_label


class OperationNameTaken(PlanformError):
    """An Operation of the name that follows from its cause exists, and somebody else made it."""

    reason = "OperationNameTaken"

    def __init__(self, name: str) -> None:
        super().__init__(f'Operation "{name}" exists and belongs to somebody else')
        self.hint = f"delete or rename it: kubectl delete operation {name}"


async def find_family(client: Client, owner: Mapping[str, Any], label: str) -> Family:
    """The Operations that this object controls, as they are now."""
    found = await client.list(OPERATION, labels=f"{label}={origin_label(name_of(owner))}")
    return family_of(owner, found.items)


async def create_once(client: Client, operation: Object, *, manager: str) -> Object:
    """Create an Operation; one of that name with the same controller is the same Operation."""
    try:
        return await client.create(operation, manager=manager)
    except AlreadyExists:
        found = await client.get(OPERATION, name_of(operation))
        wanted = owners_of(operation)[0]["uid"]
        if not any(each["uid"] == wanted for each in owners_of(found)):
            raise OperationNameTaken(name_of(operation)) from None
        return found


async def delete_all(client: Client, operations: Iterable[Object]) -> None:
    """Delete these very Operations; what is gone already is as wanted."""
    for operation in operations:
        try:
            await client.delete(
                OPERATION, name_of(operation), propagation=Propagation.BACKGROUND, uid=uid_of(operation)
            )
        except NotFound:
            pass
