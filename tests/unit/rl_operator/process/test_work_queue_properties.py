"""The work queue beside a model of it: after any operations both agree on every key."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rl_operator.process.work_queue import (
    BACKOFF_BASE_SECONDS,
    BACKOFF_MAX_SECONDS,
    PERIODIC_YIELD_SECONDS,
    WorkQueue,
)
from tests.unit.rl_operator.process.test_work_queue import Clock

KEYS = st.sampled_from("abcd")
SECONDS = st.sampled_from([0.0, 0.5, 1.0, 3.0, 15.0])
INTERVALS = {"a": 0.0, "b": 0.0, "c": 1.0, "d": 5.0}
JITTER = 0.5


@dataclass
class Wish:
    """What the queue owes to a key."""

    due: float
    rank: float


class QueueModel(RuleBasedStateMachine):
    """Adds, takes and ends keys at any times; the model says what must come, and what must not."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.queue: WorkQueue[str] = WorkQueue(
            clock=self.clock, jitter=lambda: JITTER, min_interval=INTERVALS.__getitem__
        )
        self.owed: dict[str, Wish] = {}
        self.working: set[str] = set()
        self.started: dict[str, float] = {}
        self.failures: dict[str, int] = {}

    def owe(self, key: str, due: float, *, periodic: bool) -> None:
        rank = due + PERIODIC_YIELD_SECONDS * periodic
        wish = self.owed.setdefault(key, Wish(due, rank))
        wish.due, wish.rank = min(wish.due, due), min(wish.rank, rank)

    def due_keys(self) -> dict[str, Wish]:
        now = self.clock.now
        return {
            key: wish
            for key, wish in self.owed.items()
            if wish.due <= now and key not in self.working
        }

    @rule(key=KEYS, periodic=st.booleans())
    def add(self, key: str, periodic: bool) -> None:
        self.queue.add(key, periodic=periodic)
        earliest = self.started.get(key, -100.0) + INTERVALS[key]
        self.owe(key, max(self.clock.now, earliest), periodic=periodic)

    @rule(key=KEYS, seconds=SECONDS, periodic=st.booleans())
    def add_after(self, key: str, seconds: float, periodic: bool) -> None:
        self.queue.add_after(key, seconds, periodic=periodic)
        self.owe(key, self.clock.now + seconds, periodic=periodic)

    @rule(seconds=SECONDS)
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule()
    def get(self) -> None:
        candidates = self.due_keys()
        key = self.queue.get(block=False)
        if key is None:
            assert not candidates, f"due and not handed out: {candidates}"
            return
        assert key not in self.working, "two workers have one key"
        assert key in candidates, "handed out without a request or before it was due"
        assert candidates[key].rank == min(wish.rank for wish in candidates.values())
        del self.owed[key]
        self.working.add(key)
        self.started[key] = self.clock.now

    @precondition(lambda self: self.working)
    @rule(data=st.data(), failed=st.booleans())
    def end(self, data: st.DataObject, failed: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.working)))
        if failed:
            self.fail(key)
        else:
            self.queue.forget(key)
            self.failures.pop(key, None)
        self.queue.done(key)
        self.working.discard(key)
        if key not in self.owed:
            self.started.pop(key, None)

    def fail(self, key: str) -> None:
        failures = self.failures[key] = self.failures.get(key, 0) + 1
        doubled = min(BACKOFF_BASE_SECONDS * 2 ** (failures - 1), BACKOFF_MAX_SECONDS)
        delay = self.queue.add_rate_limited(key)
        assert delay == doubled * (1 + JITTER / 4)
        self.owe(key, self.clock.now + delay, periodic=False)

    @invariant()
    def the_length_counts_what_is_due(self) -> None:
        assert len(self.queue) == len(self.due_keys())

    def teardown(self) -> None:
        """Nothing that was asked for is lost, and nothing else comes."""
        for key in sorted(self.working):
            self.queue.done(key)
        self.working.clear()
        self.clock.now += 1000.0
        rest = [self.queue.get(block=False) for _ in range(len(self.owed) + 1)]
        assert sorted(filter(None, rest)) == sorted(self.owed)
        self.queue.add("a")
        self.queue.close()
        assert self.queue.get() is None


TestWorkQueue = QueueModel.TestCase
