"""Who asks, and with which options: what the wire and LocalClient hand to the verbs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

Validation = Literal["Strict", "Warn", "Ignore"]


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated caller."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def is_master(self) -> bool:
        return MASTERS in self.groups


MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))
CONTROL_PLANE = User("system:planform", (MASTERS, AUTHENTICATED))
"""The controllers of this very process."""

MAX_WARNINGS = 64
MAX_ANNOTATIONS = 128
MAX_ANNOTATION_LENGTH = 10 * 1024


class Request(msgspec.Struct):
    """One request as the verbs see it. Warnings gather here and become Warning headers."""

    user: User = CONTROL_PLANE
    manager: str = "planform"
    dry_run: bool = False
    validation: Validation = "Warn"
    warnings: list[str] = []
    duplicates: tuple[str, ...] = ()
    """Paths of fields that stood twice in the body, found while decoding."""
    options: dict[str, Any] = {}
    """The options as they were given, for whoever is asked whether the request may be."""
    annotations: dict[str, str] = {}
    """What admission wants the audit log to say."""

    def warn(self, text: str) -> None:
        """Tell the client something once; a flood of warnings is cut off."""
        if len(self.warnings) < MAX_WARNINGS and text not in self.warnings:
            self.warnings.append(text)

    def annotate(self, key: str, value: str) -> None:
        """Have the audit log say something; the first word on a key counts."""
        if len(self.annotations) < MAX_ANNOTATIONS:
            self.annotations.setdefault(key, value[:MAX_ANNOTATION_LENGTH])


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a kind a list, watch or deletecollection is about. An empty namespace means all of them."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""


@dataclass(frozen=True, slots=True)
class Preconditions:
    """What must hold of the stored object for a delete to happen."""

    uid: str = ""
    resource_version: str = ""


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a request wants to do, as authorisation and audit see it. `path` is set for what is not a resource."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
