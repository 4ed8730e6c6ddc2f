"""What a kind does differently from the rest: the seam between the general verbs and single built-in kinds.

The base class is the behaviour of a custom resource. Built-in kinds override what they must, in `builtin_strategies`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from planform.api.kinds import Object
from planform.apimachinery.names import subdomain_problems
from planform.errors import FieldError

_NOT_SPEC = frozenset({"metadata", "status"})


class Strategy:
    """How one kind is prepared, checked, selected and deleted. Stateless; one instance may serve many kinds."""

    counts_generations: ClassVar[bool] = True
    """Whether metadata.generation exists and moves with the spec."""
    allows_unconditional_update: ClassVar[bool] = False
    """Whether a PUT without resourceVersion overwrites instead of being refused."""
    keeps_status_on_create: ClassVar[bool] = False
    allows_bare_finalizers: ClassVar[bool] = True
    """Whether a finalizer without a domain is warned about instead of refused."""
    selectable: ClassVar[Mapping[str, str]] = {}
    """Field selectors beyond metadata.name and metadata.namespace: label to dotted path."""

    def name_problems(self, name: str) -> list[str]:
        """What is wrong with a name of this kind."""
        return subdomain_problems(name)

    def prepare(self, new: Object, old: Object | None, subresource: str) -> None:
        """Fill in what the server fills in, in place, before validation. `old` is None on create."""

    def validate(self, new: Object, old: Object | None, subresource: str) -> Sequence[FieldError]:
        """What a schema cannot say."""
        return ()

    def warnings(self, new: Object, old: Object | None) -> Sequence[str]:
        return ()

    def begin_delete(self, obj: Object) -> bool:
        """Called once when deletion starts; may change the object. True keeps it until a controller finishes."""
        return False

    def may_be_deleted(self, obj: Object) -> None:
        """Raise Forbidden for objects that must stay."""

    def holds(self, obj: Object) -> bool:
        """Whether a terminating object without metadata.finalizers must still stay."""
        return False

    def same(self, old: Object, new: Object) -> bool:
        """Whether the spec did not change: everything but metadata and status."""
        for name, value in new.items():
            if name not in _NOT_SPEC and (former := old.get(name)) is not value and former != value:
                return False  # as most writes do
        if old.keys() == new.keys():
            return True
        return old.keys() - _NOT_SPEC == new.keys() - _NOT_SPEC


CUSTOM = Strategy()
