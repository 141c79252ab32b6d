"""One run on the cluster while its tool, its judge, the bucket and the store are away in turn.

Each is away for a minute in the middle of the run: a condition names it, the run goes on by itself,
no task is lost and no reward comes of it.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.documents.task import Queue, TaskState
from rl_contracts.spec.status import Condition
from tests.chaos.examples.acting import ALL_SECONDS, Stage, documents, put_inputs
from tests.cluster.lab import SYSTEM, Lab, RunReader
from tests.cluster.waiting import until
from tests.servers import ROOT
from tests.waiting import throughout

OUTAGE_SECONDS = float(os.environ.get("RL_OUTAGE_SECONDS", "60"))
NAME, STEPS, STEPS_BETWEEN = "calculator-agent", 200, 1
JUDGE_SERVER = ROOT / "tests/contract/rl_sampler/scorers/judge_server.py"
JUDGED = 0.75

pytestmark = pytest.mark.timeout(2 * ALL_SECONDS)


@dataclass(frozen=True)
class Away:
    """Who is away, and what says so."""

    target: str
    condition: str
    status: str
    words: str
    namespace: str = ""


TURNS = (
    Away("deployment/calculator", "ScorerUnavailable", "True", "MCP server calculator"),
    Away("deployment/judge", "ScorerUnavailable", "True", "Scorer Fair"),
    Away("statefulset/rl-operator-minio", "StorageReachable", "False", "", SYSTEM),
    Away("statefulset/rl-operator-store", "StateStoreReachable", "False", "", SYSTEM),
)


def judge() -> list[dict[str, Any]]:
    """A judge's server, as the calculator's."""
    text = json.dumps(documents("agents/calculator.yaml")).replace("calculator", "judge")
    manifests: list[dict[str, Any]] = json.loads(text)
    config, deployment, _ = manifests
    config["data"] = {"judge.py": JUDGE_SERVER.read_text()}
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    container["command"] = ["python", "/opt/judge/judge.py", "8000"]
    container["env"] = [{"name": "HOST", "value": "0.0.0.0"}]
    return manifests


def scale(lab: Lab, away: Away, replicas: int) -> None:
    """Take somebody away, or bring them back."""
    arguments = ["scale", away.target, f"--replicas={replicas}"]
    Lab(lab.cluster, lab.tools, away.namespace or lab.namespace).kubectl(*arguments)


def test_nobody_is_missed_for_good(stage: Stage, lab: Lab, tmp_path: Path) -> None:
    put_inputs(lab, "calculator", tmp_path)
    (job,) = documents("calculator-agent.yaml")
    endpoint = {"url": "http://judge:8000/v1", "model": "steady"}
    fair = {"kind": "Fair", "weight": 0.1, "judge": {"endpoints": [endpoint], "prompt": "Well?"}}
    job["spec"]["reward"]["scorers"].append(fair)
    job["spec"]["training"] |= {
        "steps": STEPS,
        "evaluation": {"beforeTraining": False, "afterTraining": False},
    }
    stage.apply([*documents("agents/calculator.yaml"), *judge(), job])
    run_id = until(lambda: lab.job(NAME).status.run_id, what="the run")
    take_turns(lab, run_id)
    with lab.stores() as stores:
        run = stores.runs.get(run_id)
        assert run is not None
        batches = stores.batches.lineage(run.head_batch)
        members = [member.rollout for batch in batches for member in batch.members]
        rollouts = stores.rollouts.get(members)
        dead = stores.tasks.find(run_id, queue=Queue.TRAIN, state=TaskState.DEAD)
    assert [batch.step for batch in batches] == list(range(1, run.step + 1))
    assert len(set(members)) == len(members) == run.step * 8 * 8
    for rollout in rollouts.values():
        parts = {part.scorer: part.value for part in rollout.parts}
        assert parts["ExactMatch"] in (0.0, 1.0)
        assert parts["Fair"] == JUDGED
        assert rollout.error is None
        assert {call.outcome for turn in rollout.turns for call in turn.calls} <= {
            "answered",
            "failed",
        }
    # What grew too old to train while nobody could train it is not lost but replaced.
    assert [letter.reason for letter in dead if "stale" not in letter.reason.lower()] == []


def take_turns(lab: Lab, run: str) -> None:
    """One after the other, each time when steps are being made again."""
    with contextlib.closing(RunReader(lab, run)) as reader:
        step = reader.await_step(STEPS_BETWEEN).step
        for away in TURNS:
            reader.close()  # a tunnel to a pod that is away would be waited for
            scale(lab, away, 0)
            condition = until(
                lambda: outage_condition(lab, away),  # noqa: B023
                what=f"{away.condition} of {away.target}",
            )
            assert away.words in condition.message
            throughout(lambda: stays(lab, away), seconds=OUTAGE_SECONDS)  # noqa: B023
            scale(lab, away, 1)
            until(lambda: not outage_condition(lab, away), what=f"{away.condition} to end")  # noqa: B023
            step = reader.await_step(step + STEPS_BETWEEN).step
    assert step < STEPS, "the last one was away while steps were made"


def outage_condition(lab: Lab, away: Away) -> Condition | None:
    """The condition, while it reports the outage."""
    condition = lab.condition(NAME, away.condition)
    return condition if condition is not None and condition.status == away.status else None


def stays(lab: Lab, away: Away) -> str:
    """A complaint once the condition forgets it, or the job is given up."""
    failed = lab.condition(NAME, "Failed")
    if failed is not None and failed.status == "True":
        return f"the job is given up: {failed.message}"
    return (
        ""
        if outage_condition(lab, away)
        else f"{away.condition} forgets that {away.target} is away"
    )
