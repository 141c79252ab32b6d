"""Builders of valid documents for tests: say only what matters."""

from __future__ import annotations

from typing import Any

from rl_contracts import ids
from rl_contracts.documents.arrays import pack_float32, pack_int32
from rl_contracts.documents.batch import Batch, BatchMember
from rl_contracts.documents.evaluation import EvaluationResult
from rl_contracts.documents.head import RolloutHead
from rl_contracts.documents.rollout import (
    Rollout,
    StopReason,
    Timings,
    TokenRange,
    Turn,
    VersionSpan,
)
from rl_contracts.documents.run import Run
from rl_contracts.documents.sampler import Sampler, SamplerState
from rl_contracts.documents.saved_turn import SavedTurn
from rl_contracts.documents.step_metrics import StepMetrics
from rl_contracts.documents.task import Message, Queue, Task

DEMO_KEYS = {
    "accuracyBefore",
    "accuracyAfter",
    "policyVersions",
    "steps",
    "seconds",
    "trainerSeconds",
    "maxStalenessSeen",
    "logprobGapMean",
    "tokensPerSecond",
    "trainerWaitShare",
    "finalModel",
}
"""Keys of ``demo.json``, which the demo promises."""

RUN = ids.RunId("run1")


def a_run(**changes: Any) -> Run:
    values: dict[str, Any] = {"id": RUN, "namespace": "ns", "job": "job", "created_at": 1.0}
    return Run.model_validate({**values, "steps": 10, **changes})


def a_task(sequence: int = 0, **changes: Any) -> Task:
    values: dict[str, Any] = {
        "id": ids.task_id(RUN, "train", sequence),
        "run": RUN,
        "queue": Queue.TRAIN,
        "sequence": sequence,
        "example": f"e{sequence}",
        "messages": [Message(role="user", content="1+1=")],
        "answer": "2",
        "group_size": 2,
        "temperature": 1.0,
        "created_step": 0,
    }
    return Task.model_validate({**values, **changes})


def a_rollout(task: Task, member: int = 0, **changes: Any) -> Rollout:
    values: dict[str, Any] = {
        "id": ids.rollout_id(ids.TaskId(task.id), task.attempt, member),
        "run": task.run,
        "task": task.id,
        "attempt": task.attempt,
        "member": member,
        "sampler": "s",
        "temperature": task.temperature,
        "tokens": pack_int32([5, 6, 7, 2]),
        "mask": b"\0\0\1\1",
        "logprobs": pack_float32([0, 0, -0.5, -0.25]),
        "spans": [VersionSpan(version=1, step=0, start=2, end=4)],
        "text": "2",
        "stop_reason": StopReason.STOP,
        "reward": 1.0,
        "parts": [],
        "timings": Timings(claimed_at=1.0, generate_seconds=0.1, score_seconds=0.0),
    }
    return Rollout.model_validate({**values, **changes})


def a_head(task: Task, member: int = 0, **changes: Any) -> RolloutHead:
    """The head of ``a_rollout``."""
    return RolloutHead.of(a_rollout(task, member, **changes))


def a_batch(step: int, parent: str | None, **changes: Any) -> Batch:
    values: dict[str, Any] = {
        "id": ids.batch_id(RUN, step, 1),
        "run": RUN,
        "step": step,
        "epoch": 1,
        "parent": parent,
        "tasks": [],
        "members": [BatchMember(rollout="r", advantage=1.0)],
        "next_sequence": step,
        "formed_at": 1.0,
    }
    return Batch.model_validate({**values, **changes})


def a_sampler(name: str = "a", **changes: Any) -> Sampler:
    values: dict[str, Any] = {
        "id": ids.sampler_id(RUN, name),
        "run": RUN,
        "pool": "main",
        "pod": f"pod-{name}",
        "state": SamplerState.READY,
        "registered_at": 1.0,
        "heartbeat_at": 1.0,
    }
    return Sampler.model_validate({**values, **changes})


def a_step(step: int, **changes: Any) -> StepMetrics:
    empty = ("drops", "reward_parts", "staleness", "seconds", "tracking_behind", "experts")
    values: dict[str, Any] = dict.fromkeys(StepMetrics.model_fields, 0)
    values |= {name: {} for name in empty} | {"gpus": []}
    return StepMetrics.model_validate({**values, "step": step, "replayed": False, **changes})


def a_result(step: int, **changes: Any) -> EvaluationResult:
    """Of an evaluation after ``step``."""
    values = {
        "step": step,
        "version": step + 1,
        "dataset": "test",
        "temperature": 1.0,
        "accuracy": 0.5,
        "prompts": 100,
        "samples_per_prompt": 4,
        "pass_at": {"1": 0.5, "2": 0.6, "4": 0.7},
        "tokens": 1000,
        "versions": {str(step + 1): 1000},
        "logprob_gap_mean": 1e-6,
        "logprob_gap_max": 1e-5,
        "seconds": 10.0,
    }
    return EvaluationResult.model_validate(values | changes)


def results_of_one_name(step: int) -> list[EvaluationResult]:
    """Of a validation and a test source that are both named ``gsm8k``, at two temperatures."""
    return [
        a_result(step, dataset="gsm8k", split=split, temperature=temperature, accuracy=accuracy)
        for split, temperature, accuracy in (
            ("validation", 0.0, 0.9),
            ("validation", 1.0, 0.5),
            ("test", 0.0, 0.2),
            ("test", 1.0, 0.1),
        )
    ]


def a_saved_turn(
    task: Task, number: int, *, member: int = 0, text: str = "ok", **changes: Any
) -> SavedTurn:
    """A turn of two generated tokens, behind two shown ones where it is the first."""
    shown = 0 if number else 2
    rollout = ids.rollout_id(ids.TaskId(task.id), task.attempt, member)
    values: dict[str, Any] = {
        "id": f"{rollout}.{number:06d}",
        "run": task.run,
        "task": task.id,
        "attempt": task.attempt,
        "member": member,
        "rollout": rollout,
        "sampler": "s",
        "temperature": task.temperature,
        "claimed_at": 1.0,
        "number": number,
        "through": number + 1,
        "after": number - 1 if number else None,
        "tokens": pack_int32([*[5] * shown, 7, 2]),
        "mask": bytes(shown) + b"\1\1",
        "logprobs": pack_float32([*[0.0] * shown, -0.5, -0.25]),
        "spans": [VersionSpan(version=1, step=0, start=shown, end=shown + 2)],
        "images": [],
        "turn": Turn(
            request=TokenRange(start=0, end=shown),
            response=TokenRange(start=shown, end=shown + 2),
            stop_reason=StopReason.STOP,
            text=text,
        ),
        "shown": "[]",
        "heard": number,
    }
    return SavedTurn.model_validate(values | changes)
