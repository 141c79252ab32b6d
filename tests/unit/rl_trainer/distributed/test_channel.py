"""Requests and responses of two ranks over a store in memory."""

from __future__ import annotations

import base64
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import HashStore, Store, TCPStore

from rl_contracts.errors import StoreUnavailableError
from rl_trainer.distributed.channel import ShardRequester, ShardResponder
from rl_trainer.distributed.rendezvous import RANK_TIMEOUT_SECONDS
from rl_trainer.distributed.signed import Signer
from rl_trainer.distributed.world import World
from rl_trainer.errors import TrainingFailedError
from rl_trainer.publish.policy_shard import (
    EncodedDelta,
    EncodeDelta,
    KeepAsBase,
    ShardRequest,
    ShardResponse,
)
from rl_trainer.publish.policy_shards import PolicyShards
from tests.waiting import HUNG_SECONDS, until

KEEP = [KeepAsBase(version=1)] * 2
KEPT = [EncodedDelta(size_bytes=1, files=1)] * 2
"""What ``counted`` answers to it."""


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


def failing(request: ShardRequest) -> ShardResponse:
    """Fails to encode a delta."""
    if isinstance(request, EncodeDelta):
        raise StoreUnavailableError(store="bucket", doing="writing", cause="full")
    return counted(request)


def a_world(rank: int, store: Store) -> World:
    return World(rank=rank, size=2, store=store, signer=Signer(b"key"))


@dataclass
class Two:
    """Two ranks."""

    worlds: list[World]
    responder: ShardResponder[ShardRequest, ShardResponse] | None = None

    def begin(self, reply: Callable[[ShardRequest], ShardResponse]) -> None:
        self.responder = ShardResponder(self.worlds[1], Scripted(reply), written="policy")
        self.responder.begin()


@pytest.fixture
def two() -> Iterator[Two]:
    store = HashStore()
    made = Two([a_world(rank, store) for rank in range(2)])
    yield made
    if made.responder is not None:
        made.responder.end()


def test_each_rank_gets_its_own_request(two: Two) -> None:
    two.begin(counted)
    requester = ShardRequester(two.worlds[0], Scripted(counted), written="policy")
    for version in range(1, 10, 2):
        answers = requester.request_all(
            [KeepAsBase(version=version), KeepAsBase(version=version + 1)]
        )
        assert answers == [
            EncodedDelta(size_bytes=size, files=1) for size in (version, version + 1)
        ]


def test_a_failed_rank_is_named_and_its_next_request_answered(two: Two) -> None:
    two.begin(failing)
    requester = ShardRequester(two.worlds[0], Scripted(counted), written="policy")
    with pytest.raises(TrainingFailedError, match="Rank 1 of the trainer: bucket did") as caught:
        requester.request_all([EncodeDelta(), EncodeDelta()])
    assert caught.value.reason == "StoreUnavailable"
    assert requester.request_all(KEEP) == KEPT


def test_rank_0_failing_itself_leaves_the_next_request_answered(two: Two) -> None:
    two.begin(counted)
    requester = ShardRequester(two.worlds[0], Scripted(failing), written="policy")
    with pytest.raises(StoreUnavailableError):
        requester.request_all([EncodeDelta(), EncodeDelta()])
    assert requester.request_all(KEEP) == KEPT


def test_requester_stops_waiting_for_a_lost_rank_after_end(two: Two) -> None:
    asked = threading.Event()

    def own(request: ShardRequest) -> ShardResponse:
        asked.set()
        return None

    requester = ShardRequester(two.worlds[0], Scripted(own), written="policy")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(requester.request_all, [EncodeDelta(), EncodeDelta()])
        assert asked.wait(HUNG_SECONDS)
        requester.end()
        with pytest.raises(TrainingFailedError, match="Rank 1 of the trainer did not report"):
            waiting.result(HUNG_SECONDS)


def test_a_silent_rank_ends_the_attempt_after_the_timeout(two: Two) -> None:
    times = iter([0.0, RANK_TIMEOUT_SECONDS, RANK_TIMEOUT_SECONDS + 1, RANK_TIMEOUT_SECONDS + 1])
    requester = ShardRequester(
        two.worlds[0], Scripted(counted), written="policy", clock=lambda: next(times)
    )
    with pytest.raises(TrainingFailedError, match="3601 s") as caught:
        requester.request_all([EncodeDelta(), EncodeDelta()])
    assert caught.value.reason == "RankLost"


class Bomb:
    """A pickle that creates a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return open, (str(self.path), "w")


def test_a_forged_tcp_store_value_runs_nothing(tmp_path: Path) -> None:
    """Anyone who reaches the store's port may write any value, with the ranks' own keys."""
    exploded = tmp_path / "exploded"
    bomb = base64.b64encode(pickle.dumps(Bomb(exploded))).decode()
    with_key = base64.b64encode(Signer(b"guess").sign(Bomb(exploded), place="policy/1")).decode()
    served = TCPStore("127.0.0.1", 0, is_master=True)
    stranger = TCPStore("127.0.0.1", served.port, is_master=False)
    requester = ShardRequester(a_world(0, served), Scripted(counted), written="policy")
    for number, forged in enumerate(("", "no base64!", bomb, with_key), start=1):
        stranger.set(f"policy/{number}/1", forged)
        with pytest.raises(TrainingFailedError, match="is not signed") as caught:
            requester.request_all([KeepAsBase(version=1)] * 2)
        assert caught.value.reason == "ForeignMessage"
    stranger.delete_key("policy/1/1")
    stranger.set("policy/1", bomb)
    own = TCPStore("127.0.0.1", served.port, is_master=False)
    responder = ShardResponder(a_world(1, own), Scripted(counted), written="policy")
    responder.begin()
    store = a_world(0, served).store_for("policy")
    until(lambda: store.has("1/1"), what="the answer of rank 1")
    answer = store.get("1/1")
    responder.end()
    assert "is not signed" in answer.text
    assert not exploded.exists()


def test_a_value_is_good_under_its_own_name_only() -> None:
    store = HashStore()
    world = a_world(0, store)
    world.store_for("policy").set("1", "a request")
    store.set("policy/2", store.get("policy/1").decode())
    assert world.store_for("policy").get("1") == "a request"
    with pytest.raises(TrainingFailedError, match="policy/2"):
        world.store_for("policy").get("2")
