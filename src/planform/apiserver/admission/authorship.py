"""Records on every object that acts who wrote it, and lets nobody name a ServiceAccount that they may not impersonate,
nor hold by a Usage what is in a namespace where they may create none.

An admission plugin, for the embedded chain and for the webhook. A plugin does not wait, so the webhook asks the API
server the `questions` first and gives the plugin their answers.

The author is whoever wrote what the object does now: its creator, or whoever changed more of it than metadata and
status since. Were it the creator for ever, whoever may edit an administrator's Composition would have their rights.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from planform.api.annotations import annotation, set_annotation
from planform.api.authors import (
    AUTHOR_ANNOTATION,
    SERVICE_ACCOUNT_ANNOTATION,
    Author,
    as_service_account,
    author_of,
    encode_author,
    is_authored,
    service_account_of,
)
from planform.api.kinds import Object
from planform.api.names import ACTION_SET, BLUEPRINTS_GROUP, PROTECTION_GROUP
from planform.api.usages import held_in_another_namespace, is_usage
from planform.apiserver.admission.chain import Admission
from planform.apiserver.auth.rbac import forbidden
from planform.apiserver.verbs.requests import CONTROL_PLANE, User
from planform.client.rights import Access, impersonating

IMPORT_MANAGER: Final = "planform-import"
"""The field manager of `planform import`, which may bring records along if it may impersonate whom they name."""

Allows = Callable[[User, Access], bool]

_BESIDE: Final = frozenset({"metadata", "status"})
_RUNNING: Final = "running"


class Authorship:
    """`controllers` are the names that the control plane itself has; it writes records that it copied."""

    def __init__(self, allows: Allows, controllers: Collection[str] = (CONTROL_PLANE.name,)) -> None:
        self._allows = allows
        self._controllers = frozenset(controllers)

    def admit(self, admission: Admission, /) -> None:
        """Raises Forbidden for a ServiceAccount that the writer may not impersonate, and for what they may not hold."""
        if not _concerns(admission):
            return
        user, kind = admission.request.user, admission.kind
        if user.name in self._controllers:
            _keep(admission)
            return
        _check_status(admission)
        for access in _needed(admission):
            if not self._allows(user, access):
                text = f'user "{user.name}" cannot {access}, which {_purpose(access)} needs'
                raise forbidden(kind.group, kind.plural, admission.name, text)
        if is_authored(kind.group, kind.kind):
            self._record(admission, user)

    def _record(self, admission: Admission, user: User) -> None:
        new, old = admission.new, admission.old
        assert new is not None
        brought = _brought(admission)
        if brought is not None and all(self._allows(user, access) for access in _being(brought)):
            return
        if old is None or _substance(new) != _substance(old):
            record = encode_author(Author(user.name, user.uid, user.groups))
        else:
            record = annotation(old, AUTHOR_ANNOTATION)
        if annotation(new, AUTHOR_ANNOTATION) != record:
            set_annotation(new, AUTHOR_ANNOTATION, record)


def questions(admission: Admission, controllers: Collection[str]) -> list[Access]:
    """What the plugin will ask about this write's author."""
    if not _concerns(admission) or admission.request.user.name in controllers:
        return []
    brought = _brought(admission)
    return [*_needed(admission), *(_being(brought) if brought is not None else ())]


def _concerns(admission: Admission) -> bool:
    if admission.new is None or admission.subresource:
        return False
    kind = admission.kind
    if is_usage(kind.group, kind.kind):
        return True
    return is_authored(kind.group, kind.kind) or (kind.group == "" and kind.kind == "Namespace")


def _needed(admission: Admission) -> Iterator[Access]:
    """Whoever names a ServiceAccount, or changes what is done with the rights of one that is named, must hold it."""
    new, old, kind = admission.new, admission.old, admission.kind
    assert new is not None
    if is_usage(kind.group, kind.kind):
        yield from _needed_to_hold(admission, new)
        return
    home = admission.name if kind.kind == "Namespace" else admission.namespace
    named = service_account_of(new, home)
    if named is None:
        return
    if kind.kind == "Namespace":
        changed = annotation(new, SERVICE_ACCOUNT_ANNOTATION) != annotation(old, SERVICE_ACCOUNT_ANNOTATION)
    else:
        changed = old is None or _substance(new) != _substance(old)
    if changed:
        yield impersonating(*named)


def _needed_to_hold(admission: Admission, usage: Object) -> Iterator[Access]:
    """A Usage of something elsewhere keeps others from deleting it, as one would that is created there."""
    elsewhere, old = held_in_another_namespace(usage, admission.namespace), admission.old
    if elsewhere and (old is None or _substance(usage) != _substance(old)):
        yield Access("create", PROTECTION_GROUP, admission.kind.plural, elsewhere)


def _purpose(access: Access) -> str:
    return "naming a ServiceAccount" if access.verb == "impersonate" else "holding what is in another namespace"


def _brought(admission: Admission) -> Author | None:
    """The author that an import says the object has."""
    if admission.request.manager != IMPORT_MANAGER or admission.new is None:
        return None
    return author_of(admission.new)


def _being(author: Author) -> Iterator[Access]:
    """What it takes to be somebody."""
    account = as_service_account(author)
    yield Access("impersonate", "", "users", "", author.user) if account is None else impersonating(*account)
    for group in author.groups:
        yield Access("impersonate", "", "groups", "", group)


def _keep(admission: Admission) -> None:
    """The control plane replaces objects that it read; one that it builds anew does not lose its author by that."""
    new, old = admission.new, admission.old
    if new is None or old is None or annotation(new, AUTHOR_ANNOTATION):
        return
    before = annotation(old, AUTHOR_ANNOTATION)
    if before:
        set_annotation(new, AUTHOR_ANNOTATION, before)


def _check_status(admission: Admission) -> None:
    """A run that a restart cut off goes on by what its status says, so nobody else may write that."""
    kind = admission.kind
    if (kind.group, kind.kind) != (BLUEPRINTS_GROUP, ACTION_SET.kind):
        return
    if admission.request.user.is_master and admission.request.manager == IMPORT_MANAGER:
        return
    after, before = _status(admission.new), _status(admission.old)
    if after.get("state") == _RUNNING and after != before:
        text = "only the control plane says that an ActionSet runs; leave out its status"
        raise forbidden(kind.group, kind.plural, admission.name, text)


def _status(obj: Object | None) -> Mapping[str, Any]:
    status = (obj or {}).get("status")
    return status if isinstance(status, Mapping) else {}


def _substance(obj: Mapping[str, Any]) -> Object:
    """All of an object that decides what it does, and with whose rights."""
    kept = {name: value for name, value in obj.items() if name not in _BESIDE}
    return {**kept, SERVICE_ACCOUNT_ANNOTATION: annotation(obj, SERVICE_ACCOUNT_ANNOTATION)}
