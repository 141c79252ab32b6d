"""Harbor tasks, each episode in a pod of its own on the cluster; one pod ends in its episode."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.stores.connect import Stores
from rl_operator.kube import names
from tests.chaos.examples.acting import (
    ALL_SECONDS,
    COMPLETE_SECONDS,
    Stage,
    documents,
    on_cpu,
)
from tests.cluster.lab import Lab
from tests.cluster.waiting import until

pytestmark = pytest.mark.timeout(ALL_SECONDS)

NAME, PREFIX = "harbor", "tasks/"
GROUP_SIZE, PROMPTS, STEPS, PODS = 4, 2, 3, 6
SUMS = [(first, second) for first in (11, 24, 37) for second in (15, 28, 49, 61)]
JUDGE = """#!/bin/sh
if grep -qE '(^|[^0-9]){total}([^0-9]|$)' answer.txt; then reward=1; else reward=0; fi
echo $reward > /logs/verifier/reward.txt
"""


def task_files(first: int, second: int, *, image: str) -> Iterator[tuple[str, str]]:
    """The files of a task: an addition, whose answer the tests compare."""
    environment = {"docker_image": image, "workdir": "/tmp"}
    lines = [f"{key} = {json.dumps(value)}" for key, value in environment.items()]
    yield "task.toml", "\n".join(['schema_version = "1.4"', "[environment]", *lines])
    yield "instruction.md", f"{first}+{second}="
    yield "tests/test.sh", JUDGE.format(total=first + second)


def put_tasks(stores: Stores, *, image: str) -> None:
    """Put a folder of tasks into the bucket."""
    for first, second in SUMS:
        for path, text in task_files(first, second, image=image):
            stores.objects.put(f"{PREFIX}{first}-{second}/{path}", text.encode())


def agent() -> dict[str, Any]:
    """The ConfigMap with the program of the episodes."""
    module = Path(__file__).with_name("adding_agent.py")
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "adding-agent"},
        "data": {module.name: module.read_text()},
    }


def job(image: str) -> dict[str, Any]:
    """The example's manifest, with a policy and an agent of this machine."""
    (manifest,) = documents("harbor.yaml")
    spec = manifest["spec"]
    spec["agent"]["program"] |= {
        "pods": PODS,
        "image": image,
        "command": ["python3", "-m", "adding_agent"],
        "resources": {"requests": {"cpu": "20m", "memory": "32Mi"}},
    }
    spec["agent"]["sampling"] = {"maxTokensPerTurn": 10, "maxContextTokens": 64}
    spec["code"] = {"configMapRef": {"name": "adding-agent"}}
    spec["algorithm"] = {"groupSize": GROUP_SIZE}
    training = {"steps": STEPS, "promptsPerStep": PROMPTS, "precision": "FP32"}
    spec |= on_cpu(model="arithmetic", **training, checkpoint={"everySteps": STEPS})
    return manifest


class EpisodePods:
    """The pods of the job's episodes."""

    def __init__(self, lab: Lab) -> None:
        self._lab, self._ready = lab, set[str]()

    def claimed(self) -> str:
        """A pod that runs an episode: it was ready, and is not any more, while its server runs."""
        selector = f"{names.PROGRAMS_LABEL}={NAME}-main"
        for pod in self._lab.get("pods", "--selector", selector)["items"]:
            name = pod["metadata"]["name"]
            for container in pod["status"].get("containerStatuses", []):
                if container["ready"]:
                    self._ready.add(name)
                elif name in self._ready and "running" in container["state"]:
                    return str(name)
        return ""


def test_tasks_are_solved_and_judged_in_pods_and_a_pod_that_dies_is_no_reward(
    lab: Lab, stage: Stage, record_property: Callable[[str, object], None]
) -> None:
    with lab.stores() as stores:
        put_tasks(stores, image=stage.image)
    pods = EpisodePods(lab)

    def kill() -> None:
        name = until(pods.claimed, what="a pod in its episode", seconds=COMPLETE_SECONDS)
        lab.kill(name)
        record_property("killed", name)

    _, rollouts, run = stage.play([agent(), job(stage.image)], meanwhile=kill)
    assert (run.step, len(rollouts)) == (STEPS, STEPS * PROMPTS * GROUP_SIZE)
    with lab.stores() as stores:
        tasks = stores.tasks.get({rollout.task for rollout in rollouts})
        lost = [each for each in stores.rollouts.of_run(run.id) if each.error is not None]
    for rollout in rollouts:
        assert rollout.error is None
        assert rollout.program is not None
        assert rollout.program.exit_code == 0
        total = sum(map(int, tasks[rollout.task].example.split("-")))
        right = str(total) in re.findall(r"\d+", rollout.text)
        assert rollout.reward == float(right), (total, rollout.text)
    assert {rollout.reward for rollout in rollouts} == {0.0, 1.0}
    assert lost, "the episode whose pod was killed"
    assert {(each.error.kind, each.reward) for each in lost if each.error is not None} == {
        ("infrastructure", 0.0)
    }
    record_property("lost", [each.error.message for each in lost if each.error is not None])
