from __future__ import annotations

import pytest

from rl_contracts.documents.evaluation import EvaluationResult
from rl_contracts.documents.run import Totals
from rl_trainer.checkpoint import report
from tests.samples.documents import a_run, a_step
from tests.unit.rl_trainer.conftest import MakeSpec


def result(step: int, temperature: float, accuracy: float, gap: float = 1e-6) -> EvaluationResult:
    return EvaluationResult(
        step=step,
        version=step + 1,
        temperature=temperature,
        accuracy=accuracy,
        prompts=10,
        tokens=100 * (step + 1),
        logprob_gap_mean=gap,
        logprob_gap_max=gap,
        seconds=3.0,
    )


def test_the_report_of_a_finished_run(make_spec: MakeSpec) -> None:
    evaluations = [
        result(0, 0.7, 0.5),
        result(0, 1.0, 0.3),
        result(2, 0.7, 0.6, gap=4e-6),
        result(2, 1.0, 0.6),
        result(4, 0.7, 0.9),
        result(4, 1.0, 0.8),
    ]
    run = a_run(
        steps=4,
        step=4,
        trainers=3,
        first_batch_at=100.0,
        latest=a_step(4, time=166.0),
        totals=Totals(
            tokens_trained=1200, wait_seconds=30.0, train_seconds=10.0, max_staleness_seen=1
        ),
    )
    spec = make_spec(training={"evaluation": {"temperatures": [1.0, 0.7]}})
    made = report.compose(
        run, spec, evaluations=evaluations, policy_versions=5, final_model="s3://b/final/"
    )
    assert (made["accuracyBefore"], made["accuracyAfter"]) == (0.3, 0.8)
    # The two evaluations in the middle are not the trainer's time; those at the ends are not in it.
    assert made["trainerSeconds"] == 60.0
    assert made["tokensPerSecond"] == 20.0
    assert made["trainerWaitShare"] == 0.75
    assert (made["restarts"], made["policyVersions"], made["steps"]) == (2, 5, 4)
    # 100 + 100 + 300 + 300 + 500 + 500 tokens, 300 of them with the larger gap
    assert made["logprobGapMean"] == pytest.approx((1500 * 1e-6 + 300 * 4e-6) / 1800)
    assert made["finalModel"] == "s3://b/final/"
    assert len(made["evaluations"]) == 6


def test_a_run_without_validation_reports_no_accuracy(make_spec: MakeSpec) -> None:
    made = report.compose(a_run(), make_spec(), evaluations=[], policy_versions=1, final_model="")
    assert made["accuracyBefore"] is None
    assert made["logprobGapMean"] is None
    assert made["trainerSeconds"] == 0.0
