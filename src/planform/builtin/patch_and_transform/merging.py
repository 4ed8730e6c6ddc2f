"""What a patch does with a value that is already there: `policy.toFieldPath`.

The words say which side wins where both have something, and whether lists are joined. A value counts as nothing if it
is null, zero, false, or empty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from planform.builtin.patch_and_transform.values import PatchFailed
from planform.gotemplate.values import type_name

Merge = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Merging:
    """One policy; calling it merges `new` into `existing` and changes neither."""

    new_wins: bool
    joins_lists: bool

    def __call__(self, existing: Any, new: Any) -> Any:
        if existing is None or new is None:
            return new
        if self.joins_lists and type(existing) is list and type(new) is list:
            return existing + _unknown_items(existing, new)
        return self._merged(existing, new)

    def _merged(self, existing: Any, new: Any) -> Any:
        if type(new) is dict and type(existing) is dict:
            result = dict(existing)
            for key, value in new.items():
                if value is None and not self.new_wins:
                    continue  # nothing is no news, not even of a member that is not there
                result[key] = self._merged(result[key], value) if key in result else value
            return result
        if type(new) is list and self.joins_lists and existing is not None:
            if type(existing) is not list:
                types = f"{type_name(new)}, {type_name(existing)}"
                raise PatchFailed(f"failed to merge values: cannot append two slices with different type ({types})")
            return existing + new
        return new if self.new_wins or not existing else existing


def _unknown_items(existing: list[Any], new: list[Any]) -> list[Any]:
    """Those of the new items that equal none of the existing ones; as JSON, in which 1 and true differ."""
    known = {msgspec.json.encode(item, order="deterministic") for item in existing}
    return [item for item in new if msgspec.json.encode(item, order="deterministic") not in known]


POLICIES: Final[dict[str, Merging | None]] = {
    "Replace": None,
    "MergeObjects": Merging(new_wins=False, joins_lists=False),
    "MergeObject": Merging(new_wins=False, joins_lists=False),
    "ForceMergeObjects": Merging(new_wins=True, joins_lists=False),
    "MergeObjectsAppendArrays": Merging(new_wins=False, joins_lists=True),
    "ForceMergeObjectsAppendArrays": Merging(new_wins=True, joins_lists=True),
    "AppendArray": Merging(new_wins=True, joins_lists=True),
}
"""By name; None replaces. The short names are aliases from older versions."""
