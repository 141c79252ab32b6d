"""The work queue after any operations: no wish is lost, and no key has two workers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rl_operator.process.work_queue import RUSH, WorkQueue
from tests.unit.rl_operator.process.test_work_queue import Clock

OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["add", "may wait", "later", "take", "seen", "done", "fail", "time", "rush"]
        ),
        st.sampled_from("abc"),
    ),
    max_size=60,
)


class Model:
    """A queue and what it owes."""

    def __init__(self, *, spacing: float) -> None:
        self.clock = Clock()
        self.queue: WorkQueue[str] = WorkQueue(
            clock=self.clock,
            jitter=lambda: 0.5,
            begins=lambda key: key == "c",
            spacing=lambda key: spacing,
        )
        self.working: set[str] = set()
        self.wanted: set[str] = set()

    def take(self) -> str | None:
        due_at = self.queue.due_at()
        taken = self.queue.take()
        if taken is not None:
            assert due_at <= self.clock.now
            assert taken not in self.working
            self.working.add(taken)
            self.wanted.discard(taken)
        return taken

    def end(self, key: str, *, failed: bool) -> None:
        self.queue.done(key)
        self.working.discard(key)
        if failed:
            self.queue.failed(key)
            self.wanted.add(key)

    def rush(self) -> None:
        for number in range(RUSH):
            self.queue.add(f"other {number}")
        while (other := self.take()) is not None:
            self.end(other, failed=False)

    def perform(self, operation: str, key: str) -> None:
        if operation in ("add", "may wait", "later"):
            self.wanted.add(key)
        match operation:
            case "add":
                self.queue.add(key)
            case "may wait":
                self.queue.add(key, within=2.5)
            case "later":
                self.queue.add_after(key, 3)
            case "time":
                self.clock.now += 2
            case "rush":
                self.rush()
            case "take":
                self.take()
            case "seen":
                self.queue.seen(key)
                self.wanted -= {key} & self.working
            case _ if key in self.working:
                self.end(key, failed=operation == "fail")


@given(OPERATIONS, st.sampled_from([0.0, 1.0, 5.0]))
def test_no_wish_is_lost_and_no_key_has_two_workers(
    operations: list[tuple[str, str]], spacing: float
) -> None:
    model = Model(spacing=spacing)
    for operation, key in operations:
        model.perform(operation, key)
    for key in list(model.working):
        model.end(key, failed=False)
    model.clock.now += 1000
    while model.take() is not None:
        pass
    assert not model.wanted
