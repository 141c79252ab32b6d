"""Supervised fine-tuning: what is trained comes from the records, and no sampler takes part.

Each record becomes a rollout without a sampler: its assistant's turns stand where a policy's would,
so that batches, their digests, replays, retention and the audit are those of every run.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

from rl_contracts import ids
from rl_contracts.documents.arrays import pack_float32, pack_int32
from rl_contracts.documents.datasets.example import Example
from rl_contracts.documents.evaluation import EvaluationResult
from rl_contracts.documents.head import RolloutHead
from rl_contracts.documents.rollout import (
    ImageSpan,
    Rollout,
    StopReason,
    Timings,
    VersionSpan,
)
from rl_contracts.documents.step_metrics import Drops
from rl_contracts.documents.task import Cause, Message, Queue, Task, TaskState
from rl_contracts.errors import Refusal, RefusedError
from rl_trainer.algorithm.drops import dropped, total
from rl_trainer.algorithm.groups import Group, Limits
from rl_trainer.algorithm.samples import Sample, sequences
from rl_trainer.context.job import Job, Progress
from rl_trainer.data.dataset import Dataset
from rl_trainer.data.prompts import asked
from rl_trainer.data.stream import TrainStream
from rl_trainer.distributed.rank_commands import ScoreSamples
from rl_trainer.distributed.share import ShareReader
from rl_trainer.model.chat_template import ChatTemplate, UntrainableError
from rl_trainer.rollouts.collect import Collected
from rl_trainer.rollouts.rank_work import DamagedError, RankWork, evaluation_failed, take
from rl_trainer.rollouts.without_samplers import WithoutSamplers

log = logging.getLogger(__name__)

NO_SAMPLER = "demonstration"
"""In the place of a sampler's id."""
TEMPERATURE = 1.0
PASSES_WITHOUT_ANY = 4
"""Give up after this many passes over the records without a trainable one."""


class Demonstrations(WithoutSamplers):
    """Collects the train stream's records as groups of one rollout each.

    Args:
        job: whose data.
        stream: the order of its records.
        template: makes tokens of them.
        limits: of usable sequences.
        reader: where this process reads the rollouts that it trains.
    """

    def __init__(
        self,
        job: Job,
        stream: TrainStream,
        *,
        template: ChatTemplate,
        limits: Limits,
        reader: ShareReader,
    ) -> None:
        super().__init__(job, reader=reader)
        self._stream, self._template, self._limits = stream, template, limits
        self._left_out = Drops()
        """Since the previous step."""

    def collect(self, progress: Progress) -> Collected:
        """Take the next step's records, and store them as tasks and rollouts.

        Raises:
            RefusedError: a record cannot be trained, or under ``onBadRecord: Skip`` none can.
            TerminatedError: SIGTERM came; nothing was stored.
        """
        started = self._job.clock()
        groups: list[Group] = []
        rollouts: list[Rollout] = []
        skipped, sequence = 0, progress.next_sequence
        while len(groups) < self._job.spec.training.prompts_per_step:
            self._job.heartbeat.check()
            task = self._stream.task(sequence, step=progress.step)
            sequence += 1
            try:
                rollouts.append(self._rollout(task))
                groups.append(_group(task, rollouts[-1]))
                skipped = 0
            except UntrainableError as error:
                skipped += 1
                refusal = self._refusal(task, str(error))
                if not self._skips or skipped > PASSES_WITHOUT_ANY * self._stream.records:
                    raise RefusedError(refusal) from error
                self._left_out = total(self._left_out, dropped(Cause.UNUSABLE))
                log.warning("left out: record %s of %s: %s", task.example, task.dataset, error)
        self._job.stores.rollouts.put(rollouts)
        self._reader.remember(rollouts)
        self._job.stores.tasks.insert([group.task for group in groups])
        progress.next_sequence = sequence
        return Collected(groups=groups, wait_seconds=self._job.clock() - started)

    def close_step(self, groups: int) -> tuple[Drops, float]:
        """Records that were left out since the previous step, and 0: the manifest asks for it."""
        drops, self._left_out = self._left_out, Drops()
        return drops, 0.0

    def evaluate(
        self, work: RankWork, datasets: Sequence[Dataset], *, step: int
    ) -> list[EvaluationResult]:
        """Mean -log π of the tokens of each source's records: the validation loss.

        Raises:
            RefusedError: as ``collect`` does.
            TrainingFailedError: an image of a record cannot be read.
        """
        return [self._evaluate(work, dataset, step=step) for dataset in datasets]

    def _evaluate(self, work: RankWork, dataset: Dataset, *, step: int) -> EvaluationResult:
        started, job = self._job.clock(), self._job
        job.heartbeat.say(f"evaluating step {step} on {dataset.source.name}")
        samples, skipped = self._samples(dataset, step=step)
        # Zeros stand where samplers write log-probabilities: the gap to them is the loss.
        try:
            take(job.team, work, samples, purpose="Score")
        except DamagedError as error:
            raise evaluation_failed(error) from error
        gap = job.team.call(
            ScoreSamples(temperature=TEMPERATURE),
            lambda: work.score(temperature=TEMPERATURE, advanced=job.heartbeat.advance),
        )
        log.info("step %d on %s: loss %.4f", step, dataset.source.name, gap.mean)
        return EvaluationResult(
            step=step,
            version=0,
            split=dataset.split,
            dataset=dataset.source.name,
            temperature=TEMPERATURE,
            loss=gap.mean,
            prompts=len(samples),
            skipped=skipped,
            tokens=gap.tokens,
            logprob_gap_mean=0.0,
            logprob_gap_max=0.0,
            seconds=job.clock() - started,
        )

    def _samples(self, dataset: Dataset, *, step: int) -> tuple[list[Sample], int]:
        """The records of a source, and how many are left out; raises as ``collect``."""
        samples, left_out = list[Sample](), list[str]()
        for sequence, example in enumerate(dataset.examples):
            self._job.heartbeat.check()
            task = self._task(dataset, example, sequence=sequence, step=step)
            try:
                samples += sequences(self._rollout(task))
            except UntrainableError as error:
                if not self._skips:
                    raise RefusedError(self._refusal(task, str(error))) from error
                left_out.append(f"{task.example}: {error}")
            self._job.heartbeat.advance()
        if not samples:
            raise RefusedError(self._refusal(task, "no record of its source can"))
        if left_out:
            log.warning(
                "%d of %d records of %s are left out, the first one %s",
                len(left_out),
                len(dataset.examples),
                dataset.source.name,
                left_out[0],
            )
        return samples, len(left_out)

    def _task(self, dataset: Dataset, example: Example, *, sequence: int, step: int) -> Task:
        """A task that is never queued."""
        job = self._job
        return Task(
            id=ids.task_id(ids.RunId(job.run), f"eval-{dataset.split}-{step}", sequence),
            run=job.run,
            queue=Queue.EVALUATION,
            sequence=sequence,
            group_size=1,
            temperature=TEMPERATURE,
            created_step=step,
            **asked(dataset, example, system_prompt=job.spec.agent.system_prompt),
        )

    def _rollout(self, task: Task) -> Rollout:
        answer = Message.model_validate({"role": "assistant", "content": task.answer})
        encoded = self._template.encode([*task.messages, answer])
        rollout = demonstration(
            task,
            encoded.tokens,
            encoded.mask,
            encoded.images,
            written_at=self._job.stores.mongo.now(),
        )
        if wrong := self._limits.fault(rollout):
            raise UntrainableError(wrong)
        return rollout

    def _refusal(self, task: Task, why: str) -> Refusal:
        return Refusal(
            field="spec.data.train" if task.split == "train" else f"spec.data.{task.split}",
            value=f"{task.dataset}: {task.example}"[:200],
            reason="RecordUntrainable",
            message=f"The record cannot be trained: {why[:300]}.",
            remedy="Correct or remove it, raise spec.agent.sampling.maxContextTokens if it is too "
            "long, or set spec.data.onBadRecord to Skip.",
        )


def _group(task: Task, rollout: Rollout) -> Group:
    done = {"state": TaskState.DONE, "attempt": rollout.attempt, "rollouts": [rollout.id]}
    return Group(task=task.model_copy(update=done), rollouts=(RolloutHead.of(rollout),))


def demonstration(
    task: Task,
    tokens: Sequence[int],
    mask: Sequence[int],
    images: Sequence[ImageSpan] = (),
    *,
    written_at: float,
) -> Rollout:
    """A conversation as a rollout with 1 in the mask where the assistant speaks.

    Its log-probabilities are 0, and its policy version, too: no policy wrote it. ``written_at`` is
    store time, from which retention counts its age.
    """
    return Rollout(
        id=ids.rollout_id(ids.TaskId(task.id), 1, 0),
        run=task.run,
        task=task.id,
        attempt=1,
        member=0,
        sampler=NO_SAMPLER,
        temperature=task.temperature,
        tokens=pack_int32(tokens),
        mask=bytes(mask),
        logprobs=pack_float32([0.0] * len(tokens)),
        spans=[
            VersionSpan(version=0, step=task.created_step, start=match.start(), end=match.end())
            for match in re.finditer(b"\1+", bytes(mask))
        ],
        images=list(images),
        text=task.answer,
        stop_reason=StopReason.STOP,
        reward=0.0,
        parts=[],
        timings=Timings(claimed_at=written_at, generate_seconds=0.0, score_seconds=0.0),
    )
