"""What is remembered of an XR: whether what was applied is still there."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from planform.xrs.last_run import contains

_SCALARS = st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from([0.0, 1.0, "", "0", "a"])
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


def _contains(found: Any, wanted: Any) -> bool:
    """As the docstring of `contains` says it."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(
            _contains(found[key], value) if key in found else value is None or value in ({}, [])
            for key, value in wanted.items()
        )
    if isinstance(wanted, list) and isinstance(found, list):
        return len(found) == len(wanted) and all(map(_contains, found, wanted))
    return bool(found == wanted) and isinstance(found, bool) == isinstance(wanted, bool)


@given(found=_VALUES, wanted=_VALUES)
def test_an_object_contains_what_would_change_nothing(found: Any, wanted: Any) -> None:
    assert contains(found, wanted) == _contains(found, wanted)


@given(wanted=st.dictionaries(st.sampled_from("abc"), _VALUES, max_size=3), more=_VALUES)
def test_what_others_add_does_not_matter(wanted: dict[str, Any], more: Any) -> None:
    assert contains({**wanted, "d": more}, wanted)
