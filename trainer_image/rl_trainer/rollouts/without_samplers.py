"""What collects the groups of a step where no sampler makes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rl_contracts.documents.batch import Batch
from rl_contracts.documents.step_metrics import Drops
from rl_contracts.errors import IntegrityError
from rl_trainer.algorithm.groups import Group
from rl_trainer.context.job import Job, Progress
from rl_trainer.distributed.share import ShareReader
from rl_trainer.rollouts.collect import Collected


class WithoutSamplers:
    """Makes each step's groups itself, at the positions of the train stream; see ``Collector``.

    Args:
        job: whose data.
        reader: where this process reads the rollouts that it trains.
    """

    def __init__(self, job: Job, *, reader: ShareReader) -> None:
        self._job, self._reader = job, reader
        self._skips = job.spec.data.on_bad_record == "Skip"

    def collect(self, progress: Progress) -> Collected:
        """Take the next step's groups, and store them as tasks and rollouts."""
        raise NotImplementedError

    def recall(self, progress: Progress) -> None:
        """Do nothing: the position in the stream alone decides what is next."""

    def lose(self, groups: Sequence[Group], damaged: Mapping[str, str]) -> None:
        """Raise IntegrityError: what was just stored is damaged, and no sampler makes another."""
        name, why = next(iter(damaged.items()))
        raise IntegrityError(
            f"rollout {name} of this step was just stored and cannot be trained: {why}. Find what "
            "deletes or changes the run's files and documents, such as a rule of the bucket"
        )

    @property
    def filtered(self) -> Counter[str]:
        """Groups filtered out since the previous step, by reason: none."""
        return Counter()

    def close_step(self, groups: int) -> tuple[Drops, float]:
        """Nothing is lost."""
        return Drops(), 0.0

    def retire(self, groups: list[Group], batch: Batch) -> None:
        """Take trained groups out of the queue; their step must be committed."""
        self._reader.forget([name for group in groups for name in group.task.rollouts])
        self._job.stores.tasks.retire([group.task.id for group in groups])

    def check(self) -> None:
        """Do nothing: there is no thread that could fail."""

    def close(self, *, wait: bool) -> None:
        """Do nothing: there is no thread to end."""
