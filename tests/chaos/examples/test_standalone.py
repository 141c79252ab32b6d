"""Evaluation and sampling by real engines on the cluster: one policy answers, none is trained."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rl_contracts.documents.evaluation import EvaluationResult
from rl_contracts.documents.run import Run
from rl_contracts.stores import reports
from tests.chaos.examples.acting import (
    ALL_SECONDS,
    COMPLETE_SECONDS,
    EXAMPLES,
    Stage,
    documents,
    on_cpu,
)
from tests.cluster.lab import Lab
from tests.cluster.manifests import short_job

pytestmark = pytest.mark.timeout(ALL_SECONDS)
NEARLY_GREEDY = 0.01
FEW_ANSWERS = 0.03
"""Share of prompts whose two best tokens are so close that rounding may decide between them."""


def run_of(lab: Lab, name: str) -> Run:
    """A completed job's run."""
    lab.await_condition(name, "Complete", seconds=COMPLETE_SECONDS)
    with lab.stores() as stores:
        run = stores.runs.get(lab.job(name).status.run_id)
    assert run is not None
    return run


def evaluate(stage: Stage, name: str, **training: Any) -> list[float]:
    """Accuracies, once it is proven that one policy answered and that status tells them."""
    (job,) = documents("evaluation.yaml")
    job["metadata"]["name"] = name
    job["spec"]["training"] |= training
    wanted = job["spec"]["training"]["evaluation"]
    run = run_of(stage.lab, stage.apply([job], **on_cpu()))
    assert (run.step, run.head_batch, run.last_version) == (0, None, 1)
    assert run.outcome is not None
    assert run.outcome.reason == "Evaluated"
    for evaluation, temperature in zip(run.evaluations, wanted["temperatures"], strict=True):
        assert (evaluation.dataset, evaluation.temperature, evaluation.version) == (
            "held-out",
            temperature,
            1,
        )
        assert evaluation.versions == {"1": evaluation.tokens}
        assert evaluation.samples_per_prompt == wanted["samplesPerPrompt"]
        assert evaluation.pass_at["1"] == pytest.approx(evaluation.accuracy)
        assert evaluation.logprob_gap_mean < 1e-4, "the engine has the weights that the trainer has"
    status = stage.lab.get("rljob", name)["status"]
    (dataset,) = [dataset for dataset in status["datasets"] if dataset["name"] == "held-out"]
    assert dataset["accuracy"] == pytest.approx(run.evaluations[0].accuracy, abs=1e-3)
    return [accuracy(evaluation) for evaluation in run.evaluations]


def accuracy(result: EvaluationResult) -> float:
    """Of a run that samples: under SFT there is a loss in its place."""
    assert result.accuracy is not None
    return result.accuracy


def test_a_model_is_evaluated(stage: Stage) -> None:
    (warm, cool) = evaluate(stage, "evaluation")
    assert cool > warm


def test_the_bucket_is_filled_from_one_model_and_scored_by_code_of_a_config_map(
    stage: Stage, lab: Lab
) -> None:
    (job,) = documents("sampling.yaml")
    job["spec"]["code"] = {"configMapRef": {"name": "second-look"}}
    brevity = {"kind": "Brevity", "entryPoint": "second_look:brevity", "options": {"words": 1}}
    job["spec"]["reward"]["scorers"].append({**brevity, "weight": 0})
    training: dict[str, Any] = {"precision": "FP32", "steps": 3, "promptsPerStep": 16}
    run = run_of(lab, stage.apply([modules(), job], **on_cpu(**training)))
    assert run.outcome is not None
    assert (run.outcome.reason, run.step, run.last_version) == ("Sampled", 0, 1)
    sampled = run.sampled
    assert (sampled.windows, sampled.prompts, sampled.rollouts, sampled.given_up) == (3, 48, 192, 0)
    assert list(sampled.versions) == ["1"]
    with lab.stores() as stores:
        prefix = stores.run_prefix(run.id)
        keys = [reports.samples_key(prefix, number) for number in range(3)]
        lines = [json.loads(line) for key in keys for line in stores.objects.get(key).splitlines()]
        stored = stores.rollouts.get([line["rollout"] for line in lines])
    assert len(stored) == len(lines) == 192
    assert {line["version"] for line in lines} == {1}
    assert all(stored[line["rollout"]].text == line["response"] for line in lines)
    assert {line["reward"] for line in lines} == {0.0, 1.0}
    parts = {part.scorer for rollout in stored.values() for part in rollout.parts}
    assert parts == {"ExactMatch", "Brevity"}


def modules() -> dict[str, Any]:
    """The ConfigMap of docs/guides/extending.md."""
    module = EXAMPLES / "extending/second_look.py"
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "second-look"},
        "immutable": True,
        "data": {module.name: module.read_text()},
    }


def test_a_checkpoint_in_the_bucket_of_another_run_is_evaluated(stage: Stage, lab: Lab) -> None:
    once = {"temperatures": [NEARLY_GREEDY], "samplesPerPrompt": 1}
    stage.apply(
        [
            short_job(
                "taught",
                training__optimizer__learningRate=1e-3,
                training__evaluation={**once, "beforeTraining": False, "afterTraining": True},
            )
        ]
    )
    run = run_of(lab, "taught")
    assert run.durable is not None
    with lab.stores() as stores:
        uri = stores.objects.uri(run.durable.prefix)
    checkpoint = {"resume": {"mode": "From", "uri": uri}}
    (result,) = evaluate(stage, "evaluation-from", checkpoint=checkpoint, evaluation=once)
    (then,) = run.evaluations
    assert result == pytest.approx(accuracy(then), abs=FEW_ANSWERS)
