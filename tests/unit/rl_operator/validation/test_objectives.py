"""Jobs that learn from demonstrations: no samplers, no reward, and nothing said of either."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.status import RLJobStatus
from rl_operator.attempts import start_gate
from rl_operator.state.progress import Reading
from rl_operator.status.job_conditions import compute
from rl_operator.status.status_input import StatusInput
from rl_operator.validation.refusals import of_spec
from tests.samples.documents import a_step
from tests.unit.rl_operator.builders import (
    NOW,
    a_job_object,
    a_pod,
    a_reading,
    a_run_document,
    a_snapshot,
    a_spec,
)

SECTIONS: dict[str, Any] = {
    "algorithm": {"objective": "SFT"},
    "samplers": [],
    "reward": {},
    "training": {"steps": 60, "evaluation": {"everySteps": 30}},
}
STARTED = RLJobStatus(attempt=1, start_time="2026-01-01T00:00:00Z")


def a_status_input(status: RLJobStatus, reading: Reading, **parts: Any) -> StatusInput:
    job = a_job_object(status, **SECTIONS)
    return StatusInput(snapshot=a_snapshot(job=job, **parts), reading=reading, bucket="b", now=NOW)


def test_supervised_trainer_waits_for_no_samplers() -> None:
    snapshot = a_snapshot(job=a_job_object(**SECTIONS))
    assert start_gate.find_shortfalls(snapshot, a_spec(**SECTIONS), a_reading()) == ()


@pytest.mark.parametrize(
    ("status_input", "phase", "reason"),
    [
        (a_status_input(RLJobStatus(), a_reading()), "Starting", "TrainerStarting"),
        (a_status_input(STARTED, a_reading(), pods=(a_pod(),)), "Starting", "TrainerStarting"),
        (
            a_status_input(STARTED, a_reading(a_run_document(epoch=1)), pods=(a_pod(),)),
            "Running",
            "Running",
        ),
    ],
    ids=["before", "no run yet", "at work"],
)
def test_states_of_a_supervised_job(status_input: StatusInput, phase: str, reason: str) -> None:
    status = compute(status_input)
    ready = next(condition for condition in status.conditions if condition.type == "Ready")
    assert (status.phase, ready.reason) == (phase, reason)


def test_supervised_job_has_no_sampler_conditions() -> None:
    run = a_run_document(step=3, steps=60, latest=a_step(3, loss=0.5, time=NOW), progress_at=NOW)
    status = compute(a_status_input(STARTED, a_reading(run), pods=(a_pod(),)))
    condition_types = {condition.type for condition in status.conditions}
    assert condition_types == {"Ready", "TrainerReady", "StorageReachable", "StateStoreReachable"}
    assert (status.progress.step, status.progress.reward, status.progress.staleness) == (
        3,
        None,
        None,
    )
    assert (status.samplers.desired, status.weights.version) == (0, 0)
    assert next(
        condition for condition in status.conditions if condition.type == "Ready"
    ).message == ("The trainer is running.")


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"agent": {"kind": "ToolLoop"}}, "spec.agent.kind", "ToolLoop"),
        ({"agent": {"sampling": {"temperature": 0.5}}}, "spec.agent.sampling.temperature", "0.5"),
        (
            {"agent": {"sampling": {"maxTokensPerTurn": 64}}},
            "spec.agent.sampling.maxTokensPerTurn",
            "64",
        ),
        ({"algorithm": {"objective": "SFT", "groupSize": 4}}, "spec.algorithm.groupSize", "4"),
        (
            {"algorithm": {"objective": "SFT", "loss": {"kind": "GSPO"}}},
            "spec.algorithm.loss.kind",
            "GSPO",
        ),
        ({"algorithm": {"objective": "SFT", "kl": {}}}, "spec.algorithm.kl", None),
        (
            {"algorithm": {"objective": "SFT", "offPolicy": {"maxStaleness": 3}}},
            "spec.algorithm.offPolicy.maxStaleness",
            "3",
        ),
        ({"rollouts": {"maxAttempts": 7}}, "spec.rollouts.maxAttempts", "7"),
        ({"weightSync": {"everySteps": 2}}, "spec.weightSync.everySteps", "2"),
        (
            {"training": {"steps": 60, "evaluation": {"samplesPerPrompt": 2}}},
            "spec.training.evaluation.samplesPerPrompt",
            "2",
        ),
        ({"sandbox": {}}, "spec.sandbox", "set"),
        (
            {"training": {"steps": 60, "tracking": {"traces": {"endpoint": "http://a/v1/traces"}}}},
            "spec.training.tracking.traces",
            "http://a/v1/traces",
        ),
        ({"code": {"configMapRef": {"name": "mine"}}}, "spec.code.configMapRef", None),
        (
            {
                "data": {
                    "train": [{"name": "a", "uri": "s3://abc/a.jsonl", "columns": {"scorer": "s"}}]
                }
            },
            "spec.data.train[0].columns.scorer",
            "s",
        ),
    ],
)
def test_options_that_sft_does_not_read_are_refused(
    changes: dict[str, Any], field: str, value: str | None
) -> None:
    refusal = next(of_spec(a_spec(**(SECTIONS | changes))))
    assert (refusal.reason, refusal.field) == ("OptionUnused", field)
    assert value is None or refusal.value == value
    assert refusal.remedy == "Remove it."


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"agent": {"systemPrompt": "Be brief.", "sampling": {"maxContextTokens": 4096}}},
        {"agent": {"sampling": {"maxContextTokens": 256, "maxTokensPerTurn": 64}}},
        {"algorithm": {"objective": "SFT", "loss": {"aggregation": "SequenceMean"}}},
        {"training": {"steps": 9, "passesPerStep": 2, "promptsPerStep": 8, "promptsPerUpdate": 4}},
    ],
)
def test_options_that_sft_reads_pass(changes: dict[str, Any]) -> None:
    assert list(of_spec(a_spec(**(SECTIONS | changes)))) == []


@pytest.mark.parametrize("without", ["samplers", "reward"])
def test_any_other_job_needs_samplers_and_a_reward(without: str) -> None:
    given = a_spec().model_dump(by_alias=True)
    del given[without]
    with pytest.raises(ValidationError, match="must not be empty"):
        RLJobSpec.model_validate(given)


@pytest.mark.parametrize(
    ("algorithm", "reason", "field"),
    [
        (
            {"objective": "Distillation", "teacher": "s3://abc/t", "loss": {"kind": "GSPO"}},
            "OptionUnused",
            "spec.algorithm.loss.kind",
        ),
        (
            {
                "objective": "Distillation",
                "teacher": "s3://abc/t",
                "offPolicy": {"correction": {"kind": "TIS"}},
            },
            "OptionUnused",
            "spec.algorithm.offPolicy.correction.kind",
        ),
    ],
)
def test_what_distillation_does_not_read_is_refused(
    algorithm: dict[str, Any], reason: str, field: str
) -> None:
    refusal = next(of_spec(a_spec(algorithm=algorithm)))
    assert (refusal.reason, refusal.field) == (reason, field)


def test_a_teacher_is_all_that_distillation_needs() -> None:
    algorithm = {
        "objective": "Distillation",
        "teacher": "s3://abc/t",
        "groupSize": 1,
        "offPolicy": {"maxStaleness": 3},
        "loss": {"aggregation": "SequenceMean"},
    }
    assert list(of_spec(a_spec(algorithm=algorithm))) == []
