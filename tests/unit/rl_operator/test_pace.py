"""Looks become rare while nothing changes, and frequent again at once."""

from __future__ import annotations

from rl_operator.kinds import Key
from rl_operator.pace import Pace

KEY, OTHER = Key("RLJob", "ns", "a"), Key("RLJob", "ns", "b")


def test_quiet_objects_are_looked_at_less() -> None:
    pace = Pace(5.0)
    waits = []
    for changed in (True, False, False, False, False, False, True, False):
        pace.saw(KEY, changed=changed)
        waits.append(pace.wait(KEY))
    assert waits == [5.0, 5.0, 10.0, 20.0, 20.0, 20.0, 5.0, 5.0]
    assert pace.wait(OTHER) == 5.0


def test_what_is_gone_is_forgotten() -> None:
    pace = Pace(5.0)
    pace.saw(KEY, changed=False)
    pace.forget(KEY)
    assert pace.quiet == {}
