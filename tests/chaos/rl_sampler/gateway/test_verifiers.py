"""The example with verifiers: the package as published, its taskset, its tool server, its loop."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

from rl_sampler.user_code.program_agent import task_json
from tests.chaos.rl_sampler.gateway.environments import python_of
from tests.chaos.rl_sampler.gateway.test_agents import Ran, check_one_conversation, run
from tests.samples.documents import a_task
from tests.servers import ROOT
from tests.unit.rl_sampler.agents.scripted import call

EXAMPLE = ROOT / "examples/verifiers"
FIRST, PRODUCT = "27*82=", 2214
"""Of the taskset's first task."""


async def played(folder: Path, script: list[Any], **environment: str) -> Ran:
    """The first task, acted out by the example's program."""
    python = await asyncio.to_thread(python_of, "verifiers")
    return await run(
        folder,
        script,
        python,
        str(EXAMPLE / "run_task.py"),
        str(EXAMPLE / "env.toml"),
        record=task_json(a_task(0, fields='{"task": 0}'), 0),
        PYTHONPATH=str(EXAMPLE),
        **environment,
    )


async def test_a_rollout_calls_its_tool_and_posts_reward_and_metrics(tmp_path: Path) -> None:
    multiply = call(tool="calculator_multiply", a=27, b=82)
    ran = await played(tmp_path, [f"I multiply. {multiply}", f"It is {PRODUCT}."])
    assert ran.code == 0, ran.output
    assert ran.session.reward == 1.0
    assert ran.session.metrics == {"correct": 1.0, "turns": 2.0}
    check_one_conversation(ran)
    shown = ran.policy.prompts.decode(ran.policy.contexts[1])
    assert FIRST in shown
    assert str(PRODUCT) in shown, "what the tool server answered"


async def test_a_wrong_answer_is_a_reward_and_no_failure(tmp_path: Path) -> None:
    ran = await played(tmp_path, ["It is 7."])
    assert (ran.code, ran.session.reward) == (0, 0.0), ran.output
    assert ran.session.metrics["turns"] == 1.0


async def test_an_error_of_the_rollout_is_an_exit_code_and_no_reward(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    ran = await played(tmp_path, ["It is 7."], OPENAI_BASE_URL="http://127.0.0.1:9/v1")
    assert ran.code == 1
    assert "ProviderError" in ran.output
    assert ran.session.reward is None


def test_tasks_are_written_as_a_dataset(tmp_path: Path) -> None:
    out = tmp_path / "train.jsonl"
    command = [python_of("verifiers"), "run_task.py", "env.toml", "--write", str(out)]
    subprocess.run([*command, "--number", "3"], cwd=EXAMPLE, check=True)
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [record["task"] for record in records] == [0, 1, 2]
    assert records[0]["query"] == FIRST
