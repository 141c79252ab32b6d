"""Programs, agents, containers and engines that end in the middle of an episode."""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from rl_contracts.documents.task import TaskState
from tests.chaos.rl_sampler.gateway.environments import PROGRAMS
from tests.contract.rl_sampler.engine_server import EngineServer
from tests.contract.rl_sampler.gateway.program_jobs import check_tokens, program_job
from tests.contract.rl_sampler.pods import MakePod, Pod
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.waiting import until

MEMBERS = 2


class Waiting:
    """A group whose programs wait in the middle of their episodes."""

    def __init__(
        self,
        trainer: ScriptedTrainer,
        make_pod: MakePod,
        model: Path,
        folder: Path,
        *arguments: str,
        place: str = "Pod",
    ) -> None:
        self.trainer, self.folder = trainer, folder / "marks"
        self.folder.mkdir()
        command = [sys.executable, str(PROGRAMS / "waiter.py"), str(self.folder), *arguments]
        sections = program_job(trainer, model, command, runsIn=place)
        sections["agent"]["sampling"] = {"maxTokensPerTurn": 16, "maxContextTokens": 400}
        self.pod: Pod = make_pod(**sections)
        self.pod.serve_first_of(trainer)
        self.tasks = trainer.insert(1, group_size=MEMBERS)

    def wait(self, attempt: int, *, members: int = MEMBERS) -> list[dict[str, Any]]:
        """Wait until the programs of an attempt wait; returns what they say."""
        pattern = f"{attempt}-[0-9]"

        def there() -> bool:
            return len(list(self.folder.glob(pattern))) == members

        until(there, what=f"the programs of attempt {attempt}")
        return [json.loads(path.read_text()) for path in sorted(self.folder.glob(pattern))]

    def go(self) -> None:
        """Let the programs end, and check their group."""
        (self.folder / "go").touch()
        until(lambda: self.trainer.all_done(self.tasks), what="the group")
        rollouts = self.trainer.chosen(self.tasks)
        assert len(rollouts) == MEMBERS
        for rollout in rollouts:
            check_tokens(rollout)
            assert (rollout.reward, len(rollout.turns)) == (0.5, 2)
            assert rollout.sequence_starts == []


def is_gone(pid: int) -> bool:
    """Whether a process has ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def status_of(program: dict[str, Any]) -> int:
    """What the gateway answers to a program's key; 0 where nobody answers."""
    request = urllib.request.Request(
        f"{program['url']}/models", headers={"Authorization": f"Bearer {program['key']}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except urllib.error.URLError:
        return 0


def test_program_that_is_killed_is_played_again_and_its_sibling_is_kept(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path, tmp_path: Path
) -> None:
    waiting = Waiting(trainer, make_pod, tiny_model, tmp_path, "dies")
    waiting.wait(1, members=1)
    waiting.go()
    first, second = trainer.chosen(waiting.tasks)
    assert (first.attempt, second.attempt) == (2, 1)
    of_task = {
        (rollout.attempt, rollout.member): rollout
        for rollout in trainer.stores.rollouts.of_task(waiting.tasks[0])
    }
    killed = of_task[1, 0]
    assert killed.error is not None
    assert killed.error.kind == "infrastructure"
    assert killed.program is not None
    assert killed.program.exit_code == -signal.SIGKILL
    assert len(killed.turns) == 1, "what it had sampled is kept with its log"


def test_agent_that_is_killed_ends_its_programs_and_their_keys(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path, tmp_path: Path
) -> None:
    waiting = Waiting(trainer, make_pod, tiny_model, tmp_path)
    before = waiting.wait(1)
    assert [status_of(program) for program in before] == [200, 200]
    waiting.pod.signal(signal.SIGKILL)
    until(lambda: all(is_gone(program["pid"]) for program in before), what="the programs' end")
    waiting.pod.serve()
    after = waiting.wait(2)
    assert [status_of(program) for program in before] == [401, 401]
    assert {program["key"] for program in before}.isdisjoint(program["key"] for program in after)
    waiting.go()


def test_container_that_is_killed_costs_an_attempt_and_no_reward(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path, tmp_path: Path
) -> None:
    waiting = Waiting(trainer, make_pod, tiny_model, tmp_path, place="Sidecar")
    before = waiting.wait(1)
    pod = waiting.pod
    assert pod.code is not None
    for pid in (pod.code.pid, *(program["pid"] for program in before)):
        os.kill(pid, signal.SIGKILL)
    pod.code.wait()
    pod.code = pod._serve_code()
    waiting.wait(2)
    waiting.go()
    assert {rollout.attempt for rollout in trainer.chosen(waiting.tasks)} == {2}


def test_pod_of_programs_that_goes_and_comes_costs_attempts_and_no_reward(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path, tmp_path: Path
) -> None:
    waiting = Waiting(trainer, make_pod, tiny_model, tmp_path)
    for attempt in (1, 2):
        waiting.wait(attempt)
        waiting.pod.kill_programs()
        waiting.pod.serve_programs()
    waiting.wait(3)
    waiting.go()
    assert {rollout.attempt for rollout in trainer.chosen(waiting.tasks)} == {3}


def test_nothing_begins_and_no_attempt_is_lost_while_no_pod_of_programs_answers(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path, tmp_path: Path
) -> None:
    waiting = Waiting(trainer, make_pod, tiny_model, tmp_path)
    waiting.wait(1)
    waiting.pod.kill_programs()
    waiting.pod.wait_document(
        lambda document: "pods of programs" in document.unavailable, what="the outage"
    )
    waiting.pod.serve_programs()
    waiting.wait(2)
    waiting.go()
    assert {rollout.attempt for rollout in trainer.chosen(waiting.tasks)} == {2}


def test_engine_that_ends_is_no_reward_and_ends_the_programs(
    trainer: ScriptedTrainer,
    make_pod: MakePod,
    tiny_model: Path,
    tmp_path: Path,
    engine_server: EngineServer,
) -> None:
    waiting = Waiting(trainer, make_pod, tiny_model, tmp_path)
    before = waiting.wait(1)
    engine_server.kill()
    (waiting.folder / "go").touch()
    try:
        until(lambda: all(is_gone(program["pid"]) for program in before), what="the programs' end")
    finally:
        engine_server.start()
        engine_server.wait_ready()
    waiting.go()
    failed = [
        rollout
        for rollout in trainer.stores.rollouts.of_task(waiting.tasks[0])
        if rollout.error is not None
    ]
    assert failed
    assert {rollout.error.kind for rollout in failed if rollout.error} == {"infrastructure"}


def test_stopping_sampler_hands_back_episodes_of_programs_that_wait(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path, tmp_path: Path
) -> None:
    waiting = Waiting(trainer, make_pod, tiny_model, tmp_path)
    before = waiting.wait(1)
    waiting.pod.environment["RL_DRAIN_SECONDS"] = "0"
    waiting.pod.signal(signal.SIGKILL)
    waiting.pod.serve()
    waiting.wait(2)
    assert waiting.pod.signal(signal.SIGTERM) == 0
    assert trainer.states(waiting.tasks)[waiting.tasks[0]] is TaskState.RETRY
    assert all(is_gone(program["pid"]) for program in before)
    waiting.pod.serve()
    waiting.wait(3)
    waiting.go()


def test_program_that_always_fails_never_becomes_data(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path
) -> None:
    code = "import sys; sys.stderr.write('no module named agents'); sys.exit(1)"
    sections = program_job(trainer, tiny_model, [sys.executable, "-S", "-c", code])
    pod = make_pod(**sections)
    pod.serve_first_of(trainer)
    (name,) = trainer.insert(1, group_size=1)
    until(lambda: trainer.states([name])[name] is TaskState.DEAD, what="its end")
    task = trainer.stores.tasks.get([name])[name]
    assert "no module named agents" in task.reason
