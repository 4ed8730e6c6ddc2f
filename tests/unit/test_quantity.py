"""Quantities: exact values, canonical texts, arithmetic."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planform.apimachinery.quantity import Notation, Quantity, QuantityError, parse_quantity


@pytest.mark.parametrize(
    ("text", "canonical", "value"),
    [
        ("0", "0", "0"),
        ("0Ki", "0", "0"),
        ("1000m", "1", "1"),
        ("500m", "500m", "0.5"),
        ("0.5", "500m", "0.5"),
        (".5", "500m", "0.5"),
        ("5.", "5", "5"),
        ("+1", "1", "1"),
        ("-1", "-1", "-1"),
        ("1.5k", "1500", "1500"),
        ("1500k", "1500k", "1500000"),
        ("1000k", "1M", "1000000"),
        ("100M", "100M", "100000000"),
        ("1E", "1E", "1000000000000000000"),
        ("1000E", "1000E", "1000000000000000000000"),
        ("1Gi", "1Gi", "1073741824"),
        ("1024Mi", "1Gi", "1073741824"),
        ("1.5Gi", "1536Mi", "1610612736"),
        ("1.5Ki", "1536", "1536"),
        ("0.5Mi", "512Ki", "524288"),
        ("0.1Ki", "102400m", "102.4"),
        ("1000Ki", "1000Ki", "1024000"),
        ("100Ei", "9223372036854775807", "9223372036854775807"),
        ("-1Mi", "-1Mi", "-1048576"),
        ("1e3", "1e3", "1000"),
        ("1E3", "1e3", "1000"),
        ("12e2", "1200", "1200"),
        ("1e-3", "1e-3", "0.001"),
        ("1e+30", "1e30", "1" + "0" * 30),
        ("0.0000000001", "1n", "0.000000001"),
        ("-0.0000000001", "-1n", "-0.000000001"),
        ("1.1n", "2n", "0.000000002"),
        ("3u", "3u", "0.000003"),
        ("00100", "100", "100"),
    ],
)
def test_a_quantity_is_exact_and_has_one_canonical_text(text: str, canonical: str, value: str) -> None:
    quantity = parse_quantity(text)
    assert str(quantity) == canonical
    assert quantity.as_decimal() == Decimal(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "quantities must match"),
        ("1000 blabla", "quantities must match"),
        ("1.2.3", "quantities must match"),
        ("Ki", "quantities must match"),
        ("1" * 1000, "quantities must match"),
        ("٣", "quantities must match"),
        (".", "unable to parse numeric part of quantity"),
        ("1kk", "unable to parse quantity's suffix"),
        ("1Kib", "quantities must match"),
        ("1e", "unable to parse quantity's suffix"),
        ("1e999999999999", "unable to parse quantity's suffix"),
        ("1k3", "unable to parse quantity's suffix"),
        ("1i", "unable to parse quantity's suffix"),
    ],
)
def test_what_is_no_quantity_is_refused(text: str, message: str) -> None:
    with pytest.raises(QuantityError, match=message):
        parse_quantity(text)


def test_bare_numbers_are_quantities_too() -> None:
    assert parse_quantity(3) == parse_quantity("3")
    assert parse_quantity(0.25) == parse_quantity("250m")


def test_rounding_to_whole_units_goes_away_from_zero() -> None:
    assert (parse_quantity("1m").value, parse_quantity("-1m").value) == (1, -1)
    assert (parse_quantity("1u").milli_value, parse_quantity("1.5").milli_value) == (1, 1500)
    assert float(parse_quantity("1500m")) == 1.5


def test_a_sum_keeps_the_notation_of_its_left_side_unless_that_is_zero() -> None:
    assert str(parse_quantity("1Gi") + parse_quantity("1024")) == "1048577Ki"
    assert str(parse_quantity("0") + parse_quantity("2Ki")) == "2Ki"
    assert str(parse_quantity("1") - parse_quantity("1500m")) == "-500m"
    assert str(parse_quantity("512Mi") * 4) == str(4 * parse_quantity("512Mi")) == "2Gi"
    assert not parse_quantity("1") - parse_quantity("1000m")


def test_quantities_compare_by_amount() -> None:
    assert parse_quantity("1024Mi") == parse_quantity("1Gi") != parse_quantity("1G")
    assert parse_quantity("1G") < parse_quantity("1Gi") <= parse_quantity("1Gi")
    assert hash(parse_quantity("1000m")) == hash(parse_quantity("1"))
    assert parse_quantity("1") != 1


QUANTITIES = st.one_of(
    st.builds(Quantity, st.integers(-(10**30), 10**30), st.sampled_from([Notation.DECIMAL, Notation.EXPONENT])),
    st.builds(Quantity, st.integers(-(2**63 - 1) * 10**9, (2**63 - 1) * 10**9), st.just(Notation.BINARY)),
)


@given(QUANTITIES)
def test_the_canonical_text_is_stable(quantity: Quantity) -> None:
    again = parse_quantity(str(quantity))
    if quantity.notation is Notation.BINARY and again.notation is not Notation.BINARY:
        # `5000` in binary notation has no suffix that would say so, and reads back as the decimal `5k`.
        assert again.value == quantity.value
    else:
        assert str(again) == str(quantity)
    if quantity.notation is not Notation.BINARY:
        assert again == quantity
    assert str(parse_quantity(str(again))) == str(again)


@given(QUANTITIES, QUANTITIES)
def test_subtracting_undoes_adding(left: Quantity, right: Quantity) -> None:
    assert left + right - right == left
    assert left + right == right + left
    assert (left < right) == (left - right).nanos.__lt__(0)
