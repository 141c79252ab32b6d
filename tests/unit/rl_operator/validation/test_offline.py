"""Jobs that train stored rollouts: nothing is sampled, and what only samplers read is refused."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.spec.resources import RLJobSpec
from rl_operator.attempts import start_gate
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
from tests.unit.rl_operator.validation.test_objectives import STARTED

SECTIONS: dict[str, Any] = {
    "data": {"rollouts": {"runId": "earlier"}},
    "samplers": [],
    "reward": {},
    "training": {"epochs": 1},
}


def stored(**changes: Any) -> RLJobSpec:
    algorithm = {"objective": "Offline", **changes.pop("algorithm", {})}
    return a_spec(**{**SECTIONS, **changes, "algorithm": algorithm})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"algorithm": {"groupSize": 4, "loss": {"kind": "GSPO"}, "kl": {}}},
        {"algorithm": {"offPolicy": {"correction": {"kind": "TIS", "cap": 3}}}},
        {"algorithm": {"estimator": {"kind": "GAE"}, "critic": {}, "entropyCoefficient": 0.01}},
        {"algorithm": {"experts": {"zLossCoefficient": 0.1}}},
        {"agent": {"sampling": {"temperature": 0.7, "maxContextTokens": 4096}}},
        {"training": {"steps": 9, "lora": {"rank": 4}, "tracking": {"tensorBoard": True}}},
    ],
)
def test_options_that_offline_training_reads_pass(changes: dict[str, Any]) -> None:
    assert list(of_spec(stored(**changes))) == []


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"agent": {"kind": "ToolLoop"}}, "spec.agent.kind"),
        ({"agent": {"systemPrompt": "Be brief."}}, "spec.agent.systemPrompt"),
        (
            {"algorithm": {"offPolicy": {"maxStaleness": 3}}},
            "spec.algorithm.offPolicy.maxStaleness",
        ),
        ({"algorithm": {"experts": {"routing": "Replay"}}}, "spec.algorithm.experts.routing"),
        ({"rollouts": {"maxAttempts": 7}}, "spec.rollouts.maxAttempts"),
        ({"weightSync": {"everySteps": 2}}, "spec.weightSync.everySteps"),
        (
            {"training": {"epochs": 1, "evaluation": {"samplesPerPrompt": 2}}},
            "spec.training.evaluation.samplesPerPrompt",
        ),
        (
            {"data": {"rollouts": {"runId": "earlier"}, "images": {}}},
            "spec.data.images",
        ),
        ({"sandbox": {}}, "spec.sandbox"),
        ({"code": {"configMapRef": {"name": "mine"}}}, "spec.code.configMapRef"),
    ],
)
def test_options_that_only_samplers_read_are_refused(changes: dict[str, Any], field: str) -> None:
    refusal = next(of_spec(stored(**changes)))
    assert (refusal.reason, refusal.field) == ("OptionUnused", field)
    assert "algorithm.objective Offline" in refusal.message


def test_an_offline_job_shows_stored_rewards_and_no_staleness() -> None:
    job = a_job_object(STARTED, **SECTIONS, algorithm={"objective": "Offline"})
    latest = a_step(3, reward_mean=0.5, staleness_max=2, time=NOW)
    run = a_run_document(step=3, steps=60, latest=latest, progress_at=NOW)
    reading = a_reading(run)
    snapshot = a_snapshot(job=job, pods=(a_pod(),))
    status = compute(StatusInput(snapshot=snapshot, reading=reading, bucket="b", now=NOW))
    assert (status.progress.reward, status.progress.staleness) == (0.5, None)
    condition_types = {condition.type for condition in status.conditions}
    assert condition_types == {"Ready", "TrainerReady", "StorageReachable", "StateStoreReachable"}
    assert start_gate.find_shortfalls(snapshot, stored(), reading) == ()
