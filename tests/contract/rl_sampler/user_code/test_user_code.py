"""User code in a sampler: the example's works, what cannot is refused, what fails is no reward."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from rl_contracts import env
from rl_contracts.documents.task import TaskState
from rl_contracts.spec.resources import RLJobSpec
from rl_sampler.code.client import CodeContainer
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.problems import Problems
from rl_sampler.scorers.response import Response
from rl_sampler.user_code.call import UserCodeError
from rl_sampler.user_code.remote import user_code_of
from tests.code_container import process
from tests.contract.rl_sampler.episodes.several_turns import check_turns, short_spoken, with_tools
from tests.contract.rl_sampler.pods import MakePod, Pod
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.samples.manifests import a_job
from tests.servers import ROOT
from tests.waiting import HUNG_SECONDS, until

EXAMPLE = ROOT / "examples" / "extending"
SAMPLING = {"maxTokensPerTurn": 64, "maxContextTokens": 800}


def of_example(trainer: ScriptedTrainer, model: Path) -> dict[str, Any]:
    """Sections of the example's job, for a model with a template for several turns."""
    spec = yaml.safe_load((ROOT / "examples" / "extending.yaml").read_text())["spec"]
    agent = spec["agent"] | {"sampling": SAMPLING}
    return {
        "agent": agent,
        "reward": spec["reward"],
        "model": with_tools(trainer, model)["model"],
    }


def served(pod: Pod, *modules: Path) -> Pod:
    """Start the agent, and beside it a container ``code`` that has these folders of modules."""
    pod.modules += modules
    assert pod.stage().returncode == 0
    pod.serve()
    return pod


def test_example_scorer_tool_and_agent_work(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path
) -> None:
    pod = make_pod(**of_example(trainer, tiny_model))
    served(pod, EXAMPLE)
    trainer.publish(weights=short_spoken())
    tasks = trainer.insert(3, group_size=4)
    until(lambda: trainer.all_done(tasks), what="the groups")
    for rollout in trainer.chosen(tasks):
        check_turns(rollout)
        assert len(rollout.turns) == 2
        parts = {part.scorer: part for part in rollout.parts}
        expected = min(1.0, 8 / max(1, len(rollout.text.split())))
        assert parts["Brevity"].value == expected
        assert rollout.reward == pytest.approx(parts["ExactMatch"].value + 0.1 * expected)
        timings = rollout.timings
        assert min(timings.claimed_at, timings.generate_seconds, timings.score_seconds) > 0
        assert timings.queue_seconds == sum(turn.queue_seconds for turn in rollout.turns)
        assert timings.tool_seconds == sum(turn.tool_seconds for turn in rollout.turns)
    document = pod.wait_document(lambda document: True, what="the registration")
    assert "Brevity" in document.scorers
    assert document.refusals == []


def test_missing_user_code_is_refused_and_nothing_is_claimed(
    trainer: ScriptedTrainer, make_pod: MakePod, tiny_model: Path
) -> None:
    trainer.publish(weights=short_spoken())
    tasks = trainer.insert(1)
    pod = served(make_pod(**of_example(trainer, tiny_model)))  # the image lacks the module
    document = pod.wait_document(lambda document: True, what="the registration")
    (refusal,) = document.refusals
    assert refusal.field == "spec.agent.tools[0].entryPoint"
    assert refusal.value == "second_look:multiply"
    assert refusal.reason == "EntryPointUnusable"
    assert "No module named 'second_look'" in refusal.message
    assert "spec.code.image" in refusal.remedy
    assert "Brevity" in document.scorers
    pod.wait_version(1)
    assert set(trainer.states(tasks).values()) == {TaskState.PENDING}


def test_user_scorer_that_raises_is_a_user_error_and_never_a_reward(
    trainer: ScriptedTrainer, make_pod: MakePod, tmp_path: Path
) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "moody.py").write_text("def moody(response):\n    return 1 / 0\n")
    scorer = {"kind": "Moody", "entryPoint": "moody:moody"}
    trainer.publish()
    (task,) = trainer.insert(1, max_attempts=2)
    served(make_pod(reward={"scorers": [scorer]}), folder)
    until(lambda: trainer.states([task])[task] is TaskState.DEAD, what="its end")
    stored_task = trainer.stores.tasks.get([task])[task]
    assert "scorer Moody (moody:moody) raised ZeroDivisionError" in stored_task.reason
    assert stored_task.rollouts == []
    kept = trainer.stores.rollouts.of_task(task)
    assert {rollout.error.kind for rollout in kept if rollout.error is not None} == {"user"}
    assert all(
        rollout.error is not None and rollout.reward == 0 and not rollout.parts for rollout in kept
    )


def test_scorer_that_ends_the_container_is_a_user_error_and_the_next_call_finds_it_again(
    tmp_path: Path,
) -> None:
    (tmp_path / "fatal.py").write_text(
        "import os\ndef score(response):\n    return 0.5 if response.text else os._exit(9)\n"
    )
    sections: dict[str, Any] = {
        "reward": {"scorers": [{"kind": "Fatal", "entryPoint": "fatal:score"}]}
    }
    spec = a_job(**sections)["spec"]
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    socket, counters = tmp_path / "calls", Counters()
    code = CodeContainer(socket, counters=counters)

    async def score(text: str) -> float:
        own = await user_code_of(RLJobSpec.model_validate(spec), code, Problems())
        return await own.scorers["Fatal"](Response(text=text, answer=None, reference=""))

    modules = {env.CODE_FOLDER: str(tmp_path), "PATH": os.environ["PATH"]}
    with process(socket, tmp_path / "spec.json", environment=modules) as server:
        with pytest.raises(UserCodeError, match=r"scorer Fatal .* ended during the call"):
            asyncio.run(score(""))
        assert server.wait(timeout=HUNG_SECONDS) == 9
    assert counters.code_calls["score", "lost"] == 1
    with process(socket, tmp_path / "spec.json", environment=modules):
        assert asyncio.run(score("x")) == 0.5
