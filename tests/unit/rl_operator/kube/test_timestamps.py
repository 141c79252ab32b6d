"""Times as the API server writes them."""

from __future__ import annotations

from rl_operator.kube.timestamps import format_time, parse_time


def test_timestamps_survive_a_round_trip() -> None:
    assert format_time(parse_time("2026-11-21T05:00:00Z") or 0) == "2026-11-21T05:00:00Z"
    assert parse_time(None) is None
