"""What a rank does with samples: it reads and checks its share of them, and then computes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from rl_contracts.errors import IntegrityError, ObjectMissingError
from rl_contracts.stores.rollouts import RolloutStore
from rl_trainer.algorithm.assessment import Assessment
from rl_trainer.algorithm.groups import Limits
from rl_trainer.algorithm.samples import Sample, with_tokens
from rl_trainer.algorithm.step_totals import Gap, Rates, Update
from rl_trainer.distributed.rank_commands import Purpose, TakeSamples
from rl_trainer.distributed.share import ShareReader
from rl_trainer.distributed.team import Team
from rl_trainer.errors import TrainingFailedError
from rl_trainer.model.learner import Learner
from rl_trainer.rollouts.token_writer import TokenWriter


class DamagedError(Exception):
    """Rollouts of the samples cannot be trained; nothing was computed of them."""

    def __init__(self, damaged: dict[str, str]) -> None:
        name, why = next(iter(damaged.items()))
        super().__init__(f"rollout {name}: {why}")
        self.damaged = damaged
        """What is wrong, by rollout."""


class RankWork:
    """The computations of one rank; rank 0 and all others call the same ones in the same order.

    Args:
        learner: this rank's.
        rollouts: where its share is read.
        limits: of usable rollouts.
        writer: of what a step computes of each token; None: no step is made.
    """

    def __init__(
        self,
        learner: Learner,
        rollouts: RolloutStore,
        limits: Limits,
        *,
        writer: TokenWriter | None = None,
    ) -> None:
        self.learner, self._writer = learner, writer
        self.reader = ShareReader(rollouts, limits, alone=learner.world.data_ranks == 1)
        self._samples: list[Sample] = []

    def take(self, samples: Sequence[Sample], *, purpose: Purpose, step: int) -> dict[str, str]:
        """Take samples for the next computation; read this rank's share of them, and its images.

        Returns:
            What is wrong with the share's rollouts that cannot be trained, by id.

        Raises:
            StoreUnavailableError: a store does not answer.
        """
        self._samples = self.reader.attached(samples)
        share = self.learner.share(samples, purpose=purpose, step=step)
        heads = {
            samples[index].rollout: unread.head
            for index in share
            if (unread := samples[index].unread) is not None
        }
        wrong = self.reader.verify(heads)
        usable = [index for index in share if samples[index].rollout not in wrong]
        return wrong | self._read_images(usable)

    def _read_images(self, indices: Sequence[int]) -> dict[str, str]:
        """Fetch the share's images before the computation; what is wrong with them, by rollout."""
        vision = self.learner.policy.vision
        if vision is None:
            return {}
        whole = with_tokens(self._samples, indices)
        showing: dict[str, set[str]] = {}
        for at in indices:
            for image in whole[at].images:
                showing.setdefault(image.sha256, set()).add(whole[at].rollout)
        vision.begin_share(showing.keys())
        wrong: dict[str, str] = {}
        for sha256, rollouts in showing.items():
            try:
                vision.fetch(sha256)
            except (IntegrityError, ObjectMissingError) as error:
                wrong |= dict.fromkeys(rollouts, f"an image cannot be read: {error}")
        return wrong

    def train(self, *, step: int, batch: str = "", rates: Rates | None = None) -> Update:
        """Make a training step; see ``Learner.update``.

        Args:
            step: the training step.
            batch: under whose id the tokens' values are written; empty: they were before.
            rates: see ``Learner.update``.
        """
        update = self.learner.update(self._samples, step=step, rates=rates)
        if batch and self._writer is not None:
            self._writer.submit(self._samples, update.values, batch=batch)
        return dataclasses.replace(update, values={})

    def settle(self) -> None:
        """Wait until the tokens' values of the last step are written; raises what failed."""
        if self._writer is not None:
            self._writer.settle()

    def close(self) -> None:
        """End its thread."""
        if self._writer is not None:
            self._writer.close()

    def assess(self) -> dict[str, Assessment]:
        """See ``Learner.assess``."""
        return self.learner.assess(self._samples)

    def score(self, *, temperature: float, advanced: Callable[[], None] = lambda: None) -> Gap:
        """See ``Learner.score``."""
        return self.learner.score(self._samples, temperature=temperature, advanced=advanced)


def evaluation_failed(error: DamagedError) -> TrainingFailedError:
    """What ends an attempt that cannot evaluate."""
    return TrainingFailedError(reason="EvaluationFailed", message=f"{error}.")


def take(
    team: Team, work: RankWork, samples: list[Sample], *, purpose: Purpose, step: int = 0
) -> None:
    """Have every rank take samples; called on rank 0. Then the computation may begin.

    Raises:
        DamagedError: rollouts are missing, or are not what the samples were planned from.
        TrainingFailedError: another rank failed or is gone.
        StoreUnavailableError: a store does not answer.
    """
    answers = team.results(
        TakeSamples(samples=samples, purpose=purpose, step=step),
        lambda: work.take(samples, purpose=purpose, step=step),
    )
    damaged: dict[str, str] = {}
    for rank, answer in enumerate(answers):
        for rollout, why in answer.items():
            damaged.setdefault(rollout, f"{why} (read by rank {rank})")
    if damaged:
        raise DamagedError(damaged)
