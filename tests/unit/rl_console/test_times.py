from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rl_console.times import age, short


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "0s"),
        (0, "0s"),
        (59.9, "59s"),
        (90, "1m30s"),
        (600, "10m"),
        (3600, "1h"),
        (100_000, "1d3h"),
        (864_000, "10d"),
    ],
)
def test_durations_have_at_most_two_units(seconds: float, shown: str) -> None:
    assert short(seconds) == shown


def test_an_age_counts_from_the_time_of_the_object() -> None:
    now = datetime(2026, 11, 25, 12, tzinfo=UTC)
    assert age("2026-11-25T13:00:00+02:00", now) == "1h"
    assert age(None, now) == ""
