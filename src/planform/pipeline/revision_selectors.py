"""Which revisions of its Composition an XR follows: a LabelSelector, as a value that can be compared and counted. Pure.

Crossplane's XRs know equal labels alone, although an XRD's default may have expressions too, which are then lost. Here
both hold wherever a selector of revisions stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from planform.api.kinds import Object
from planform.api.metadata import labels_of
from planform.apimachinery.selectors import LabelSelector, SelectorError


class Expression(NamedTuple):
    """One of `matchExpressions`, as it was written."""

    key: str
    operator: str
    values: tuple[str, ...]


class RevisionSelector(msgspec.Struct, frozen=True):
    """The labels and expressions that must all hold. One without any is false, and restricts nothing."""

    labels: frozenset[tuple[str, str]] = frozenset()
    expressions: tuple[Expression, ...] = ()

    @classmethod
    def of(cls, selector: Mapping[str, Any] | None) -> RevisionSelector:
        """The selector as an XR or XRD says it; absent and empty are the same."""
        if not selector:
            return NO_SELECTOR
        expressions = (
            Expression(str(each.get("key") or ""), str(each.get("operator") or ""), tuple(each.get("values") or ()))
            for each in selector.get("matchExpressions") or ()
        )
        return cls(frozenset((selector.get("matchLabels") or {}).items()), tuple(expressions))

    def __bool__(self) -> bool:
        return bool(self.labels or self.expressions)

    def __str__(self) -> str:
        return ",".join([*(f"{key}={value}" for key, value in sorted(self.labels)), *map(_shown, self.expressions)])

    @property
    def problem(self) -> str:
        """Why nothing can be selected by it, as an API server says it; empty if it is well."""
        try:
            _compiled(self.expressions)
        except SelectorError as error:
            return str(error)
        return ""

    def matches(self, obj: Mapping[str, Any]) -> bool:
        """Whether the object's labels are meant. One that has a problem means nothing."""
        found: Mapping[str, str] = labels_of(obj)
        if any(found.get(key) != value for key, value in self.labels):
            return False
        return not self.expressions or (not self.problem and _compiled(self.expressions).matches(found))

    def unmet(self, obj: Mapping[str, Any]) -> Iterator[str]:
        """The expressions that do not hold for the object."""
        found: Mapping[str, str] = labels_of(obj)
        yield from (_shown(each) for each in self.expressions if not _compiled((each,)).matches(found))

    def as_object(self) -> Object:
        """As the API has it; the labels are there even if there are none."""
        made: Object = {"matchLabels": dict(sorted(self.labels))}
        if self.expressions:
            made["matchExpressions"] = [_written(each) for each in self.expressions]
        return made


NO_SELECTOR = RevisionSelector()


@lru_cache(maxsize=256)
def _compiled(expressions: tuple[Expression, ...]) -> LabelSelector:
    return LabelSelector.from_object({"matchExpressions": [_written(each) for each in expressions]})


def _written(expression: Expression) -> Object:
    made: Object = {"key": expression.key, "operator": expression.operator}
    return {**made, "values": list(expression.values)} if expression.values else made


def _shown(expression: Expression) -> str:
    return str(_compiled((expression,)))
