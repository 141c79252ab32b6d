"""The order in which examples are trained: a pure function of seed and sequence number."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from dataclasses import dataclass

from rl_contracts.documents.dataset import Example
from rl_contracts.documents.task import Queue, Task
from rl_contracts.ids import RunId, task_id
from rl_contracts.spec.resources import RLJobSpec
from rl_trainer.prompts import messages

SPLIT = "train"


@functools.lru_cache(maxsize=4)
def _order(size: int, seed: int, pass_number: int) -> tuple[int, ...]:
    order = list(range(size))
    random.Random(f"{seed}/{pass_number}").shuffle(order)
    return tuple(order)


def position(sequence: int, *, size: int, seed: int) -> int:
    """Index of the example at ``sequence`` (≥ 0) of the endless stream over ``size`` examples.

    Each pass over the data is a shuffle of its own: every example occurs once in it.
    """
    pass_number, offset = divmod(sequence, size)
    return _order(size, seed, pass_number)[offset]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainStream:
    """The stream of a run's train tasks."""

    run: str
    spec: RLJobSpec
    examples: Sequence[Example]

    def task(self, sequence: int, *, step: int) -> Task:
        """The task at a position; ``step`` is how many steps were made when it is inserted."""
        size, seed = len(self.examples), self.spec.training.seed
        example = self.examples[position(sequence, size=size, seed=seed)]
        return Task(
            id=task_id(RunId(self.run), SPLIT, sequence),
            run=self.run,
            queue=Queue.TRAIN,
            sequence=sequence,
            example=example.id,
            messages=messages(example, system_prompt=self.spec.agent.system_prompt),
            answer=example.answer,
            group_size=self.spec.algorithm.group_size,
            temperature=self.spec.agent.sampling.temperature,
            created_step=step,
        )
