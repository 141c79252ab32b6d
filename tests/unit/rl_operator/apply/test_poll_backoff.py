"""Looks become rare while nothing changes, and frequent again at once."""

from __future__ import annotations

from rl_operator.apply.poll_backoff import LOOKS_PER_SECOND, START_SECONDS, Pace
from rl_operator.kube.kinds import Key

KEY, OTHER = Key("RLJob", "ns", "a"), Key("RLJob", "ns", "b")


def test_quiet_objects_are_looked_at_less() -> None:
    pace = Pace(5.0)
    waits = []
    for changed in (True, False, False, False, False, False, True, False):
        pace.saw(KEY, changed=changed)
        assert pace.is_quiet(KEY) is not changed
        waits.append(pace.wait(KEY))
    assert waits == [5.0, 5.0, 10.0, 20.0, 20.0, 20.0, 5.0, 5.0]
    assert pace.wait(OTHER) == 5.0
    assert not pace.is_quiet(OTHER)


def test_what_is_gone_is_forgotten() -> None:
    pace = Pace(5.0)
    pace.saw(KEY, changed=False)
    pace.forget(KEY)
    assert pace.quiet == {}


def test_of_thousands_each_is_looked_at_more_rarely() -> None:
    pace = Pace(5.0)
    keys = [Key("RLJob", "ns", str(number)) for number in range(5000)]
    for key in keys:
        pace.saw(key, changed=True)
    assert pace.wait(keys[0]) == 5000 / LOOKS_PER_SECOND
    assert pace.start(keys[0]) == START_SECONDS  # only those that start count here
    for key in keys[:1000]:
        pace.start(key)
    assert pace.start(keys[0]) == 1000 / LOOKS_PER_SECOND
    pace.saw(keys[0], changed=True)
    pace.forget(keys[1])
    assert len(pace.starting) == 998
    for key in keys[100:]:
        pace.forget(key)
    assert (pace.wait(keys[0]), pace.start(keys[0])) == (5.0, START_SECONDS)
