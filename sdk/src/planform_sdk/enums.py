"""The enums of the protocol. Their values are the numbers on the wire."""

from __future__ import annotations

from enum import IntEnum


class _OpenEnum(IntEnum):
    """An enum of the wire, where a newer peer may send numbers that we do not know."""

    @classmethod
    def _missing_(cls, value: object) -> _OpenEnum | None:
        if not isinstance(value, int):
            return None
        member = int.__new__(cls, value)
        member._name_, member._value_ = f"UNKNOWN_{value}", value
        return member


class Ready(_OpenEnum):
    UNSPECIFIED = 0
    TRUE = 1
    FALSE = 2

    def __bool__(self) -> bool:
        return self is Ready.TRUE


class Severity(_OpenEnum):
    UNSPECIFIED = 0
    FATAL = 1
    WARNING = 2
    NORMAL = 3


class Target(_OpenEnum):
    UNSPECIFIED = 0
    COMPOSITE = 1
    COMPOSITE_AND_CLAIM = 2


class Status(_OpenEnum):
    UNSPECIFIED = 0
    UNKNOWN = 1
    TRUE = 2
    FALSE = 3


class Capability(_OpenEnum):
    UNSPECIFIED = 0
    CAPABILITIES = 1
    REQUIRED_RESOURCES = 2
    CREDENTIALS = 3
    CONDITIONS = 4
    REQUIRED_SCHEMAS = 5
