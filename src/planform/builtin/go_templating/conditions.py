"""What `getResourceCondition` gives: a condition as Go has it, with fields, and a point in time among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from planform.builtin.seeds import moment
from planform.functions.values import Object
from planform.gotemplate import Record
from planform.gotemplate.gotime import SECOND, ZERO_NANOSECONDS, Time
from planform.gotemplate.values import Value


class ResourceCondition(Record):
    """A condition of a resource; one that it does not have is Unknown. Its fields have the order of the Go struct."""

    go_type: ClassVar[str] = "common.Condition"
    fields: ClassVar[Mapping[str, Callable[[Any], Value]]] = {
        "Type": lambda self: self.text("type"),
        "Status": lambda self: self.text("status"),
        "LastTransitionTime": lambda self: self.time(),
        "Reason": lambda self: self.text("reason"),
        "Message": lambda self: self.text("message"),
        "ObservedGeneration": lambda self: self.generation(),
    }
    __slots__ = ("found",)

    def __init__(self, found: Object) -> None:
        self.found = found

    def text(self, member: str) -> str:
        found = self.found.get(member)
        return found if isinstance(found, str) else ""

    def generation(self) -> int:
        found = self.found.get("observedGeneration")
        return found if type(found) is int else 0

    def time(self) -> Time:
        found = moment(self.found.get("lastTransitionTime"))
        return Time(ZERO_NANOSECONDS if found is None else int(found.timestamp()) * SECOND)

    def go_string(self) -> str:
        shown = (self.text("type"), self.text("status"), self.time().go_string(), self.text("reason"))
        return f"{{{' '.join(shown)} {self.text('message')} {self.generation()}}}"

    def go_value(self) -> Value:
        """As its JSON: what has no value there is left out, but for the time, which is null."""
        time = self.time()
        unset = time.nanoseconds == ZERO_NANOSECONDS
        shown: Object = {
            "type": self.text("type"),
            "status": self.text("status"),
            "lastTransitionTime": None if unset else time.go_json(),
            "reason": self.text("reason"),
        }
        if self.text("message"):
            shown["message"] = self.text("message")
        if self.generation():
            shown["observedGeneration"] = self.generation()
        return shown

    def yaml_value(self) -> Value:
        """As YAML, which knows nothing of the names in JSON."""
        return {
            "type": self.text("type"),
            "status": self.text("status"),
            "lasttransitiontime": self.time().go_json(),
            "reason": self.text("reason"),
            "message": self.text("message"),
            "observedgeneration": self.generation(),
        }
