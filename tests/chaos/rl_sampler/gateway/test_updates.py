"""Updates of the weights while programs stream: what they are sent, and what becomes data."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from rl_contracts.documents.rollout import Rollout
from rl_contracts.spec.storage import Pause
from tests.chaos.rl_sampler.gateway.environments import PROGRAMS
from tests.contract.rl_sampler.gateway.program_jobs import (
    check_tokens,
    greatest_distance,
    program_job,
)
from tests.contract.rl_sampler.pods import MakePod, Pod
from tests.contract.rl_sampler.rescoring import CLOSE
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.waiting import until

ATTEMPTS = 12
STREAMER = [sys.executable, str(PROGRAMS / "streamer.py")]


def is_mixed(rollout: Rollout) -> bool:
    """Whether a response has tokens of several versions."""
    return any(
        turn.response.start < span.start < turn.response.end
        for turn in rollout.turns
        for span in rollout.spans
    )


def updates_requests(pause: Pause, rollouts: list[Rollout], pod: Pod) -> bool:
    """Whether an update has come while a response was sampled."""
    if pause == "Abort":
        return "rl_sampler_requests_repeated_total 0.0" not in pod.get("/metrics")[1]
    return any(map(is_mixed, rollouts))


@pytest.mark.parametrize("pause", ["Retract", "InPlace", "Abort"])
def test_update_breaks_no_stream_and_every_token_names_its_version(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path, pause: Pause
) -> None:
    sections = program_job(trainer, tiny_model, STREAMER)
    sections["agent"]["sampling"] = {"maxTokensPerTurn": 300, "maxContextTokens": 1000}
    off_policy = {"algorithm": {"offPolicy": {"maxStaleness": 64}}}
    pod = make_pod(**sections, **off_policy, weightSync={"pause": pause})
    assert pod.stage().returncode == 0
    seeds = {trainer.publish(seed=1).version: 1}
    pod.serve()
    pod.wait_version(1)
    rollouts: list[Rollout] = []
    for _ in range(ATTEMPTS):
        tasks = trainer.insert(2, group_size=4)
        while not trainer.all_done(tasks):
            trainer.advance()
            version = trainer.publish(seed=len(seeds) + 1).version
            seeds[version] = len(seeds) + 1
            pod.wait_version(version)
        rollouts += trainer.chosen(tasks)
        if updates_requests(pause, rollouts, pod):
            break
    else:
        pytest.fail(f"no update of {len(seeds)} hit a response")
    for rollout in rollouts:
        check_tokens(rollout)
        assert rollout.program is not None
        assert rollout.program.exit_code == 0
        streamed = json.loads(rollout.program.log)
        assert sorted(streamed) == sorted(turn.text for turn in rollout.turns)
        if pause != "InPlace":  # there, tokens behind an update attend to older weights' cache
            assert greatest_distance(rollout, folder=tiny_model, seeds=seeds) <= CLOSE
        if pause == "Abort":
            assert not is_mixed(rollout)
    until(lambda: trainer.all_done(tasks), what="the last groups")
