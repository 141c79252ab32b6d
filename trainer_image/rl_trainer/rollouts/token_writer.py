"""Writes what a step computed of each generated token, for viewers, beside training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from torch import Tensor

from rl_contracts.documents.token_values import SequenceValues
from rl_contracts.stores.token_values import TokenValueStore
from rl_trainer.algorithm.samples import Sample
from rl_trainer.distributed.world import World


class TokenWriter:
    """Writes the values of a data rank on a thread of its own, one step at a time.

    A step waits for the write of the step before, so that a slow bucket costs time and not memory.
    A process that is killed may lose what its last step computed.

    Args:
        store: where they are written.
        world: the ranks; of those that compute the same tokens the first one writes.
    """

    def __init__(self, store: TokenValueStore, *, world: World) -> None:
        self._store, self._rank = store, world.data_rank
        self._writes = world.rank % (world.sizes.tp * world.sizes.cp) == 0
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="token-values")
        self._job: Future[None] | None = None

    def submit(
        self, samples: Sequence[Sample], values: Mapping[int, Tensor], *, batch: str
    ) -> None:
        """Write the values of some samples of a batch; raises the error of an earlier write.

        Args:
            samples: all of the batch, in its order.
            values: float16 ``[G, 2]`` of samples, by index: gaps and entropies.
            batch: its id.
        """
        self.settle()
        if values and self._writes:
            sequences = sequence_values(samples, values)
            self._job = self._executor.submit(self._write, batch, sequences)

    def settle(self) -> None:
        """Wait until nothing is being written; raises the error of a write that failed."""
        job, self._job = self._job, None
        if job is not None:
            job.result()

    def close(self) -> None:
        """Stop the thread once it has written what it holds."""
        self._executor.shutdown(wait=True)

    def _write(self, batch: str, values: Sequence[SequenceValues]) -> None:
        self._store.put(batch, data_rank=self._rank, values=values)


def sequence_values(
    samples: Sequence[Sample], values: Mapping[int, Tensor]
) -> list[SequenceValues]:
    """Values of samples with their places in the rollouts, in the order of the samples."""
    before: dict[str, int] = {}
    placed = []
    for index, sample in enumerate(samples):
        first = before.get(sample.rollout, 0)
        before[sample.rollout] = first + sample.num_generated
        if index in values:
            packed = values[index].numpy().astype("<f2")
            placed.append(
                SequenceValues(
                    rollout=sample.rollout,
                    first=first,
                    gaps=packed[:, 0].tobytes(),
                    entropies=packed[:, 1].tobytes(),
                )
            )
    return placed
