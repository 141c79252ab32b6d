"""Harbor tasks played through the gateway in pods of their own, and judged by their tests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.documents.harbor import HarborTask
from rl_contracts.stores.files.harbor_tests import HarborTests
from rl_trainer.data.harbor import archive
from tests.contract.rl_sampler.gateway.program_jobs import PROGRAMS, check_tokens, program_job
from tests.contract.rl_sampler.pods import MakePod, Pod
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.waiting import until

JUDGE = b"""#!/bin/sh
touch "$MARKS/judging-$$"
while [ ! -e "$MARKS/judge" ]; do sleep 0.02; done
logs="$(dirname "$0")/../logs/verifier"
if [ "$(cat solution 2>/dev/null)" = "$WANTED" ]; then reward=1; else reward=0; fi
echo "{\\"reward\\": $reward, \\"files\\": $(ls | wc -l), \\"test_a.py\\": 1}" > "$logs/reward.json"
"""


class Harbor:
    """A job of one Harbor task, whose two members play in two pods."""

    def __init__(
        self, trainer: ScriptedTrainer, make_pod: MakePod, model: Path, folder: Path
    ) -> None:
        self.trainer, self.marks = trainer, folder / "marks"
        self.marks.mkdir()
        work = folder / "work"
        work.mkdir()
        command = [sys.executable, str(PROGRAMS / "adder.py"), str(self.marks)]
        options = {"onFailure": "RewardZero", "runsIn": "EpisodePod", "pods": 2}
        self.pod: Pod = make_pod(**program_job(trainer, model, command, **options))
        self.work = work

    def insert(self, script: bytes = JUDGE, **changes: Any) -> list[str]:
        """Store the task's tests, and insert it."""
        stores = self.trainer.stores
        tests = HarborTests(stores.objects, run_prefix=stores.run_prefix(self.trainer.run))
        variables = {"MARKS": str(self.marks), "ANSWER": "7"}
        task = HarborTask(
            folder=str(self.work),
            environment=variables,
            tests_environment={"WANTED": "7"},
            tests=tests.put(archive({"test.sh": script})),
            **changes,
        )
        return self.trainer.insert(1, group_size=2, harbor=task)

    def marked(self, pattern: str, count: int) -> None:
        """Wait until so many have come so far."""
        until(lambda: len(list(self.marks.glob(pattern))) >= count, what=pattern)

    def done(self, tasks: list[str]) -> list[Any]:
        """The chosen rollouts."""
        until(lambda: self.trainer.all_done(tasks), what="the group")
        return self.trainer.chosen(tasks)


@pytest.fixture
def harbor(trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path, tmp_path: Path) -> Harbor:
    return Harbor(trainer, make_pod, tiny_model, tmp_path)


def test_the_tests_of_a_task_decide_the_reward(harbor: Harbor) -> None:
    harbor.pod.serve_first_of(harbor.trainer)
    (harbor.marks / "go").touch()
    (harbor.marks / "judge").touch()
    wrong = JUDGE.replace(b'"$WANTED"', b'"$WANTED$(ls | wc -l)"')
    (good, *_) = harbor.done(harbor.insert())
    assert good.reward == 1.0
    check_tokens(good)
    assert good.program is not None
    assert good.program.metrics["files"] >= 1
    assert good.program.metrics["test_a_py"] == 1.0, "stores take no dot in a name"
    assert "renamed 'test_a.py' to test_a_py" in good.program.tests_log
    bad = harbor.done(harbor.insert(wrong))
    assert [rollout.reward for rollout in bad] == [0.0, 0.0]
    none = harbor.done(harbor.insert(b"#!/bin/sh\necho no reward; exit 3\n"))
    assert [rollout.reward for rollout in none] == [0.0, 0.0], "onFailure is RewardZero"
    assert none[0].program is not None
    assert none[0].program.tests_log == "no reward\n"


@pytest.mark.soak
@pytest.mark.parametrize("phase", ["program", "tests"])
def test_a_pod_that_dies_costs_an_attempt_and_is_no_reward(harbor: Harbor, phase: str) -> None:
    harbor.pod.serve_first_of(harbor.trainer)
    tasks = harbor.insert()
    harbor.marked("1-?", 2)
    if phase == "tests":
        (harbor.marks / "go").touch()
        harbor.marked("judging-*", 2)
    episodes = harbor.pod.episode_pods
    assert episodes is not None
    for pod in list(episodes.pods):
        pod.kill()
    (harbor.marks / "go").touch()
    (harbor.marks / "judge").touch()
    chosen = harbor.done(tasks)
    assert chosen[0].reward == 1.0
    assert {rollout.attempt for rollout in chosen} == {2}
    lost = [
        each
        for each in harbor.trainer.stores.rollouts.of_task(tasks[0])
        if each.attempt == 1 and each.error is not None
    ]
    assert lost
    assert {(each.error.kind, each.reward) for each in lost if each.error} == {
        ("infrastructure", 0.0)
    }
