"""The demo, run as a user runs it, and what it must have learned."""

from __future__ import annotations

import json
import math
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from rl_console.cluster.kube import Cluster
from rl_console.demo.settings import JOB, NAMESPACE, DemoSettings
from rl_console.jobs import JobObject
from rl_console.report import Report, read_report
from rl_console.stores import stores
from rl_contracts.documents.arrays import unpack_float32, unpack_int32
from rl_contracts.documents.batch import Batch
from rl_contracts.documents.evaluation import EvaluationResult
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.task import Queue, TaskState
from tests.cluster.lab import command_line
from tests.samples.documents import DEMO_KEYS
from tests.waiting import HUNG_SECONDS

DEMO_SECONDS = 3000
"""A demo that takes longer hangs."""
LEAST_RISE = 0.35
LEAST_VERSIONS = 20
LARGEST_GAP = 1e-4
LEAST_TOKENS = 1000
MAX_STALENESS = 2
TRAINER_SECONDS = 300
TEMPERATURES = {1.0, 0.7}


@dataclass(frozen=True)
class Demo:
    """A demo that has ended, and what its stores hold."""

    out: Path
    printed: str
    values: dict[str, Any]
    job: JobObject
    report: Report
    lineage: list[Batch]
    trained: dict[str, Rollout]
    evaluated: list[Rollout]


def run_demo(settings: DemoSettings) -> str:
    images = settings.out / "images.json"
    images.write_text(json.dumps(settings.images))
    command = command_line(
        settings.tools,
        "demo",
        "--images",
        str(images),
        "--cache",
        str(settings.cache),
        "--out",
        str(settings.out),
        "--storage-class",
        settings.storage_class,
        "--started-at",
        str(int(time.time())),
    )
    done = subprocess.run(
        command, cwd=settings.checkout, capture_output=True, text=True, timeout=DEMO_SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def demo(settings: DemoSettings, cluster: Cluster) -> Demo:
    printed = run_demo(settings)
    job = cluster.job(NAMESPACE, JOB)
    with stores(cluster, settings.tools, NAMESPACE) as opened:
        run = opened.runs.get(job.uid)
        assert run is not None
        lineage = opened.batches.lineage(run.head_batch)
        done = opened.tasks.find(job.uid, queue=Queue.CONSUMED, state=TaskState.DONE)
        final = [task for task in done if task.evaluation_version == run.last_version]
        evaluated = opened.rollouts.get([rollout for task in final for rollout in task.rollouts])
        trained = opened.rollouts.get(
            [member.rollout for batch in lineage for member in batch.members]
        )
        report = read_report(opened.objects, opened.run_prefix(job.uid))
    values = json.loads((settings.out / "demo.json").read_text())
    return Demo(
        out=settings.out,
        printed=printed,
        values=values,
        job=job,
        report=report,
        lineage=lineage,
        trained=trained,
        evaluated=list(evaluated.values()),
    )


@pytest.mark.timeout(DEMO_SECONDS + 120)
def test_held_out_accuracy_rises(demo: Demo) -> None:
    assert demo.values["accuracyAfter"] - demo.values["accuracyBefore"] >= LEAST_RISE
    assert set(demo.values) == DEMO_KEYS


def test_versions_are_published_and_served(demo: Demo) -> None:
    served = {span.version for rollout in demo.trained.values() for span in rollout.spans}
    assert demo.values["policyVersions"] >= LEAST_VERSIONS
    assert len(served) >= LEAST_VERSIONS


def test_sampling_and_training_overlap_within_the_bound(demo: Demo) -> None:
    ages = [
        batch.step - 1 - demo.trained[member.rollout].oldest_step
        for batch in demo.lineage
        for member in batch.members
    ]
    assert 1 <= max(ages) <= MAX_STALENESS
    assert demo.values["maxStalenessSeen"] == max(ages)


def test_the_trainer_is_fast_enough(demo: Demo) -> None:
    assert 0 < demo.values["trainerSeconds"] <= TRAINER_SECONDS


def test_trainer_and_engine_agree_on_every_token(
    demo: Demo, record_property: Callable[[str, object], None]
) -> None:
    versions = sorted({evaluation.version for evaluation in demo.report.evaluations})
    assert len(versions) >= 3, "the first, a middle and the final version are compared"
    assert versions[0] == 1
    assert versions[-1] == demo.report.policy_versions
    for version in versions:
        evaluations = [
            evaluation for evaluation in demo.report.evaluations if evaluation.version == version
        ]
        assert {evaluation.temperature for evaluation in evaluations} == TEMPERATURES
        for evaluation in evaluations:
            name = f"version {version}, temperature {evaluation.temperature:g}"
            record_property(
                name, f"mean |Δ| {evaluation.logprob_gap_mean:.1e}, {evaluation.tokens} tokens"
            )
            assert_agreement(evaluation)


def assert_agreement(evaluation: EvaluationResult) -> None:
    assert evaluation.tokens >= LEAST_TOKENS
    assert math.isfinite(evaluation.logprob_gap_mean)
    assert evaluation.logprob_gap_mean <= LARGEST_GAP


def test_the_final_model_answers_like_the_served_one(demo: Demo) -> None:
    model = AutoModelForCausalLM.from_pretrained(demo.out / "model", dtype=torch.float32).eval()
    gaps = [gap for rollout in demo.evaluated for gap in log_probability_gaps(model, rollout)]
    assert len(gaps) >= LEAST_TOKENS
    assert sum(gaps) / len(gaps) <= LARGEST_GAP


def log_probability_gaps(model: Any, rollout: Rollout) -> list[float]:
    """|transformers - engine| log-probability of each token that the engine sampled."""
    tokens = torch.tensor(unpack_int32(rollout.tokens))
    with torch.no_grad():
        logits = model(tokens[None]).logits[0, :-1] / rollout.temperature
    ours = torch.log_softmax(logits, dim=-1).gather(1, tokens[1:, None])[:, 0]
    theirs = torch.tensor(unpack_float32(rollout.logprobs))[1:]
    return [float(gap) for gap in (ours - theirs).abs()[torch.tensor(list(rollout.mask[1:])) == 1]]


def test_the_demo_prints_accuracy_reward_and_answers(demo: Demo) -> None:
    for text in ("held-out accuracy", "reward curve", demo.values["finalModel"], "step"):
        assert text in demo.printed
    assert (demo.out / "reward.png").read_bytes().startswith(b"\x89PNG")


def test_follow_and_report_work_on_the_finished_job(demo: Demo, settings: DemoSettings) -> None:
    picture = demo.out / "again.png"
    for arguments in (["follow", JOB], ["report", JOB, "--out", str(picture)]):
        command = command_line(settings.tools, *arguments, "--namespace", NAMESPACE)
        done = subprocess.run(command, capture_output=True, text=True, timeout=HUNG_SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr
    assert picture.exists()


def test_events_of_the_job_cover_its_life(demo: Demo, settings: DemoSettings) -> None:
    def kubectl(*arguments: str) -> str:
        command = settings.tools.kubectl_command("--namespace", NAMESPACE, *arguments)
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    heading, row = kubectl("get", "rljob", JOB).splitlines()
    assert heading.split() == [
        "NAME",
        "PHASE",
        "TRAINER",
        "SAMPLERS",
        "STEP",
        "REWARD",
        "POLICY",
        "AGE",
    ]
    assert row.split()[:2] == [JOB, "Succeeded"]
    described = kubectl("describe", "rljob", JOB)
    assert "Complete" in described
    assert "Events:" in described
