"""An environment of verifiers, as published, in an image of its own, on the cluster."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.chaos.examples.acting import ALL_SECONDS, EXAMPLES, Stage, documents, put_inputs
from tests.chaos.rl_sampler.gateway.environments import python_of
from tests.cluster.conftest import rl_local
from tests.cluster.lab import Lab

STEPS, PROMPTS, MEMBERS = 2, 2, 4

pytestmark = pytest.mark.timeout(ALL_SECONDS)


def test_the_verifiers_example_runs_in_an_image_of_its_own(
    lab: Lab, stage: Stage, tmp_path: Path
) -> None:
    image = json.loads(rl_local("images", "verifiers"))["verifiers"]
    put_inputs(lab, "calculator", tmp_path)
    data = tmp_path / "train.jsonl"
    command = [python_of("verifiers"), "run_task.py", "env.toml", "--write", str(data)]
    subprocess.run([*command, "--number", "50"], cwd=EXAMPLES / "verifiers", check=True)
    with lab.stores() as stores:
        stores.objects.put_file("datasets/verifiers/train.jsonl", data)
    (job,) = documents("verifiers.yaml")
    job["spec"]["agent"]["program"]["image"] = image
    job["spec"]["training"] |= {"steps": STEPS, "promptsPerStep": PROMPTS}
    job["spec"]["algorithm"]["groupSize"] = MEMBERS
    _, rollouts, run = stage.play([job])
    assert (run.step, len(rollouts)) == (STEPS, STEPS * PROMPTS * MEMBERS)
    for rollout in rollouts:
        assert rollout.error is None
        assert rollout.program is not None
        assert rollout.program.exit_code == 0
        assert rollout.program.metrics["correct"] == rollout.reward
        assert rollout.program.metrics["turns"] == len(rollout.turns)
