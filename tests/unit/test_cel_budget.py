"""What a rule's budget is worth: work that grows with the data is paid for, however short the expression is."""

from __future__ import annotations

from typing import Any

import pytest

from planform.apimachinery.cel_rules import compile_rules

LIST: dict[str, Any] = {"type": "array", "items": {"type": "integer"}}
SET = LIST | {"x-kubernetes-list-type": "set"}


def errors(rule: str, schema: dict[str, Any], value: list[int], budget: int) -> list[str]:
    field = schema | {"x-kubernetes-validations": [{"rule": rule}]}
    rules = compile_rules({"type": "object", "properties": {"a": field}})
    return [str(error) for error in rules.check({"a": value}, budget=budget)]


@pytest.mark.parametrize(
    ("rule", "schema"),
    [
        ("self.all(x, self == self)", LIST),
        ("self.all(x, !(self != self))", LIST),
        ("self.all(x, [self] == [self])", LIST),
        ("self.all(x, self == self)", SET),
        ("(self + self) == self", SET),
    ],
)
def test_comparing_lists_is_paid_for_by_their_size(rule: str, schema: dict[str, Any]) -> None:
    assert errors(rule, schema, list(range(10)), 10_000) == []
    [error] = errors(rule, schema, list(range(1000)), 10_000)
    assert "running out of cost budget" in error


def test_sets_are_equal_in_any_order() -> None:
    assert errors("self == [3, 1, 2]", SET, [1, 2, 3], 1000) == []
    assert errors("self == [3, 1, 2]", SET, [1, 2, 4], 1000) != []
