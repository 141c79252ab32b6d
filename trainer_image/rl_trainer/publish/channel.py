"""Rank 0's questions to the other ranks' publishers, beside training.

Over the key-value store through which the ranks met: a collective on a thread of its own would have
to keep its place among those of training.
"""

from __future__ import annotations

import base64
import logging
import pickle
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch._C._distributed_c10d import Store

from rl_contracts.errors import RLError
from rl_trainer.distributed.team import lost_as_failure
from rl_trainer.distributed.world import World
from rl_trainer.errors import TrainingFailedError
from rl_trainer.publish.policy_shard import Answer, Question
from rl_trainer.publish.policy_shards import Portions

log = logging.getLogger(__name__)

PURPOSE = "policies"
POLL_SECONDS = 0.05
SILENT_SECONDS = 3600.0
"""A rank that has let rank 0 wait so long is taken for dead; one that ends is known at once."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Instead of an answer."""

    text: str


class Asking:
    """Rank 0's side."""

    def __init__(
        self, world: World, own: Portions, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """See the class.

        Args:
            world: the ranks.
            own: rank 0's.
            clock: seconds, for the deadline.
        """
        self._world, self._own, self._clock = world, own, clock
        self._asked = 0
        self._ended = threading.Event()

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """Put a question to each rank, by rank; what each answers.

        Raises:
            TrainingFailedError: another rank failed, or is silent; or ``end`` was called.
            RLError: what this rank's own answer raises.
        """
        if self._world.size == 1:
            return [self._own.answer(questions[0])]
        store, self._asked = self._world.words(PURPOSE), self._asked + 1
        with lost_as_failure():
            store.set(f"{self._asked}", packed(list(questions)))
        own = self._own.answer(questions[0])
        others = [self._wait(store, rank) for rank in range(1, self._world.size)]
        with lost_as_failure():
            store.delete_key(f"{self._asked}")
        return [own, *others]

    def end(self) -> None:
        """Wait for nobody any more."""
        self._ended.set()

    def _wait(self, store: Store, rank: int) -> Answer:
        key, began = f"{self._asked}/{rank}", self._clock()
        with lost_as_failure():
            while not store.check([key]):
                if self._ended.wait(POLL_SECONDS) or self._clock() - began > SILENT_SECONDS:
                    raise TrainingFailedError(
                        reason="RankLost",
                        message=f"Rank {rank} of the trainer did not tell of its part of a policy "
                        f"within {self._clock() - began:.0f} s",
                    )
            found: Answer | Failure = unpacked(store.get(key))
            store.delete_key(key)
        if isinstance(found, Failure):
            raise TrainingFailedError(
                reason="RankFailed", message=f"Rank {rank} of the trainer: {found.text}"
            )
        return found


class Answering:
    """Another rank's side: a thread that answers while snapshots wait or are in work."""

    def __init__(self, world: World, own: Portions) -> None:
        """See the class; ``begin`` starts it."""
        self._world, self._own = world, own
        self._ended = threading.Event()
        self._answered = 0
        # A daemon: who ends does not wait for a bucket.
        self._thread = threading.Thread(target=self._run, name="portions", daemon=True)

    def begin(self) -> None:
        """Answer from now on."""
        self._thread.start()

    def end(self) -> None:
        """Answer nothing more."""
        self._ended.set()

    def _run(self) -> None:
        store = self._world.words(PURPOSE)
        try:
            while not self._ended.wait(POLL_SECONDS):
                while self._own.busy and store.check([f"{self._answered + 1}"]):
                    self._answer(store)
        except RuntimeError as error:  # the thread that trains finds out by itself
            log.warning("rank 0 asks no more: %s", str(error).splitlines()[0][:300])

    def _answer(self, store: Store) -> None:
        self._answered += 1
        questions: list[Question] = unpacked(store.get(f"{self._answered}"))
        found: Answer | Failure
        try:
            found = self._own.answer(questions[self._world.rank])
        except RLError as error:
            log.error("publishing: %s", error)
            found = Failure(f"{type(error).__name__}: {error}"[:500])
        store.set(f"{self._answered}/{self._world.rank}", packed(found))


def packed(value: object) -> str:
    """A value as the store takes it; the other ranks are as much to be trusted as in training."""
    return base64.b64encode(pickle.dumps(value)).decode()


def unpacked(stored: bytes) -> Any:
    """The value of ``packed``."""
    return pickle.loads(base64.b64decode(stored))
