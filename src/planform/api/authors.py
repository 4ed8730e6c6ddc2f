"""Who wrote an object that makes the control plane act: the record that admission leaves on it, and whom it names.

A Composition, an Operation, a Blueprint or an ActionSet does things later, when its writer has long gone. With whose
rights is decided by two annotations: the author, which only the server sets, and the ServiceAccount that the author may
have named instead. An object without a record was stored before there were records, and counts as an administrator's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from planform.api.annotations import annotation
from planform.api.metadata import namespace_of
from planform.api.names import BLUEPRINTS_GROUP, EXTENSIONS_GROUP, OPERATIONS_GROUP, ROLLOUT_GROUP

AUTHOR_ANNOTATION: Final = "planform.dev/author"
SERVICE_ACCOUNT_ANNOTATION: Final = "planform.dev/service-account"

AUTHORED: Final[Mapping[str, frozenset[str]]] = {
    EXTENSIONS_GROUP: frozenset({"Composition", "CompositionRevision"}),
    OPERATIONS_GROUP: frozenset({"Operation", "CronOperation", "WatchOperation"}),
    BLUEPRINTS_GROUP: frozenset({"Blueprint", "ActionSet"}),
    ROLLOUT_GROUP: frozenset({"Preview", "Rollout", "RolloutPolicy"}),
}
"""The kinds whose objects act, by group."""

_MASTERS: Final = "system:masters"
_SERVICE_ACCOUNT: Final = "system:serviceaccount:"


class Author(msgspec.Struct, frozen=True):
    """A user as the API server knew one: the impersonated one, if somebody was."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()

    @property
    def is_administrator(self) -> bool:
        return _MASTERS in self.groups


NOBODY: Final = Author("system:unreadable-author")
"""Whom a record names that cannot be read: somebody without any rights."""


def is_authored(group: str, kind: str) -> bool:
    return kind in AUTHORED.get(group, ())


def author_of(obj: Mapping[str, Any]) -> Author | None:
    """Who wrote the object; None if that was before there were records."""
    text = annotation(obj, AUTHOR_ANNOTATION)
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=Author)
    except msgspec.DecodeError:
        return NOBODY


def encode_author(author: Author) -> str:
    return msgspec.json.encode(author).decode()


def service_account_of(obj: Mapping[str, Any], namespace: str = "") -> tuple[str, str] | None:
    """Namespace and name of the ServiceAccount that the object names: `name`, of its own namespace, or
    `namespace/name`. Without a namespace to complete it, a bare name is read as of no namespace, where none is."""
    text = annotation(obj, SERVICE_ACCOUNT_ANNOTATION)
    if not text:
        return None
    where, slash, name = text.partition("/")
    return (where, name) if slash else (namespace or namespace_of(obj), where)


def service_account(namespace: str, name: str) -> Author:
    """A ServiceAccount as a user."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return Author(f"{_SERVICE_ACCOUNT}{namespace}:{name}", groups=groups)


def as_service_account(author: Author) -> tuple[str, str] | None:
    """Namespace and name, if the user is a ServiceAccount."""
    if not author.user.startswith(_SERVICE_ACCOUNT):
        return None
    namespace, _, name = author.user.removeprefix(_SERVICE_ACCOUNT).partition(":")
    return namespace, name


def authority_annotations(obj: Mapping[str, Any]) -> dict[str, str]:
    """The annotations that an object made from this one, as a revision is, has to carry."""
    found = {name: annotation(obj, name) for name in (AUTHOR_ANNOTATION, SERVICE_ACCOUNT_ANNOTATION)}
    return {name: value for name, value in found.items() if value}
