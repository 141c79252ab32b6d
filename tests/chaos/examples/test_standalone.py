"""Sampling by real engines on the cluster: one policy answers, and none is trained."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rl_contracts.documents.run import Run
from rl_contracts.stores import reports
from tests.chaos.examples.stage import Stage, on_cpu
from tests.chaos.examples.test_agents import COMPLETE_SECONDS, EXAMPLES, documents
from tests.cluster.lab import Lab
from tests.waiting import HUNG_SECONDS

pytestmark = pytest.mark.timeout(COMPLETE_SECONDS + HUNG_SECONDS)


def run_of(lab: Lab, name: str) -> Run:
    """A completed job's run."""
    lab.await_condition(name, "Complete", seconds=COMPLETE_SECONDS)
    with lab.stores() as stores:
        found = stores.runs.get(lab.job(name).status.run_id)
    assert found is not None
    return found


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
    told = run.sampled
    assert (told.windows, told.prompts, told.rollouts, told.given_up) == (3, 48, 192, 0)
    assert list(told.versions) == ["1"]
    with lab.stores() as stores:
        prefix = stores.run_prefix(run.id)
        keys = [reports.samples_key(prefix, number) for number in range(3)]
        lines = [
            json.loads(line) for key in keys for line in stores.objects.get(key).splitlines()
        ]  # fmt: skip
        stored = stores.rollouts.get([one["rollout"] for one in lines])
    assert len(stored) == len(lines) == 192
    assert {one["version"] for one in lines} == {1}
    assert all(stored[one["rollout"]].text == one["response"] for one in lines)
    assert {one["reward"] for one in lines} == {0.0, 1.0}
    parts = {part.scorer for one in stored.values() for part in one.parts}
    assert parts == {"ExactMatch", "Brevity"}


def modules() -> dict[str, Any]:
    """The ConfigMap of docs/extending.md."""
    module = EXAMPLES / "extending/second_look.py"
    return {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "second-look"},
        "immutable": True, "data": {module.name: module.read_text()},
    }  # fmt: skip
