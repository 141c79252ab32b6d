"""Carries rank 0's shard requests to the other ranks, beside training.

Requests and responses are signed values in the key-value store that the ranks met through. A gloo
group of its own was considered instead. It has one timeout for both sides, but the two differ: rank
0 must give a silent rank up after ``RANK_TIMEOUT_SECONDS``, while another rank may wait far longer
for the next policy. And a thread that is blocked in a collective cannot be told to end. The store
has neither problem and costs a poll while a snapshot waits.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar

from rl_contracts.errors import RLError
from rl_trainer.distributed.rank_failure import RankFailure
from rl_trainer.distributed.rendezvous import RANK_TIMEOUT_SECONDS
from rl_trainer.distributed.team import rank_loss_as_failure
from rl_trainer.distributed.world import SignedStore, World
from rl_trainer.errors import TrainingFailedError

log = logging.getLogger(__name__)

POLL_SECONDS = 0.05
Written: TypeAlias = Literal["policy", "checkpoint"]
"""What all ranks write together; each has a channel of its own."""
Request = TypeVar("Request")
Response = TypeVar("Response")
Asked = TypeVar("Asked", contravariant=True)
Answer = TypeVar("Answer", covariant=True)


class Shards(Protocol[Asked, Answer]):
    """What a rank holds of something that all of them write, as it is asked about it."""

    @property
    def busy(self) -> bool:
        """Whether rank 0 may send a request."""

    def respond(self, request: Asked) -> Answer:
        """Carry out a request; an RLError is reported to rank 0."""


class ShardRequester(Generic[Request, Response]):
    """Rank 0's side of the channel.

    Args:
        world: the ranks.
        own: rank 0's shards.
        written: what of.
        clock: monotonic seconds, for the deadline.
    """

    def __init__(
        self,
        world: World,
        own: Shards[Request, Response],
        *,
        written: Written,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._world, self._own, self._written, self._clock = world, own, written, clock
        self._number = 0
        self._ended = threading.Event()

    def request_all(self, requests: Sequence[Request]) -> list[Response]:
        """Send each rank its request (``requests`` is by rank); returns the responses by rank.

        Raises:
            TrainingFailedError: another rank failed or does not respond, or ``end`` was called.
            RLError: what rank 0's own response raises, or another rank's where no other attempt
                helps.
        """
        if self._world.size == 1:
            return [self._own.respond(requests[0])]
        store, self._number = self._world.store_for(self._written), self._number + 1
        with rank_loss_as_failure():
            store.set(f"{self._number}", list(requests))
        own = self._own.respond(requests[0])
        others = [self._wait(store, rank) for rank in range(1, self._world.size)]
        with rank_loss_as_failure():
            store.delete(f"{self._number}")
        return [own, *others]

    def end(self) -> None:
        """Stop waiting for responses; ``request_all`` raises from now on."""
        self._ended.set()

    def _wait(self, store: SignedStore, rank: int) -> Response:
        key, started = f"{self._number}/{rank}", self._clock()
        with rank_loss_as_failure():
            while not store.has(key):
                waited = self._clock() - started
                if self._ended.wait(POLL_SECONDS) or waited > RANK_TIMEOUT_SECONDS:
                    raise TrainingFailedError(
                        reason="RankLost",
                        message=f"Rank {rank} of the trainer did not report its part of a "
                        f"{self._written} within {self._clock() - started:.0f} s",
                    )
            response: Response | RankFailure = store.get(key)
            store.delete(key)
        if isinstance(response, RankFailure):
            raise response.on(rank)
        return response


class ShardResponder(Generic[Request, Response]):
    """Another rank's side: a thread that responds while its shards may be asked about.

    Args:
        world: the ranks.
        own: this rank's shards.
        written: what of.
    """

    def __init__(self, world: World, own: Shards[Request, Response], *, written: Written) -> None:
        self._world, self._own, self._written = world, own, written
        self._ended = threading.Event()
        self._handled = 0
        # A daemon, so that a process that exits does not wait for a bucket.
        self._thread = threading.Thread(target=self._run, name=f"{written}-shards", daemon=True)

    def begin(self) -> None:
        """Start the thread."""
        self._thread.start()

    def end(self) -> None:
        """Respond to no further request."""
        self._ended.set()

    def _run(self) -> None:
        store = self._world.store_for(self._written)
        try:
            while not self._ended.wait(POLL_SECONDS):
                while self._own.busy and store.has(f"{self._handled + 1}"):
                    self._handle(store)
        except RuntimeError as error:  # rank 0 is gone; the training thread notices it, too
            log.warning("rank 0 sends no more requests: %s", str(error).splitlines()[0][:300])

    def _handle(self, store: SignedStore) -> None:
        self._handled += 1
        response: Response | RankFailure
        try:
            requests: list[Request] = store.get(f"{self._handled}")
            response = self._own.respond(requests[self._world.rank])
        except RLError as error:
            log.error("writing this rank's part of a %s failed: %s", self._written, error)
            response = RankFailure.of(error)
        store.set(f"{self._handled}/{self._world.rank}", response)
