"""The examples with agents, run on the cluster with the small models that are made for them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rl_console.demo.settings import DemoSettings
from rl_console.report import Report, read_report
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.run import Run
from tests.cluster.lab import Lab
from tests.waiting import HUNG_SECONDS

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
MAKE_SECONDS = 1500.0
COMPLETE_SECONDS = 4 * HUNG_SECONDS
LEAST_RISE = 0.3
ON_CPU = ("trainer", "samplers")
"""Sections of the calculator's example that any example needs on a machine without a GPU."""

pytestmark = pytest.mark.timeout(MAKE_SECONDS + COMPLETE_SECONDS + HUNG_SECONDS)


def documents(manifest: str) -> list[dict[str, Any]]:
    """The objects of an example."""
    return list(yaml.safe_load_all((EXAMPLES / manifest).read_text()))


def put_inputs(lab: Lab, task: str, folder: Path) -> None:
    """Make an example's model and data as its user does, and put them where its manifest says."""
    command = [sys.executable, str(EXAMPLES / "agents/make.py"), task, "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=MAKE_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    with lab.stores() as stores:
        for kind, prefix in (("model", "models"), ("data", "datasets")):
            for path in (folder / kind).iterdir():
                stores.objects.put_file(f"{prefix}/{task}/{path.name}", path)


Act = Callable[..., tuple[Report, list[Rollout], Run]]


@pytest.fixture
def act(lab: Lab, installed: DemoSettings, tmp_path: Path) -> Iterator[Act]:
    """Run an example to its end; what is deleted again is all that it made."""
    applied: list[dict[str, Any]] = []

    def run(task: str, *manifests: str, **changes: Any) -> tuple[Report, list[Rollout], Run]:
        put_inputs(lab, task, tmp_path)
        found = [one for manifest in manifests for one in documents(manifest)]
        for one in found:
            if one["kind"] == "Deployment":
                (container,) = one["spec"]["template"]["spec"]["containers"]
                container["image"] = installed.images["sampler"]
            if one["kind"] == "RLJob":
                one["spec"] |= changes
            applied.append(one)
            lab.apply(one)
        name = applied[-1]["metadata"]["name"]
        lab.await_condition(name, "Complete", seconds=COMPLETE_SECONDS)
        with lab.stores() as stores:
            ended = stores.runs.get(lab.job(name).status.run_id)
            assert ended is not None
            batches = stores.batches.lineage(ended.head_batch)
            ids = [member.rollout for batch in batches for member in batch.members]
            rollouts = stores.rollouts.get(ids)
            report = read_report(stores.objects, stores.run_prefix(ended.id))
        return report, [rollouts[one] for one in ids], ended

    yield run
    for one in reversed(applied):
        lab.delete(one["kind"].lower(), one["metadata"]["name"])


def on_cpu(task: str, *, steps: int) -> dict[str, Any]:
    """What makes an example a short one of this machine."""
    (job,) = documents("calculator-agent.yaml")
    training = {"precision": "FP32", "promptsPerStep": 4, "optimizer": {"learningRate": 3e-4}}
    return {
        **{name: job["spec"][name] for name in ON_CPU},
        "model": {"uri": f"s3://rl-data/models/{task}"},
        "training": training | {"steps": steps, "checkpoint": {"everySteps": steps}},
    }


def test_the_calculator_is_learned_to_be_called(
    act: Act, record_property: Callable[[str, object], None]
) -> None:
    report, rollouts, run = act("calculator", "agents/calculator.yaml", "calculator-agent.yaml")
    assert report.accuracy_before is not None
    assert report.accuracy_after is not None
    record_property("accuracy", f"{report.accuracy_before} → {report.accuracy_after}")
    assert report.accuracy_after - report.accuracy_before >= LEAST_RISE
    calls = [call for one in rollouts for turn in one.turns for call in turn.calls]
    assert {(call.tool, call.outcome) for call in calls} >= {("multiply", "answered")}
    last = [one for one in rollouts[-64:] if one.reward == 1]
    assert last
    assert all(one.turns[0].calls for one in last), "nobody guesses a product"
    assert run.step == run.steps


def test_conversations_are_trained(act: Act) -> None:
    _, rollouts, run = act("conversation", "conversation.yaml", **on_cpu("conversation", steps=3))
    assert run.step == 3
    assert {len(one.turns) for one in rollouts} == {2}
    assert {one.reward for one in rollouts} == {0.0, 1.0}


def test_programs_are_tried_and_handed_in(act: Act) -> None:
    changes = on_cpu("programs", steps=2)
    _, rollouts, run = act("programs", "code-agent.yaml", **changes)
    assert run.step == 2
    tried = [call for one in rollouts for turn in one.turns for call in turn.calls]
    assert {call.tool for call in tried} == {"python"}
    assert "answered" in {call.outcome for call in tried}
    judged = {part.value for one in rollouts for part in one.parts if part.scorer == "Code"}
    assert judged == {0.0, 1.0}
