"""An agent of the OpenAI Agents SDK, unmodified, in an image of its own, learns on the cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import pytest

from tests.chaos.examples.acting import (
    ALL_SECONDS,
    COMPLETE_SECONDS,
    Stage,
    documents,
    put_inputs,
)
from tests.cluster.conftest import rl_local
from tests.cluster.lab import Lab

LEAST_RISE = 0.2
WINDOW = 64
"""Episodes of the first and of the last step."""

PLAY_SECONDS = 2 * COMPLETE_SECONDS
"""640 episodes, each a Python program of its own that imports the SDK: 2 s of a core."""

pytestmark = pytest.mark.timeout(ALL_SECONDS + PLAY_SECONDS)


def test_the_agents_sdk_learns_to_call_its_tool_in_pods_of_its_own(
    lab: Lab, stage: Stage, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    image = json.loads(rl_local("images", "agents-sdk"))["agents-sdk"]
    put_inputs(lab, "calculator", tmp_path)
    (job,) = documents("agents-sdk.yaml")
    job["spec"]["agent"]["program"]["image"] = image
    report, rollouts, run = stage.play([job], seconds=PLAY_SECONDS)
    assert run.step == run.steps
    rewards = [rollout.reward for rollout in rollouts]
    steps = [round(fmean(rewards[at : at + WINDOW]), 3) for at in range(0, len(rewards), WINDOW)]
    record_property("reward of each step", steps)
    record_property("accuracy", f"{report.accuracy_before} → {report.accuracy_after}")
    assert report.accuracy_before is not None
    assert report.accuracy_after is not None
    assert report.accuracy_after - report.accuracy_before >= LEAST_RISE
    assert fmean(rewards[-WINDOW:]) - fmean(rewards[:WINDOW]) >= LEAST_RISE
    for rollout in rollouts:
        assert rollout.program is not None
        assert rollout.program.exit_code == 0 or rollout.reward == 0.0
    called = [rollout for rollout in rollouts[-WINDOW:] if rollout.reward == 1.0]
    assert all("<tool_call>" in rollout.turns[0].text for rollout in called), "nobody guesses"
