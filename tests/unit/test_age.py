"""The age column of tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from planform.apimachinery.age import age, human_duration

MINUTE, HOUR, DAY, YEAR = 60, 3600, 86_400, 31_536_000
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-2, "<invalid>"),
        (-1.9, "0s"),
        (-1, "0s"),
        (0, "0s"),
        (119.9, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (10 * MINUTE - 1, "9m59s"),
        (10 * MINUTE + 5, "10m"),
        (3 * HOUR - 1, "179m"),
        (3 * HOUR, "3h"),
        (3 * HOUR + 5 * MINUTE, "3h5m"),
        (8 * HOUR - 1, "7h59m"),
        (8 * HOUR + 30 * MINUTE, "8h"),
        (2 * DAY - 1, "47h"),
        (2 * DAY, "2d"),
        (2 * DAY + 4 * HOUR, "2d4h"),
        (8 * DAY - 1, "7d23h"),
        (8 * DAY + 5 * HOUR, "8d"),
        (2 * YEAR - 1, "729d"),
        (2 * YEAR, "2y"),
        (2 * YEAR + 3 * DAY, "2y3d"),
        (8 * YEAR - 1, "7y364d"),
        (8 * YEAR + 3 * DAY, "8y"),
    ],
)
def test_a_duration_gets_coarser_with_age(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


@pytest.mark.parametrize(
    ("timestamp", "text"),
    [
        ((NOW - timedelta(minutes=5)).isoformat(), "5m"),
        ("2026-05-01T11:00:00Z", "60m"),
        ("2026-05-01T11:00:00.123456Z", "59m"),
        ("2026-05-01T13:00:00+02:00", "60m"),
        ("2026-05-01T12:00:01Z", "0s"),
        ("2026-05-01T12:00:05Z", "<invalid>"),
        ("yesterday", "<invalid>"),
        (7, "<invalid>"),
        (None, "<unknown>"),
        ("", "<unknown>"),
    ],
)
def test_a_date_cell_shows_the_age_or_why_there_is_none(timestamp: object, text: str) -> None:
    assert age(timestamp, NOW) == text
