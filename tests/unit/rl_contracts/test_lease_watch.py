"""Leases are judged by two clocks: a jump of the store's alone takes back no living claim."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rl_contracts.stores.leases import LeaseWatch
from rl_contracts.stores.tasks import UNCHANGED_SECONDS
from tests.samples.documents import RUN, a_task

LEASE_SECONDS, RENEW_SECONDS, REAP_SECONDS = 30.0, 8.0, 4.0


class Time:
    """The reaper's own clock, and the store's, which may jump."""

    def __init__(self) -> None:
        self.own = 100.0
        self.ahead = 1_000.0

    @property
    def store(self) -> float:
        return self.own + self.ahead


def life(time: Time, jumps: dict[int, float], *, dies_after: float, until: float) -> float | None:
    """A claim whose owner renews it and dies; when a reaper takes it back, by its own clock.

    Args:
        time: of both.
        jumps: by second, how far the store's clock jumps, for the reaper and the owner alike.
        dies_after: seconds for which the owner renews.
        until: seconds after which to stop.
    """
    watch = LeaseWatch(lambda: time.own)
    started = time.own
    task = a_task(0, owner="s", attempt=1, lease_until=time.store + LEASE_SECONDS)
    for second in range(int(until)):
        time.own = started + second
        time.ahead += jumps.get(second, 0.0)
        if second % RENEW_SECONDS == 0 and second <= dies_after:
            task = task.model_copy(update={"lease_until": time.store + LEASE_SECONDS})
        if second % REAP_SECONDS == 0:
            age = watch.see(RUN, [task])[task.id]
            if task.lease_until < time.store and age >= UNCHANGED_SECONDS:
                return float(second)
    return None


JUMPS = st.dictionaries(st.integers(0, 200), st.floats(-100.0, 100.0), max_size=5)


@given(JUMPS)
def test_a_living_claim_is_never_taken_back_whatever_the_stores_clock_does(
    jumps: dict[int, float],
) -> None:
    assert life(Time(), jumps, dies_after=300.0, until=300.0) is None


@given(st.integers(0, 100))
def test_a_dead_owners_claim_is_taken_back_soon(dies_after: int) -> None:
    taken = life(Time(), {}, dies_after=float(dies_after), until=300.0)
    assert taken is not None
    assert LEASE_SECONDS - RENEW_SECONDS <= taken - dies_after <= UNCHANGED_SECONDS + REAP_SECONDS


def test_runs_are_watched_apart_and_ended_claims_are_forgotten() -> None:
    time = Time()
    watch = LeaseWatch(lambda: time.own)
    task = a_task(0, owner="s", attempt=1, lease_until=1.0)
    assert watch.see(RUN, [task]) == {task.id: 0.0}
    time.own += 40.0
    assert watch.see("other", []) == {}
    assert watch.see(RUN, [task]) == {task.id: 40.0}
    again = task.model_copy(update={"attempt": 2})
    assert watch.see(RUN, [again]) == {task.id: 0.0}
    assert watch.see(RUN, []) == {}
    assert watch.see(RUN, [again]) == {task.id: 0.0}
