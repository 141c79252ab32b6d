"""What one rank holds of policies: snapshots that wait, the one in work, and the last published."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Literal

from rl_contracts.stores.objects import Objects
from rl_trainer.distributed.rank_commands import Share
from rl_trainer.distributed.world import World
from rl_trainer.model import weights
from rl_trainer.model.policy import Policy
from rl_trainer.model.weights import Snapshot
from rl_trainer.publish.policy_shard import Answer, Encode, Keep, Portion, Question, Weigh, Write

MAX_THREADS = 8


def encoders() -> ThreadPoolExecutor:
    """Threads for encoding and digests."""
    threads = min(MAX_THREADS, len(os.sched_getaffinity(0)))
    return ThreadPoolExecutor(threads, thread_name_prefix="publisher")


class Portions:
    """Answers rank 0's questions about this rank's tensors, one at a time.

    Holds three copies of them at most, as long as whoever takes a snapshot drops the one that
    waited before: one that waits, one in work, and the last published one, which the next delta
    starts from.
    """

    def __init__(self, objects: Objects, executor: Executor) -> None:
        """See the class.

        Args:
            objects: the run's bucket.
            executor: for encoding and digests.
        """
        self._objects, self._executor = objects, executor
        self._lock = threading.Lock()
        self._waiting: dict[int, Snapshot] = {}
        self._own: Portion | None = None
        self._base: tuple[int, Portion] | None = None

    def take(self, number: int, tensors: Snapshot) -> None:
        """Hold a snapshot until it is asked for or dropped."""
        with self._lock:
            self._waiting[number] = tensors

    def drop(self, number: int) -> None:
        """Let a snapshot go that will not be asked for; nothing happens where there is none."""
        with self._lock:
            self._waiting.pop(number, None)

    @property
    def busy(self) -> bool:
        """Whether rank 0 may have something to ask."""
        with self._lock:
            return bool(self._waiting) or self._own is not None

    def answer(self, question: Question) -> Answer:
        """Do what is asked.

        Raises:
            RLError: what the bucket says.
        """
        match question:
            case Weigh(number=number, base=base):
                return self._begin(number).weigh(self._base_of(base))
            case Encode():
                assert self._base is not None, "only what has a finite weight is encoded"
                return self._present.encode(self._base[1])
            case Write():
                return self._present.write(question)
            case Keep(version=version):
                self._keep(version)
                return None

    @property
    def _present(self) -> Portion:
        assert self._own is not None, "the first question is Weigh"
        return self._own

    def _begin(self, number: int) -> Portion:
        with self._lock:
            tensors = self._waiting.pop(number)
        self._own = Portion(self._objects, tensors, self._executor)
        return self._own

    def _base_of(self, version: int) -> Portion | None:
        if self._base is None or self._base[0] != version:
            return None
        return self._base[1]

    def _keep(self, version: int) -> None:
        self._present.let_go()
        self._base = (version, self._present) if version else None
        self._own = None


def take(
    portions: Portions,
    order: Share,
    policy: Policy,
    *,
    precision: Literal["BF16", "FP32"],
    world: World,
) -> None:
    """Carry out an order: first let go of what is not wanted any more, then copy."""
    portions.drop(order.drop)
    portions.take(order.number, weights.portion(policy, precision=precision, world=world))
