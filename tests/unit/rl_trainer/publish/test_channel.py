"""Requests and responses of two ranks over a store in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from torch.distributed import HashStore

from rl_contracts.errors import StoreUnavailableError
from rl_trainer.distributed.rendezvous import RANK_TIMEOUT_SECONDS
from rl_trainer.distributed.world import World
from rl_trainer.errors import TrainingFailedError
from rl_trainer.publish.channel import ShardRequester, ShardResponder
from rl_trainer.publish.policy_shard import (
    EncodedDelta,
    EncodeDelta,
    KeepAsBase,
    ShardRequest,
    ShardResponse,
)
from rl_trainer.publish.policy_shards import PolicyShards
from tests.waiting import HUNG_SECONDS


class Scripted(PolicyShards):
    """Answers by script."""

    def __init__(self, reply: Callable[[ShardRequest], ShardResponse]) -> None:
        self._reply = reply

    @property
    def busy(self) -> bool:
        return True

    def respond(self, request: ShardRequest) -> ShardResponse:
        return self._reply(request)


def counted(request: ShardRequest) -> ShardResponse:
    return (
        EncodedDelta(size_bytes=request.version, files=1)
        if isinstance(request, KeepAsBase)
        else None
    )


@dataclass
class Two:
    """Two ranks."""

    worlds: list[World]
    responder: ShardResponder | None = None

    def begin(self, reply: Callable[[ShardRequest], ShardResponse]) -> None:
        self.responder = ShardResponder(self.worlds[1], Scripted(reply))
        self.responder.begin()


@pytest.fixture
def two() -> Iterator[Two]:
    store = HashStore()
    made = Two([World(rank=rank, size=2, store=store) for rank in range(2)])
    yield made
    if made.responder is not None:
        made.responder.end()


def test_each_rank_gets_its_own_request(two: Two) -> None:
    two.begin(counted)
    requester = ShardRequester(two.worlds[0], Scripted(counted))
    for version in range(1, 10, 2):
        answers = requester.request_all(
            [KeepAsBase(version=version), KeepAsBase(version=version + 1)]
        )
        assert answers == [
            EncodedDelta(size_bytes=size, files=1) for size in (version, version + 1)
        ]


def test_a_failed_rank_is_named_and_its_next_request_answered(two: Two) -> None:
    def reply(request: ShardRequest) -> ShardResponse:
        if isinstance(request, EncodeDelta):
            raise StoreUnavailableError(store="bucket", doing="writing", cause="full")
        return counted(request)

    two.begin(reply)
    requester = ShardRequester(two.worlds[0], Scripted(counted))
    with pytest.raises(TrainingFailedError, match="Rank 1 of the trainer: StoreUnav") as caught:
        requester.request_all([EncodeDelta(), EncodeDelta()])
    assert caught.value.reason == "RankFailed"
    assert (
        requester.request_all([KeepAsBase(version=1)] * 2)
        == [EncodedDelta(size_bytes=1, files=1)] * 2
    )


def test_rank_0_failing_itself_leaves_the_next_request_answered(two: Two) -> None:
    def own(request: ShardRequest) -> ShardResponse:
        if isinstance(request, EncodeDelta):
            raise StoreUnavailableError(store="bucket", doing="writing", cause="full")
        return counted(request)

    two.begin(counted)
    requester = ShardRequester(two.worlds[0], Scripted(own))
    with pytest.raises(StoreUnavailableError):
        requester.request_all([EncodeDelta(), EncodeDelta()])
    assert (
        requester.request_all([KeepAsBase(version=1)] * 2)
        == [EncodedDelta(size_bytes=1, files=1)] * 2
    )


def test_requester_stops_waiting_for_a_lost_rank_after_end(two: Two) -> None:
    asked = threading.Event()

    def own(request: ShardRequest) -> ShardResponse:
        asked.set()
        return None

    requester = ShardRequester(two.worlds[0], Scripted(own))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(requester.request_all, [EncodeDelta(), EncodeDelta()])
        assert asked.wait(HUNG_SECONDS)
        requester.end()
        with pytest.raises(TrainingFailedError, match="Rank 1 of the trainer did not report"):
            waiting.result(HUNG_SECONDS)


def test_a_silent_rank_ends_the_attempt_after_the_timeout(two: Two) -> None:
    times = iter([0.0, RANK_TIMEOUT_SECONDS, RANK_TIMEOUT_SECONDS + 1, RANK_TIMEOUT_SECONDS + 1])
    requester = ShardRequester(two.worlds[0], Scripted(counted), clock=lambda: next(times))
    with pytest.raises(TrainingFailedError, match="3601 s") as caught:
        requester.request_all([EncodeDelta(), EncodeDelta()])
    assert caught.value.reason == "RankLost"
