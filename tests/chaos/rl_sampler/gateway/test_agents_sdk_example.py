"""The example with the OpenAI Agents SDK: its small model, a real engine, the SDK unmodified."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from safetensors.numpy import load_file

from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.chaos.rl_sampler.gateway.environments import python_of
from tests.contract.rl_sampler.engine_server import EngineServer
from tests.contract.rl_sampler.gateway.program_jobs import check_tokens
from tests.contract.rl_sampler.pods import pods_in, start_run
from tests.servers import ROOT
from tests.waiting import until

EXAMPLES = ROOT / "examples"
MAKE_SECONDS = 1500.0
SECONDS = MAKE_SECONDS + 1200

pytestmark = pytest.mark.timeout(SECONDS)


def test_agents_sdk_plays_episodes_with_the_tool_calls_of_a_small_model(
    stores: Stores, store_settings: StoreSettings, tmp_path: Path
) -> None:
    command = [sys.executable, str(EXAMPLES / "agents/make.py"), "calculator", "--out"]
    subprocess.run([*command, str(tmp_path / "made")], check=True, timeout=MAKE_SECONDS)
    model = tmp_path / "made/model"
    spec = yaml.safe_load((EXAMPLES / "agents-sdk.yaml").read_text())["spec"]
    agent = spec["agent"]
    agent["program"]["command"] = [
        python_of("sdk"),
        str(EXAMPLES / "agents-sdk/calculating_agent.py"),
    ]
    sections = {"agent": agent, "reward": spec["reward"]}
    (tmp_path / "engine").mkdir()
    with (
        EngineServer.running(model=model, folder=tmp_path / "engine") as engine,
        pods_in(tmp_path, engine_url=engine.url) as new,
    ):
        trainer = start_run(stores, model)
        pod = new("pod-a", settings=store_settings, stores=stores, sections=sections)
        assert pod.stage().returncode == 0
        trainer.publish(weights=load_file(model / "model.safetensors"))
        pod.serve()
        pod.wait_version(1)
        tasks = trainer.insert(4, group_size=4, content="12*34=", answer="408")
        until(lambda: trainer.all_done(tasks), what="the groups", seconds=900)
    rollouts = trainer.chosen(tasks)
    for rollout in rollouts:
        check_tokens(rollout)
        assert rollout.sequence_starts == [], "an episode is one conversation"
    called = [rollout for rollout in rollouts if len(rollout.turns) == 2]
    assert called, "a third of the episodes call the tool"
    assert "<tool_call>" in called[0].turns[0].text
    assert max(rollout.reward for rollout in called) == 1.0
    assert {len(rollout.turns) for rollout in rollouts} <= {1, 2, 3, 4}
