"""An earlier run's stored groups of rollouts as a source of training data.

Each group stands in the stream by the id of its task. The tasks are listed once, when an attempt
begins, so that a position means the same group in every attempt; rollouts are read at their turn.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rl_contracts.documents.datasets.example import Example
from rl_contracts.documents.run import Run
from rl_contracts.documents.task import Task
from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.spec.data import StoredRollouts
from rl_contracts.stores import stored_groups
from rl_contracts.stores.connect import Stores
from rl_trainer.context.job import Job
from rl_trainer.data.dataset import Dataset
from rl_trainer.data.spool import Spool

log = logging.getLogger(__name__)

AT_ONCE = 256
"""Tasks that are read at a time."""
SHOWN = 3
"""Left-out groups that the status names."""


def read_groups(job: Job, run: Run, folder: Path, source: StoredRollouts) -> Dataset:
    """The groups of the earlier run, in its order.

    Args:
        job: that trains them.
        run: of this job; the earlier one must be of its namespace.
        folder: where the list of groups goes.
        source: names the earlier run.

    Raises:
        RefusedError: there is no such run, it has not ended, has no groups any more, or groups
            that this job cannot train.
        StoreUnavailableError: the document store does not answer.
    """
    refusal = stored_groups.refusal(job.stores, source.run_id, namespace=run.namespace)
    if refusal is not None:
        raise RefusedError(refusal)
    reading = _Reading(job, source.run_id)
    groups = Spool(folder / "rollouts.spool", reading.examples())
    if not len(groups):
        raise RefusedError(_purged(source.run_id, reading.left_out))
    return Dataset(
        source=source,
        split="train",
        examples=groups,
        skipped=reading.skipped,
        first_skipped=tuple(reading.left_out),
        sha256=groups.sha256,
    )


@dataclass(slots=True)
class _Reading:
    job: Job
    run: str
    skipped: int = 0
    left_out: list[str] = field(default_factory=list)

    def examples(self) -> Iterator[Example]:
        """One for each group whose rollouts are still stored."""
        stores, names = self.job.stores, stored_groups.listed(self.job.stores, self.run)
        for first in range(0, len(names), AT_ONCE):
            self.job.heartbeat.check()
            tasks = stores.tasks.get(names[first : first + AT_ONCE])
            present = _present(stores, list(tasks.values()))
            for name in names[first : first + AT_ONCE]:
                task = tasks.get(name)
                if task is None or not present.issuperset(task.rollouts):
                    self._leave_out(name)
                    continue
                _check(self.job, task)
                yield _example(task)

    def _leave_out(self, name: str) -> None:
        problem = f"{name}: its rollouts were deleted"
        if self.job.spec.data.on_bad_record == "Fail":
            raise RefusedError(_purged(name, [problem]))
        self.skipped += 1
        if len(self.left_out) < SHOWN:
            self.left_out.append(problem)


def _present(stores: Stores, tasks: Sequence[Task]) -> set[str]:
    return stores.rollouts.present([name for task in tasks for name in task.rollouts])


def _example(task: Task) -> Example:
    return Example(
        id=task.id,
        messages=tuple(task.messages),
        answer=task.answer,
        scorer=task.scorer,
        answer_schema=task.answer_schema,
        scenario=tuple(task.scenario),
        fields=task.fields,
    )


def _check(job: Job, task: Task) -> None:
    """Refuse groups of another size or temperature than the manifest's.

    Rules of estimators read the one, and stored log-probabilities belong to the other.
    """
    algorithm, sampling = job.spec.algorithm, job.spec.agent.sampling
    wrong = ""
    if task.group_size != algorithm.group_size:
        wrong = f"has groups of {task.group_size} rollouts"
        remedy = f"Set spec.algorithm.groupSize to {task.group_size}; it is {algorithm.group_size}."
    elif task.temperature != sampling.temperature:
        wrong = f"was sampled at temperature {task.temperature:g}"
        remedy = (
            f"Set spec.agent.sampling.temperature to {task.temperature:g}; it is "
            f"{sampling.temperature:g}."
        )
    if wrong:
        run, message = task.run, f"The run {wrong}, e.g. {task.id}."
        raise RefusedError(stored_groups.refused(run, "RolloutsDiffer", message, remedy))


def check_vocabulary(job: Job, sha256: str) -> None:
    """Compare the tokens of the earlier run, if the job trains one, with those of its model.

    Args:
        job: that trains it.
        sha256: of this model's tokens and their ids; see ``Run.vocabulary``.

    Raises:
        RefusedError: they are not the same, or the run does not say.
    """
    source = job.spec.data.rollouts
    if source is None:
        return
    earlier = job.stores.runs.get(source.run_id)
    theirs = earlier.vocabulary if earlier is not None else ""
    if theirs == sha256:
        return
    message = (
        "The run was sampled with another tokenizer: its tokens mean something else."
        if theirs
        else "The run does not say which tokens its model has: its trainer never loaded it, or is "
        "of a release that did not record it."
    )
    raise RefusedError(
        stored_groups.refused(
            source.run_id,
            "VocabularyDiffers",
            message,
            "Name the run's own model or one with the same tokens in spec.model.uri, or name "
            "another run.",
        )
    )


def _purged(value: str, problems: Sequence[str]) -> Refusal:
    return stored_groups.refused(
        value,
        "RolloutsPurged",
        f"Rollouts of the run are no longer stored: {'; '.join(problems)[:300]}.",
        "Set spec.data.onBadRecord to Skip to train the others, or name another run; "
        "spec.lifecycle.retention of a job says how long they are kept.",
    )
