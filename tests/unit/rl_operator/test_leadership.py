"""When a Lease may be taken."""

from __future__ import annotations

import pytest

from rl_operator.leadership import Sighting, may_take

CASES = {
    "ours": ("me", 0.0, True),
    "given up": ("", 0.0, True),
    "held": ("other", 14.9, False),
    "not renewed": ("other", 15.0, True),
}


@pytest.mark.parametrize(("holder", "unchanged", "free"), CASES.values(), ids=CASES.keys())
def test_may_take(holder: str, unchanged: float, free: bool) -> None:
    sighting = Sighting(holder=holder, version="1", seen_at=100.0)
    assert may_take(sighting, identity="me", now=100.0 + unchanged) is free
