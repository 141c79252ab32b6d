"""What nobody waits for passes in its order: when there is nothing else to do, or late enough."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rl_operator.lane import Lane

SECONDS = 10.0


class Watch:
    """A lane, and when each of its tasks was put in and done."""

    def __init__(self) -> None:
        self.now, self.put_in, self.done = 0.0, list[float](), list[tuple[int, float]]()
        self.lane = Lane(lambda task: task(), clock=lambda: self.now, seconds=SECONDS)

    def put(self) -> None:
        number = len(self.put_in)
        self.put_in.append(self.now)
        self.lane.put(lambda: self.done.append((number, self.now)))

    def numbers(self) -> list[int]:
        return [number for number, _ in self.done]


def test_it_waits_while_there_is_other_work() -> None:
    watch = Watch()
    watch.put()
    watch.now = 4.0
    watch.put()
    watch.lane.release(busy=True)
    assert watch.numbers() == []
    watch.now = 10.0
    watch.lane.release(busy=True)
    assert watch.numbers() == [0]
    watch.lane.release(busy=False)
    assert watch.numbers() == [0, 1]
    assert len(watch.lane) == 0


STEP = st.tuples(st.sampled_from(["put", "busy", "idle"]), st.floats(0.0, 3.0))


@given(steps=st.lists(STEP))
def test_each_is_done_once_in_order_and_in_time(steps: list[tuple[str, float]]) -> None:
    watch = Watch()
    for what, seconds in steps:
        watch.now += seconds
        if what == "put":
            watch.put()
        watch.lane.release(busy=what != "idle")
        if what == "idle":
            assert len(watch.done) == len(watch.put_in)
    watch.lane.release(busy=False)
    assert watch.numbers() == list(range(len(watch.put_in)))
    late = [at - watch.put_in[number] for number, at in watch.done]
    assert all(one <= SECONDS + 3.0 for one in late)  # and no longer than between two releases
