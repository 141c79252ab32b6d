"""Plays a task of a verifiers environment (0.4) as the program of an episode.

See docs/guides/programs.md.

    python run_task.py env.toml                              # in an episode
    python run_task.py env.toml --write train.jsonl --number 500   # once: the tasks as a dataset

The environment is what verifiers' own runs read: the section `[env]` of a TOML file. The policy is
asked through the gateway; the environment's reward and metrics are posted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tomllib
import urllib.request
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.clients import EvalClientConfig, ModelContext
from verifiers.v1.runtimes.subprocess import SubprocessRuntime
from verifiers.v1.utils.loaders import load_environment, resolve_env_config

INDEX = "task"
"""Field of a record with the position of its task in the taskset."""
METRICS = 32
NAME_CHARACTERS = 64


async def with_installed_packages(
    self: SubprocessRuntime,
    script: str | bytes,
    env: dict[str, str] | None = None,
    *,
    activate: bool = True,
) -> list[str]:
    """A harness's script runs with the packages of this image.

    verifiers would install them with uv for each script, and the pod reaches no package registry.
    """
    path = f"script-{abs(hash(script))}.py"
    await self.write(path, script.encode() if isinstance(script, str) else script)
    return [sys.executable, path]


SubprocessRuntime.prepare_uv_script = with_installed_packages


def environment(path: Path) -> vf.Env:
    """The environment of a TOML file."""
    return load_environment(resolve_env_config(tomllib.loads(path.read_text())["env"]))


async def play(env: vf.Env, index: int) -> vf.Trace:
    """Play one task; raises SystemExit where verifiers says that an error ended it."""
    (task,) = env.taskset.include(idx=[str(index)])
    client = EvalClientConfig(base_url=os.environ["OPENAI_BASE_URL"], api_key_var="OPENAI_API_KEY")
    async with env.serving():
        episode = await env.run_episode(task, ModelContext(model="policy", client=client))
    errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
    if not episode.ok:
        raise SystemExit("\n".join(f"{error.type}: {error.message}" for error in errors))
    if len(episode.traces) != 1:
        raise SystemExit(
            f"{len(episode.traces)} agents played, and an episode has one reward: use one agent"
        )
    return episode.traces[0]


def result(trace: vf.Trace) -> dict[str, Any]:
    """What is posted: the reward, and each of its parts and metrics as a metric."""
    if not 0 <= trace.reward <= 1:
        raise SystemExit(
            f"the reward is {trace.reward}: weight the rewards so that it is in [0, 1]"
        )
    parts = {name: part.value for name, part in trace.rewards.items() if part is not None}
    known = {name: value for name, value in (trace.metrics | parts).items() if value is not None}
    metrics = {name.replace(".", "_").lstrip("$")[:NAME_CHARACTERS]: known[name] for name in known}
    return {"reward": trace.reward, "metrics": dict(list(metrics.items())[:METRICS])}


def post(body: dict[str, Any]) -> None:
    """Post the result of the episode."""
    headers = {"Authorization": f"Bearer {os.environ['RL_API_KEY']}"}
    request = urllib.request.Request(
        os.environ["RL_RESULT_URL"], data=json.dumps(body).encode(), headers=headers
    )
    urllib.request.urlopen(request, timeout=60).close()


def write(env: vf.Env, out: Path, *, number: int) -> int:
    """Write tasks as a dataset: their texts, and which tasks they are."""
    made = 0
    with out.open("w") as file:
        for task in env.taskset.take(number):
            record = {"query": task.data.prompt_text or "-", INDEX: task.data.idx}
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            made += 1
    return made


def main() -> None:
    """Play the task of this episode, or write the dataset."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path, help="TOML file with the section [env]")
    parser.add_argument("--write", type=Path, help="write the tasks into this file instead")
    parser.add_argument("--number", type=int, default=500, help="at most so many tasks")
    given = parser.parse_args()
    env = environment(given.config)
    if given.write is not None:
        print(f"{write(env, given.write, number=given.number)} records in {given.write}")
        return
    record = json.loads(Path(os.environ["RL_TASK_FILE"]).read_text())
    trace = asyncio.run(play(env, record["fields"][INDEX]))
    post(result(trace))
    print(f"{trace.stop_condition}: {trace.reward}")


if __name__ == "__main__":
    main()
