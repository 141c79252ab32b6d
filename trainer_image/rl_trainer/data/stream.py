"""The train tasks of a run: a pure function of their position."""

from __future__ import annotations

from collections.abc import Sequence

from rl_contracts.documents.run import TrainOrder
from rl_contracts.documents.task import Queue, Task
from rl_contracts.ids import RunId, task_id
from rl_contracts.spec.data import StoredRollouts, TrainSource
from rl_contracts.spec.resources import RLJobSpec
from rl_trainer.data.dataset import Dataset
from rl_trainer.data.mixture import Mixture
from rl_trainer.data.prompts import asked

SPLIT = "train"


class TrainStream:
    """The stream of a run's train tasks."""

    def __init__(self, *, run: str, spec: RLJobSpec, datasets: Sequence[Dataset]) -> None:
        """Mix the training sources, in the manifest's order."""
        self._run, self._spec, self._datasets = run, spec, datasets
        order = train_order(spec, datasets)
        self.mixture = Mixture(
            names=[dataset.source.name for dataset in datasets],
            weights=order.weights,
            sizes=[len(dataset.examples) for dataset in datasets],
            seed=order.seed or 0,
            shuffle=order.seed is not None,
        )

    @property
    def records(self) -> int:
        """Records of all sources together."""
        return sum(len(dataset.examples) for dataset in self._datasets)

    def task(self, sequence: int, *, step: int) -> Task:
        """The task at a position; ``step`` is how many steps were made when it is inserted."""
        place = self.mixture.at(sequence)
        dataset = self._datasets[place.source]
        example = dataset.examples[place.record]
        return Task(
            id=task_id(RunId(self._run), SPLIT, sequence),
            run=self._run,
            queue=Queue.TRAIN,
            sequence=sequence,
            dataset_epoch=place.epoch,
            group_size=self._spec.algorithm.group_size,
            baseline=self._spec.algorithm.estimator.kind == "ReMax",
            max_attempts=self._spec.rollouts.max_attempts,
            minimum=self._spec.rollouts.completion.minimum or 0,
            deadline_seconds=self._spec.rollouts.completion.deadline_seconds or 0,
            temperature=self._spec.agent.sampling.temperature,
            created_step=step,
            **asked(dataset, example, system_prompt=self._spec.agent.system_prompt),
        )


def train_order(spec: RLJobSpec, datasets: Sequence[Dataset]) -> TrainOrder:
    """The order of the records of the training sources."""
    seed = spec.training.seed if spec.data.seed is None else spec.data.seed
    weights = [_weight(dataset) for dataset in datasets]
    return TrainOrder(weights=weights, seed=seed if spec.data.shuffle else None)


def _weight(dataset: Dataset) -> float:
    assert isinstance(dataset.source, TrainSource | StoredRollouts)
    return dataset.source.weight
