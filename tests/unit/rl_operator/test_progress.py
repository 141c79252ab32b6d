"""Which sampler pods count as lost."""

from __future__ import annotations

import pytest

from rl_contracts.documents.run import EndedSamplers
from rl_contracts.documents.sampler import Sampler, SamplerState
from rl_operator.progress import count_lost, plain
from tests.documents import a_sampler


def a_registration(pod: str, start: float, end: float | None, *, drained: bool = True) -> Sampler:
    return a_sampler(
        pod,
        pod=pod,
        state=SamplerState.READY if end is None else SamplerState.GONE,
        registered_at=start,
        heartbeat_at=1000.0 if end is None else end,
        drained=drained and end is not None,
    )


CASES: dict[str, tuple[list[Sampler], int]] = {
    "all there": ([a_registration("p-a-1", 0, None), a_registration("p-a-2", 0, None)], 0),
    "died": ([a_registration("p-a-1", 0, 50, drained=False)], 1),
    "died and replaced": (
        [a_registration("p-a-1", 0, 50, drained=False), a_registration("p-a-2", 60, None)], 1
    ),
    "ended in order and replaced": (
        [a_registration("p-a-1", 0, 50), a_registration("p-a-2", 60, None)], 1
    ),
    "scaled down": ([a_registration("p-a-1", 0, 50), a_registration("p-a-2", 0, None)], 0),
    "scaled down and up much later": (
        [a_registration("p-a-1", 0, 50), a_registration("p-a-2", 500, None)], 0
    ),
    "rolled to another template": (
        [a_registration("p-a-1", 0, 50), a_registration("p-b-1", 60, None)], 0
    ),
    "twice, one after the other": (
        [
            a_registration("p-a-1", 0, 50), a_registration("p-a-2", 60, 90),
            a_registration("p-a-3", 100, None),
        ],
        2,
    ),
    "one successor stands for one": (
        [
            a_registration("p-a-1", 0, 50), a_registration("p-a-2", 0, 50),
            a_registration("p-a-3", 60, None),
        ],
        1,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("samplers", "lost"), CASES.values(), ids=CASES.keys())
def test_lost_samplers(samplers: list[Sampler], lost: int) -> None:
    assert count_lost(samplers) == lost


def test_lost_samplers_count_on_when_their_registrations_are_deleted() -> None:
    found = [
        a_registration("p-a-1", 0, 50, drained=False), a_registration("p-a-2", 60, 300),
        a_registration("p-a-3", 310, 400, drained=False),
    ]  # fmt: skip
    assert count_lost(found) == 3  # two died, one was evicted and replaced
    ended = EndedSamplers(before=200, died=1)
    assert count_lost(found, forgotten=ended) == 3  # noted and not deleted yet
    assert count_lost(found[1:], forgotten=ended) == 3


def test_a_message_says_the_same_each_time() -> None:
    raw = "<urllib3.connection.HTTPConnection object at 0x7f1b>: Failed to connect: refused"
    assert plain(raw) == "Failed to connect: refused"
    assert plain("db:1: refused (configured timeouts: 20 s)") == "db:1: refused"
