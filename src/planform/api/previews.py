"""Preview and PreviewReport as their readers see them: the controller, the command, the dashboard and Rollouts.

Counts are of XRs. `unchanged + changed + failed + mended + notPreviewed + invalid = xrs`; creates, deletes and
recreates are XRs among `changed` and overlap; drifting and unstable overlap all; pinned ones are apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from planform.api.kinds import Object

Outcome = Literal["Unchanged", "Changed", "Failed", "Mended", "Invalid", "NotPreviewed"]
Risk = Literal["Deletes", "Recreates", "Fails", "Invalid", "Loses"]
Phase = Literal["Pending", "Running", "Complete", "Failed"]
ChangeAction = Literal["Create", "Update", "Recreate", "Delete", "Fail"]

OUTCOMES: Final = ("Unchanged", "Changed", "Failed", "Mended", "Invalid", "NotPreviewed")
RISKS: Final = ("Deletes", "Recreates", "Fails", "Invalid", "Loses")
"""From the riskiest to the least; a class has one of them, or none."""

MAX_CLASSES: Final = 100
MAX_EXAMPLES: Final = 5

COUNTS: Final[Mapping[str, str]] = {
    "xrs": "XRs that were looked at.",
    "unchanged": "XRs to which the change does nothing.",
    "changed": "XRs of which something changes.",
    "creates": "Changed XRs that get a new resource.",
    "deletes": "Changed XRs that lose a resource.",
    "recreates": "Changed XRs with a resource that cannot be changed in place.",
    "failed": "XRs that fail with the change and did not without.",
    "mended": "XRs that fail without the change and no longer do.",
    "drifting": "XRs that would be changed without the change, too.",
    "unstable": "XRs whose functions answer differently each time.",
    "notPreviewed": "XRs that could not be looked at.",
    "invalid": "XRs that the change makes invalid.",
    "pinned": "XRs that do not follow the change, as they are pinned to a revision.",
}


class _Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Unknown fields are those of a newer planform, and are left out."""


class Summary(msgspec.Struct, kw_only=True, rename="camel"):
    """How many XRs; see `COUNTS`."""

    xrs: int = 0
    unchanged: int = 0
    changed: int = 0
    creates: int = 0
    deletes: int = 0
    recreates: int = 0
    failed: int = 0
    mended: int = 0
    drifting: int = 0
    unstable: int = 0
    not_previewed: int = 0
    invalid: int = 0
    pinned: int = 0

    def add(self, other: Summary) -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class FieldChange(_Wire, frozen=True, omit_defaults=True):
    """One field; a side that has no value there is absent."""

    path: str
    before: Any = UNSET
    after: Any = UNSET


class ObjectChange(_Wire, frozen=True, omit_defaults=True):
    """What becomes of one object of an XR. `resource` is its name in the composition, empty for the XR itself."""

    kind: str
    action: ChangeAction
    resource: str = ""
    fields: tuple[FieldChange, ...] = ()
    forced_by: str = ""
    message: str = ""


class ChangeClass(_Wire, frozen=True, omit_defaults=True):
    """XRs to which the same happens. A Preview's status has no `changes`: they stand in its reports."""

    id: str
    xrs: int
    outcome: Outcome
    risk: Risk | Literal[""] = ""
    change: str = ""
    examples: tuple[str, ...] = ()
    changes: tuple[ObjectChange, ...] = ()


class Blast(msgspec.Struct, kw_only=True, rename="camel"):
    """What a change reaches, in XRs."""

    namespaces: int = 0
    kinds: dict[str, int] = {}
    teams: dict[str, int] = {}
    by_namespace: dict[str, int] = {}


class XrEntry(_Wire, frozen=True, omit_defaults=True):
    """One XR in a report. `expectation` is read by `planform.pipeline.expectation`."""

    kind: str
    name: str
    outcome: Outcome
    namespace: str = ""
    uid: str = ""
    class_: str = msgspec.field(name="class", default="")
    input: str = ""
    revision: str = ""
    expectation: Object = {}
    drifting: tuple[str, ...] = ()
    unstable: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    message: str = ""


class RevisionChange(_Wire, frozen=True):
    composition: str
    name: str


class FunctionChange(_Wire, frozen=True):
    """With `from_`, both revisions are called whatever steps select; else steps choose as they would."""

    function: str
    name: str
    from_: str = msgspec.field(name="from", default="")


class ReleaseChange(_Wire, frozen=True):
    """Another release of planform: whose built-in functions may answer differently."""

    planform: str = ""
    composition: str = ""
    """Only XRs of this Composition, if given."""


class PreviewedChange(_Wire, frozen=True):
    """What would change."""

    manifests: list[Object] | UnsetType = UNSET
    deleted: list[Object] | UnsetType = UNSET
    revision: RevisionChange | UnsetType = UNSET
    revisions: list[RevisionChange] | UnsetType = UNSET
    function_revision: FunctionChange | UnsetType = UNSET
    release: ReleaseChange | UnsetType = UNSET

    @property
    def all_revisions(self) -> list[RevisionChange]:
        """The CompositionRevisions that are meant, one or several."""
        return [self.revision] if self.revision else list(self.revisions or ())


class Scope(_Wire, frozen=True):
    """Which XRs are looked at."""

    namespaces: tuple[str, ...] = ()
    xrs: Object = {}
    sample: int = 0
    include_manual: bool = False


class PreviewSpec(_Wire, frozen=True):
    change: PreviewedChange
    scope: Scope = Scope()
    ttl: str = "7d"


class ReportSpec(_Wire, frozen=True):
    """A part of what one shard found out; `parts` is 0 until the shard is done."""

    shard: int = 0
    shards: int = 1
    part: int = 0
    parts: int = 0
    summary: Summary = msgspec.field(default_factory=Summary)
    blast: Blast = msgspec.field(default_factory=Blast)
    classes: tuple[ChangeClass, ...] = ()
    xrs: tuple[XrEntry, ...] = ()


def release_verdict(summary: Summary) -> str:
    """`0 of 1,000 would change`, and if any would, how."""
    affected = summary.changed + summary.failed + summary.mended + summary.invalid
    words = f"{affected:,} of {summary.xrs:,} would change"
    if summary.not_previewed:
        words += f", {summary.not_previewed:,} not previewed"
    return f"{words}: {verdict(summary)}" if affected else words


def verdict(summary: Summary) -> str:
    """`987 unchanged, 11 changed (2 delete something)`: the answer in a line."""
    risky = [
        f"{count} {words}"
        for count, words in (
            (summary.deletes, "delete something" if summary.deletes != 1 else "deletes something"),
            (summary.recreates, "must recreate something"),
            (summary.creates, "create something" if summary.creates != 1 else "creates something"),
        )
        if count
    ]
    parts = [f"{summary.unchanged} unchanged", f"{summary.changed} changed"]
    if risky:
        parts[-1] += f" ({', '.join(risky)})"
    parts += [
        f"{count} {words}"
        for count, words in (
            (summary.failed, "would fail"),
            (summary.invalid, "would become invalid"),
            (summary.mended, "mended"),
            (summary.not_previewed, "not previewed"),
        )
        if count
    ]
    return ", ".join(parts)
