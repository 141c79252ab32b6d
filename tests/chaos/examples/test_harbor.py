"""Harbor tasks of two images on the cluster, each episode in a pod of its own; one is killed."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rl_console.demo.settings import DemoSettings
from rl_contracts.documents.rollout import RolloutError
from rl_contracts.stores.connect import Stores
from rl_operator.kube import names
from tests.chaos.examples.acting import (
    ALL_SECONDS,
    Stage,
    documents,
    on_cpu,
)
from tests.cluster.lab import Lab, RunReader
from tests.cluster.waiting import until

pytestmark = pytest.mark.timeout(ALL_SECONDS)

Images = tuple[str, ...]
NAME, PREFIX = "harbor", "tasks/"
GROUP_SIZE, PROMPTS, STEPS, PODS = 4, 2, 3, 4
KILLS, LOST_SECONDS = 3, 40.0
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


def put_tasks(stores: Stores, images: Images) -> None:
    """Put a folder of tasks into the bucket, which name these images in turn."""
    for (first, second), image in zip(SUMS, itertools.cycle(images), strict=False):
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


def job(images: Images) -> dict[str, Any]:
    """The example's manifest, with a policy and an agent of this machine."""
    (manifest,) = documents("harbor.yaml")
    spec = manifest["spec"]
    spec["agent"]["program"] |= {
        "pods": PODS,
        "image": images[0],
        "images": list(images[1:]),
        "command": ["python3", "-m", "adding_agent"],
        "resources": {"requests": {"cpu": "20m", "memory": "32Mi"}},
    }
    spec["agent"]["sampling"] = {"maxTokensPerTurn": 10, "maxContextTokens": 64}
    spec["code"] = {"configMapRef": {"name": "adding-agent"}}
    spec["algorithm"] = {"groupSize": GROUP_SIZE}
    training = {"steps": STEPS, "promptsPerStep": PROMPTS, "precision": "FP32"}
    spec |= on_cpu(model="arithmetic", **training, checkpoint={"everySteps": STEPS})
    return manifest


def run_of(lab: Lab) -> str:
    """The id of the job's run."""
    return until(lambda: lab.job(NAME).status.run_id, what="the run")


def lost(stores: Stores, run: str) -> list[RolloutError]:
    """The errors of a run's rollouts."""
    return [each.error for each in stores.rollouts.of_run(run) if each.error is not None]


def lost_soon(reader: RunReader) -> bool:
    """Whether an episode is lost within the time that one takes."""
    ends = time.monotonic() + LOST_SECONDS

    def outcome() -> str:
        if reader.read(lambda stores: lost(stores, reader.run)):
            return "lost"
        return "kept" if time.monotonic() > ends else ""

    return until(outcome, what="the time of an episode") == "lost"


class EpisodePods:
    """The pods of the job's episodes."""

    def __init__(self, lab: Lab) -> None:
        self._lab, self._ready, self._given = lab, set[str](), set[str]()

    def claimed(self) -> str:
        """A pod that runs an episode: it was ready, and is not any more, while its server runs.

        Each is given once.
        """
        selector = f"{names.PROGRAMS_LABEL}={NAME}-main"
        for pod in self._lab.get("pods", "--selector", selector)["items"]:
            name = pod["metadata"]["name"]
            for container in pod["status"].get("containerStatuses", []):
                if container["ready"]:
                    self._ready.add(name)
                elif name in self._ready - self._given and "running" in container["state"]:
                    self._given.add(name)
                    return str(name)
        return ""


def test_tasks_are_solved_and_judged_in_pods_and_a_pod_that_dies_is_no_reward(
    lab: Lab,
    stage: Stage,
    installed: DemoSettings,
    record_property: Callable[[str, object], None],
) -> None:
    images = (installed.images["sampler"], installed.images["operator"])
    with lab.stores() as stores:
        put_tasks(stores, images)
    pods = EpisodePods(lab)

    def kill() -> None:
        with contextlib.closing(RunReader(lab, run_of(lab))) as reader:
            for _ in range(KILLS):  # an episode may end before its pod does
                lab.kill(until(pods.claimed, what="a pod in its episode"))
                if lost_soon(reader):
                    return
        pytest.fail(f"no episode was lost with {KILLS} pods")

    _, rollouts, run = stage.play([agent(), job(images)], meanwhile=kill)
    assert (run.step, len(rollouts)) == (STEPS, STEPS * PROMPTS * GROUP_SIZE)
    with lab.stores() as stores:
        tasks = stores.tasks.get({rollout.task for rollout in rollouts})
        errors = lost(stores, run.id)
        rewards = {each.reward for each in stores.rollouts.of_run(run.id) if each.error is not None}
    played = set[str]()
    for rollout in rollouts:
        assert rollout.error is None
        assert rollout.program is not None
        assert rollout.program.exit_code == 0
        task = tasks[rollout.task].harbor
        assert task is not None
        image_has = "rl_sampler" if task.image == images[0] else "rl_operator"
        assert image_has in rollout.program.log.split(), "the pod has the task's image"
        played.add(task.image)
        total = sum(map(int, tasks[rollout.task].example.split("-")))
        right = str(total) in re.findall(r"\d+", rollout.text)
        assert rollout.reward == float(right), (total, rollout.text)
    assert played == set(images)
    assert {rollout.reward for rollout in rollouts} == {0.0, 1.0}
    assert {error.kind for error in errors} == {"infrastructure"}
    assert rewards == {0.0}
    record_property("lost", [error.message for error in errors])
