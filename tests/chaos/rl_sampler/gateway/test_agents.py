"""Agents as published, with their own loops; the policy says what a script has."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp.test_utils import TestServer

from rl_sampler.agents.trace import Trace
from rl_sampler.gateway.server import RESULT_PATH, Gateway
from rl_sampler.gateway.session import Session
from rl_sampler.gateway.sessions import Sessions
from tests.chaos.rl_sampler.gateway.environments import python_of
from tests.servers import ROOT
from tests.unit.rl_sampler.agents.scripted import call
from tests.unit.rl_sampler.gateway.scripted_sessions import ScriptedPolicy, a_session
from tests.waiting import HUNG_SECONDS

AGENTS_SDK = ROOT / "examples/agents-sdk/calculating_agent.py"
TASK = {"messages": [{"role": "user", "content": "What is 6 x 7?"}]}


@dataclass(frozen=True)
class Ran:
    """A program that has ended."""

    code: int
    output: str
    session: Session
    policy: ScriptedPolicy


async def run(
    folder: Path,
    script: list[Any],
    python: str,
    *arguments: str,
    record: dict[str, Any] = TASK,
    **env: str,
) -> Ran:
    """Run a program in a folder against the gateway.

    Args:
        folder: its working directory.
        script: what the policy says.
        python: the program's interpreter.
        arguments: of the interpreter.
        record: what the program is given of its task.
        env: further variables.
    """
    session, policy = a_session(script, longest=100_000)
    sessions = Sessions()
    sessions.open(session)
    task = folder / "task.json"
    task.write_text(json.dumps(record))
    async with TestServer(Gateway(sessions).application()) as server:
        url = str(server.make_url("")).rstrip("/")
        program = await asyncio.create_subprocess_exec(
            python,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=folder,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(folder),
                "OPENAI_BASE_URL": f"{url}/v1",
                "OPENAI_API_KEY": session.key,
                "RL_TASK_FILE": str(task),
                "RL_RESULT_URL": f"{url}{RESULT_PATH}",
                "RL_API_KEY": session.key,
                **env,
            },
        )
        async with asyncio.timeout(HUNG_SECONDS):
            written, _ = await program.communicate()
        assert program.returncode is not None
    return Ran(program.returncode, written.decode(), session, policy)


def check_one_conversation(ran: Ran) -> None:
    """All responses are one sequence, and nothing of it was tokenized twice."""
    trace = Trace()
    turns = ran.session.tree.write(trace)
    assert trace.sequence_starts == []
    assert len(turns) == len(ran.policy.outputs)
    assert trace.tokens == ran.policy.contexts[-1] + ran.policy.outputs[-1]


async def test_agents_sdk_calls_its_tool_in_one_conversation(tmp_path: Path) -> None:
    script = ["I multiply. " + call(tool="multiply", a=6, b=7), "It is 42."]
    python = await asyncio.to_thread(python_of, "sdk")
    ran = await run(tmp_path, script, python, str(AGENTS_SDK))
    assert (ran.code, ran.output) == (0, "It is 42.\n")
    check_one_conversation(ran)
    assert "42" in ran.policy.prompts.decode(ran.policy.contexts[1])


async def test_agents_sdk_that_runs_out_of_turns_ends_with_an_exit_code(
    tmp_path: Path,
) -> None:
    python = await asyncio.to_thread(python_of, "sdk")
    ran = await run(tmp_path, [call(tool="multiply", a=6, b=7)] * 4, python, str(AGENTS_SDK))
    assert ran.code == 1
    assert "MaxTurnsExceeded" in ran.output


async def test_coding_agent_edits_a_file_in_one_conversation(tmp_path: Path) -> None:
    """mini-swe-agent, with its own prompts and its tool bash."""
    finish = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
    script = [
        "I look. " + call(tool="bash", command="ls"),
        "I write. " + call(tool="bash", command="echo 42 > answer.txt"),
        "Done. " + call(tool="bash", command=finish),
    ]
    python = await asyncio.to_thread(python_of, "coder")
    arguments = ["-m", "minisweagent.run.mini", "--model", "openai/policy", "--yolo"]
    arguments += ["--task", "Write 42 into answer.txt.", "--exit-immediately"]
    arguments += ["--cost-limit", "0", "--output", "trajectory.json"]
    ran = await run(
        tmp_path,
        script,
        python,
        *arguments,
        MSWEA_CONFIGURED="true",
        MSWEA_COST_TRACKING="ignore_errors",
    )
    assert ran.code == 0, ran.output
    assert (tmp_path / "answer.txt").read_text() == "42\n"
    check_one_conversation(ran)
