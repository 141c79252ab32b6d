"""Questions and answers of two ranks over a store in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from torch._C._distributed_c10d import HashStore

from rl_contracts.errors import StoreUnavailableError
from rl_trainer.distributed.world import World
from rl_trainer.errors import TrainingFailedError
from rl_trainer.publish.channel import SILENT_SECONDS, Answering, Asking
from rl_trainer.publish.policy_shard import Answer, Encode, Encoded, Keep, Question
from rl_trainer.publish.policy_shards import Portions
from tests.waiting import HUNG_SECONDS


class Scripted(Portions):
    """Answers by script."""

    def __init__(self, reply: Callable[[Question], Answer]) -> None:
        self._reply = reply

    @property
    def busy(self) -> bool:
        return True

    def answer(self, question: Question) -> Answer:
        return self._reply(question)


def counted(question: Question) -> Answer:
    return Encoded(size_bytes=question.version, files=1) if isinstance(question, Keep) else None


@dataclass
class Two:
    """Two ranks."""

    worlds: list[World]
    answering: Answering | None = None

    def begin(self, reply: Callable[[Question], Answer]) -> None:
        self.answering = Answering(self.worlds[1], Scripted(reply))
        self.answering.begin()


@pytest.fixture
def two() -> Iterator[Two]:
    store = HashStore()
    made = Two([World(rank=rank, size=2, store=store) for rank in range(2)])
    yield made
    if made.answering is not None:
        made.answering.end()


def test_each_rank_is_asked_its_own_question(two: Two) -> None:
    two.begin(counted)
    asking = Asking(two.worlds[0], Scripted(counted))
    for version in range(1, 10, 2):
        found = asking.ask([Keep(version=version), Keep(version=version + 1)])
        assert found == [Encoded(size_bytes=one, files=1) for one in (version, version + 1)]


def test_another_ranks_failure_is_named_and_the_next_question_answered(two: Two) -> None:
    def reply(question: Question) -> Answer:
        if isinstance(question, Encode):
            raise StoreUnavailableError(store="bucket", doing="writing", cause="full")
        return counted(question)

    two.begin(reply)
    asking = Asking(two.worlds[0], Scripted(counted))
    with pytest.raises(TrainingFailedError, match="Rank 1 of the trainer: StoreUnav") as caught:
        asking.ask([Encode(), Encode()])
    assert caught.value.reason == "RankFailed"
    assert asking.ask([Keep(version=1)] * 2) == [Encoded(size_bytes=1, files=1)] * 2


def test_an_own_failure_leaves_the_next_question_to_be_answered(two: Two) -> None:
    def own(question: Question) -> Answer:
        if isinstance(question, Encode):
            raise StoreUnavailableError(store="bucket", doing="writing", cause="full")
        return counted(question)

    two.begin(counted)
    asking = Asking(two.worlds[0], Scripted(own))
    with pytest.raises(StoreUnavailableError):
        asking.ask([Encode(), Encode()])
    assert asking.ask([Keep(version=1)] * 2) == [Encoded(size_bytes=1, files=1)] * 2


def test_nobody_waits_for_a_rank_that_is_gone_once_told_to_end(two: Two) -> None:
    asked = threading.Event()

    def own(question: Question) -> Answer:
        asked.set()
        return None

    asking = Asking(two.worlds[0], Scripted(own))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(asking.ask, [Encode(), Encode()])
        assert asked.wait(HUNG_SECONDS)
        asking.end()
        with pytest.raises(TrainingFailedError, match="Rank 1 of the trainer did not tell"):
            waiting.result(HUNG_SECONDS)


def test_a_silent_rank_is_taken_for_dead(two: Two) -> None:
    times = iter([0.0, SILENT_SECONDS, SILENT_SECONDS + 1, SILENT_SECONDS + 1])
    asking = Asking(two.worlds[0], Scripted(counted), clock=lambda: next(times))
    with pytest.raises(TrainingFailedError, match="3601 s") as caught:
        asking.ask([Encode(), Encode()])
    assert caught.value.reason == "RankLost"
