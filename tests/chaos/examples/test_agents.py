"""The examples with agents learn, talk and run programs on the cluster."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rl_operator.render.samplers.agents import CHAT_PORT
from tests.chaos.examples.acting import (
    ALL_SECONDS,
    EXAMPLES,
    Played,
    Stage,
    documents,
    on_cpu,
    put_inputs,
)
from tests.cluster.lab import Lab
from tests.cluster.waiting import until
from tests.waiting import HUNG_SECONDS

LEAST_RISE = 0.3

pytestmark = pytest.mark.timeout(ALL_SECONDS)

Act = Callable[..., Played]


@pytest.fixture
def act(lab: Lab, stage: Stage, tmp_path: Path) -> Act:
    """Run an example with its model to its end."""

    def run(task: str, *manifests: str, **changes: Any) -> Played:
        put_inputs(lab, task, tmp_path)
        objects = [document for manifest in manifests for document in documents(manifest)]
        return stage.play(objects, **changes)

    return run


def short(task: str, *, steps: int) -> dict[str, Any]:
    """A few small steps on a CPU."""
    training = {"precision": "FP32", "promptsPerStep": 4, "optimizer": {"learningRate": 3e-4}}
    return on_cpu(model=task, **training, steps=steps, checkpoint={"everySteps": steps})


def talk(lab: Lab) -> tuple[str, str]:
    """What the policy says through a forwarded port, and the version that it is told to be."""

    def serving() -> str:
        pods = [pod for pod in lab.pods("conversation") if pod.role == "sampler" and pod.ready]
        return pods[0].name if pods else ""

    pod = until(serving, what="a sampler that serves")
    command = lab.tools.kubectl_command(
        "port-forward", "--namespace", lab.namespace, f"pod/{pod}", f":{CHAT_PORT}"
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as forwarding:
        try:
            assert forwarding.stdout is not None
            match = re.search(r"127\.0\.0\.1:(\d+) ", forwarding.stdout.readline())
            assert match is not None
            messages = [{"role": "user", "content": "The number of my order is 1234."}]
            request = urllib.request.Request(
                f"http://127.0.0.1:{match.group(1)}/v1/chat/completions",
                json.dumps({"model": "policy", "messages": messages, "max_tokens": 8}).encode(),
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=HUNG_SECONDS) as answer:
                body = json.loads(answer.read())
                return body["choices"][0]["message"]["content"], answer.headers["X-Policy-Version"]
        finally:
            forwarding.terminate()


def test_the_calculator_is_learned_to_be_called(
    act: Act, record_property: Callable[[str, object], None]
) -> None:
    report, rollouts, run = act("calculator", "agents/calculator.yaml", "calculator-agent.yaml")
    assert report.accuracy_before is not None
    assert report.accuracy_after is not None
    record_property("accuracy", f"{report.accuracy_before} → {report.accuracy_after}")
    assert report.accuracy_after - report.accuracy_before >= LEAST_RISE
    calls = [call for rollout in rollouts for turn in rollout.turns for call in turn.calls]
    assert {(call.tool, call.outcome) for call in calls} >= {("multiply", "answered")}
    last = [rollout for rollout in rollouts[-64:] if rollout.reward == 1]
    assert last
    assert all(rollout.turns[0].calls for rollout in last), "nobody guesses a product"
    assert run.step == run.steps


def test_a_collection_is_searched(lab: Lab, stage: Stage, tmp_path: Path) -> None:
    put_inputs(lab, "search", tmp_path)
    files = (EXAMPLES / "search/server.py", tmp_path / "collection.jsonl")
    collection = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "search"},
        "data": {path.name: path.read_text() for path in files},
    }
    manifests = [*documents("search/service.yaml"), *documents("search-agent.yaml")]
    _, rollouts, run = stage.play([collection, *manifests], **short("search", steps=2))
    assert run.step == 2
    calls = [call for rollout in rollouts for turn in rollout.turns for call in turn.calls]
    assert ("search", "answered") in {(call.tool, call.outcome) for call in calls}
    assert "Doc 1 (Title: Locker " in {call.result[:21] for call in calls}
    assert {rollout.reward for rollout in rollouts} == {0.0, 1.0}
    right = [rollout for rollout in rollouts if rollout.reward == 1]
    assert all(rollout.turns[0].calls for rollout in right), "nobody guesses a code"


def test_conversations_are_trained_while_people_talk_to_the_policy(act: Act, lab: Lab) -> None:
    changes = short("conversation", steps=3)
    heard: list[tuple[str, str]] = []
    _, rollouts, run = act(
        "conversation", "conversation.yaml", meanwhile=lambda: heard.append(talk(lab)), **changes
    )
    ((answer, version),) = heard
    assert answer
    assert 1 <= int(version) <= run.last_version
    assert run.step == 3
    assert {len(rollout.turns) for rollout in rollouts} == {2}
    assert {rollout.reward for rollout in rollouts} == {0.0, 1.0}


def test_programs_are_tried_and_handed_in(act: Act) -> None:
    changes = short("programs", steps=2)
    _, rollouts, run = act("programs", "code-agent.yaml", **changes)
    assert run.step == 2
    tried = [call for rollout in rollouts for turn in rollout.turns for call in turn.calls]
    assert {call.tool for call in tried} == {"python"}
    assert "answered" in {call.outcome for call in tried}
    judged = {part.value for rollout in rollouts for part in rollout.parts if part.scorer == "Code"}
    assert judged == {0.0, 1.0}
