"""A job is suspended in the middle of its training, holds nothing, and goes on where it was.

It trains adapters, from data that are mounted into the trainer's pod, a bad record among them.
While it is suspended a pod of the namespace tells what a step trained.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.lab import Lab, RunReader
from tests.cluster.manifests import short_job
from tests.cluster.waiting import until
from tests.waiting import HUNG_SECONDS

NAME = "suspended"
DATA = "suspended-data"
AUDIT = "suspended-audit"
RECORDS = 100
RANK = 8
STEPS = 60
"""More than a fast machine makes while a suspension arrives."""
COMPLETE_SECONDS = 3 * HUNG_SECONDS


def suspend(lab: Lab, *, suspended: bool) -> None:
    patch = f'{{"spec": {{"suspend": {str(suspended).lower()}}}}}'
    lab.kubectl("patch", "rljob", NAME, "--type=merge", "-p", patch)


def mount_records(lab: Lab) -> dict[str, Any]:
    """Put some records and a broken one where pods can mount them; return the job's changes."""
    with lab.stores() as stores:
        lines = stores.objects.get("datasets/arithmetic/train.jsonl").decode().splitlines()
    content = "\n".join([*lines[:RECORDS], "{broken"])
    lab.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": DATA},
            "data": {"train.jsonl": content},
        }
    )
    volume = {"name": "records", "configMap": {"name": DATA}}
    mount = {"name": "records", "mountPath": "/records", "readOnly": True}
    trainer = {"name": "pytorch", "volumeMounts": [mount]}
    return {
        "data__train": [{"name": "mounted", "uri": "file:///records/train.jsonl"}],
        "data__onBadRecord": "Skip",
        "trainer__podTemplate": {"spec": {"containers": [trainer], "volumes": [volume]}},
    }


@pytest.fixture(scope="module")
def reader(lab: Lab) -> Iterator[RunReader]:
    """A job whose first step is done."""
    # No checkpoint is due before the end: only the suspension makes one.
    training = {
        "training__steps": STEPS,
        "training__checkpoint__everySteps": STEPS,
        "training__lora__rank": RANK,
    }
    lab.apply(short_job(NAME, **training, **mount_records(lab)))
    run = until(lambda: lab.job(NAME).status.run_id, what="a run id")
    with contextlib.closing(RunReader(lab, run)) as reader:
        reader.await_step(1)
        yield reader
    lab.delete("rljob", NAME)
    lab.delete("configmap", DATA)


def audit_pod(trainer: dict[str, Any], *, step: int) -> dict[str, Any]:
    """A pod like the trainer's with another command: whatever that needs is mounted there."""
    spec, container = trainer["spec"], trainer["spec"]["containers"][0]
    command = ["python", "-m", "rl_contracts.audit", "batch", "--step", str(step), "--json"]
    same = {key: container[key] for key in ("image", "env", "securityContext", "volumeMounts")}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": AUDIT},
        "spec": {
            "containers": [{"name": "audit", "command": command, **same}],
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "securityContext": spec["securityContext"],
            "volumes": spec["volumes"],
        },
    }


def audited(lab: Lab, pod: dict[str, Any]) -> dict[str, Any]:
    """What the pod's audit prints."""

    def phase() -> str:
        return str(lab.get("pod", AUDIT)["status"]["phase"])

    lab.apply(pod)
    try:
        until(lambda: phase() in ("Succeeded", "Failed"), what="the audit's end", seen=phase)
        printed: dict[str, Any] = json.loads(lab.kubectl("logs", AUDIT))
    finally:
        lab.delete("pod", AUDIT)
    return printed


def check_audit(lab: Lab, run: str, trainer: dict[str, Any]) -> None:
    """A pod locates the tensors of the last step again; their digest is that of the training."""
    with lab.stores() as stores:
        document = stores.runs.get(run)
        assert document is not None
        batch = stores.batches.lineage(document.head_batch)[-1]
    report = audited(lab, audit_pod(trainer, step=batch.step))
    assert batch.digest is not None
    assert (report["run"], report["step"], report["digest"]["verdict"]) == (
        run,
        batch.step,
        "match",
    )
    assert report["digest"]["trained"] == report["digest"]["rebuilt"] == batch.digest.model_dump()
    assert {sequence["rollout"] for sequence in report["sequences"]} == {
        member.rollout for member in batch.members
    }


def test_a_suspended_job_has_no_pods_and_loses_no_step(lab: Lab, reader: RunReader) -> None:
    (trainer,) = [pod.name for pod in lab.pods(NAME) if pod.role == "trainer"]
    manifest = lab.get("pod", trainer)
    reader.await_step(3)
    suspend(lab, suspended=True)
    lab.await_condition(NAME, "Suspended")
    assert lab.pods(NAME) == []
    status = lab.job(NAME).status
    assert (status.phase, status.failures) == ("Suspended", 0)
    assert [attempt.result for attempt in status.attempts] == ["Suspended"]
    held = until(reader.document, what="the run")
    assert held is not None
    assert held.durable is not None
    assert held.durable.step == held.step >= 3
    check_audit(lab, reader.run, manifest)

    suspend(lab, suspended=False)
    lab.await_condition(NAME, "Complete", seconds=COMPLETE_SECONDS)
    status = lab.job(NAME).status
    assert (status.attempt, status.failures, status.progress.step) == (2, 0, STEPS)
    assert [attempt.result for attempt in status.attempts] == ["Suspended", "Succeeded"]
    assert status.samplers.restarts == 0
    with lab.stores() as stores:
        document = stores.runs.get(reader.run)
        assert document is not None
        lineage = stores.batches.lineage(document.head_batch)
        trained = stores.tasks.get([task for batch in lineage for task in batch.tasks]).values()
        assert document.policy is not None
        published = json.loads(stores.objects.get(f"{document.policy.prefix}manifest.json"))
    assert published["adapter"]["rank"] == RANK
    assert [batch.step for batch in lineage] == list(range(1, STEPS + 1))
    assert {task.dataset for task in trained} == {"mounted"}
    summary = {dataset.name: dataset for dataset in status.datasets}["mounted"]
    assert (summary.split, summary.records, summary.skipped) == ("train", RECORDS, 1)
    place = f"file:///records/train.jsonl line {RECORDS + 1} is not JSON"
    assert [text.startswith(place) for text in summary.first_skipped] == [True]
