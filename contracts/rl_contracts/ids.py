"""Identifiers. Every id starts with its run; ids of a kind sort in numeric order."""

from __future__ import annotations

from typing import NewType

RunId = NewType("RunId", str)
TaskId = NewType("TaskId", str)
RolloutId = NewType("RolloutId", str)
BatchId = NewType("BatchId", str)
EvaluationId = NewType("EvaluationId", str)
PolicyId = NewType("PolicyId", str)
SamplerId = NewType("SamplerId", str)


def task_id(run: RunId, split: str, sequence: int) -> TaskId:
    """Id of the task at ``sequence`` (≥ 0) of a split's stream, e.g. ``r1.train.00000007``."""
    return TaskId(f"{run}.{split}.{sequence:08d}")


def task_sequence(task: str) -> int:
    """Position of a task in its split's stream, from its id."""
    return int(task.rpartition(".")[2])


def task_split(task: str) -> str:
    """Split of a task, or the evaluation that it belongs to, from its id."""
    return task.rsplit(".", 2)[1]


def rollout_id(task: TaskId, attempt: int, member: int) -> RolloutId:
    """Id of group member ``member`` (≥ 0) of claim ``attempt`` (≥ 1) of a task."""
    return RolloutId(f"{task}.{attempt}.{member}")


def batch_id(run: RunId, step: int, epoch: int) -> BatchId:
    """Id of the batch that produces training step ``step`` (≥ 1) in a trainer's epoch."""
    return BatchId(f"{run}.batch.{step:08d}.{epoch}")


def batch_epoch(batch: str) -> int:
    """Epoch of the trainer that formed a batch, from its id."""
    return int(batch.rpartition(".")[2])


def batch_run(batch: str) -> str:
    """Run of a batch, from its id."""
    return batch.rpartition(".batch.")[0]


def evaluation_id(run: RunId, number: int, epoch: int) -> EvaluationId:
    """Id of the evaluation after ``number`` (≥ 0) earlier results, in a trainer's epoch."""
    return EvaluationId(f"{run}.evaluation.{number:08d}.{epoch}")


def policy_id(run: RunId, version: int, epoch: int) -> PolicyId:
    """Id of the policy ``version`` (≥ 1) that a trainer's epoch published."""
    return PolicyId(f"{run}.policy.{version:08d}.{epoch}")


def sampler_id(run: RunId, pod_uid: str) -> SamplerId:
    """Id of a sampler pod's registration."""
    return SamplerId(f"{run}.sampler.{pod_uid}")
