from collections.abc import Callable, Iterator

import pytest

from rl_console.errors import ClusterUnavailableError, NotFoundError
from rl_console.following.follow import Kind, Limits, Time, follow
from rl_console.view import Snapshot
from tests.unit.rl_console.builders import condition, snapshot

LIMITS = Limits(total_seconds=100, stalled_seconds=10, silent_seconds=5)
Look = Snapshot | Exception


class FakeTime:
    def __init__(self) -> None:
        self.now = 1000.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    @property
    def time(self) -> Time:
        return Time(monotonic=lambda: self.now, sleep=self.sleep)


class Recorder:
    def __init__(self) -> None:
        self.shown: list[Snapshot] = []
        self.notes: list[str] = []

    def show(self, snapshot: Snapshot, *, elapsed: float) -> None:
        self.shown.append(snapshot)

    def note(self, text: str, *, elapsed: float) -> None:
        self.notes.append(text)


def reader(answers: Iterator[Look]) -> Callable[[float], Snapshot]:
    def read(_: float) -> Snapshot:
        look = next(answers)
        if isinstance(look, Exception):
            raise look
        return look

    return read


def forever(*first: Look, then: Look) -> Iterator[Look]:
    yield from first
    while True:
        yield then


def unavailable() -> ClusterUnavailableError:
    return ClusterUnavailableError(doing="reading", cause="refused")


RUNNING = snapshot(phase="Running")
STALLED = snapshot(condition("Stalled", reason="ModelNotFound"))
COMPLETE = snapshot(condition("Complete"))


@pytest.mark.parametrize(
    ("answers", "kind", "seconds"),
    [
        ([RUNNING, RUNNING, COMPLETE], "Complete", 2),
        ([RUNNING, snapshot(condition("Failed"), condition("Stalled"))], "Failed", 1),
        ([RUNNING, NotFoundError(doing="reading")], "Deleted", 1),
        ([RUNNING, unavailable(), unavailable(), COMPLETE], "Complete", 3),
        ([STALLED] * 5 + [COMPLETE], "Complete", 5),
    ],
)
def test_following_ends_with_the_right_kind(
    answers: list[Look], kind: Kind, seconds: float
) -> None:
    ending = follow(reader(iter(answers)), Recorder(), limits=LIMITS, time=FakeTime().time)
    assert (ending.kind, ending.seconds) == (kind, seconds)


@pytest.mark.parametrize(
    ("then", "kind", "seconds"),
    [(STALLED, "Stalled", 11), (RUNNING, "Deadline", 101), (unavailable(), "Unreachable", 6)],
)
def test_every_wait_has_a_deadline(then: Look, kind: Kind, seconds: float) -> None:
    answers = forever(then=then)
    ending = follow(reader(answers), Recorder(), limits=LIMITS, time=FakeTime().time)
    assert (ending.kind, ending.seconds) == (kind, seconds)
    assert not ending.succeeded


def test_recovery_from_a_stall_resets_its_deadline() -> None:
    answers = iter([STALLED] * 8 + [RUNNING] + [STALLED] * 8 + [COMPLETE])
    ending = follow(reader(answers), Recorder(), limits=LIMITS, time=FakeTime().time)
    assert ending.succeeded


def test_an_unreachable_server_is_noted_and_keeps_the_last_snapshot() -> None:
    display = Recorder()
    answers = forever(RUNNING, then=unavailable())
    ending = follow(reader(answers), display, limits=LIMITS, time=FakeTime().time)
    assert display.notes[0].startswith("the Kubernetes API did not answer")
    assert ending.snapshot is RUNNING


@pytest.mark.parametrize(("first", "kind"), [([RUNNING], "Deadline"), ([], "Unreachable")])
def test_the_deadline_holds_while_the_server_does_not_answer(first: list[Look], kind: Kind) -> None:
    limits = Limits(total_seconds=3, silent_seconds=50)
    answers = forever(*first, then=unavailable())
    ending = follow(reader(answers), Recorder(), limits=limits, time=FakeTime().time)
    assert (ending.kind, ending.seconds) == (kind, 4)


def test_a_read_gets_the_time_that_is_left_and_is_counted() -> None:
    time, given = FakeTime(), list[float]()

    def read(left: float) -> Snapshot:
        given.append(left)
        if len(given) == 1:
            return RUNNING
        time.sleep(left + 1)
        raise unavailable()

    ending = follow(read, Recorder(), limits=LIMITS, time=time.time)
    assert given == [100, 99]
    assert (ending.kind, ending.seconds) == ("Deadline", 101)
    assert isinstance(ending.error, ClusterUnavailableError)
    assert ending.left == -1
