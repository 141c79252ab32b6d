"""A real agent and engine while the store, then the bucket, is away for a minute."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from rl_contracts.documents.task import TaskState
from tests.contract.rl_sampler.pods import MakePod, Pod, new_stores, start_run
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.samples.orphans import find_orphans
from tests.servers import Server, running_minio, running_store, settings_of
from tests.waiting import throughout, until

OUTAGE_SECONDS = float(os.environ.get("RL_OUTAGE_SECONDS", "60"))
TASKS, GROUP = 24, 8
LONG = {"sampling": {"maxTokensPerTurn": 100, "maxContextTokens": 1000}}
ANY_AGE = {"offPolicy": {"maxStaleness": 64}}


@pytest.mark.timeout(1200)
def test_agent_survives_a_minute_without_store_and_a_minute_without_bucket(
    tmp_path: Path, make_pod: MakePod, tiny_model: Path
) -> None:
    for name in ("store", "minio"):
        (tmp_path / name).mkdir()
    with (
        running_store(tmp_path / "store") as store,
        running_minio(tmp_path / "minio") as minio,
    ):
        settings = settings_of(store, minio)
        with new_stores(settings) as stores:
            trainer = start_run(stores, tiny_model)
            pod = make_pod(settings=settings, stores=stores, agent=LONG, algorithm=ANY_AGE)
            pod.serve_first_of(trainer)
            tasks = without_store(store.server, trainer, pod)
            tasks += without_bucket(minio.server, trainer, pod)
            check_nothing_lost(trainer, tasks)
            assert pod.signal(signal.SIGTERM) == 0


def without_store(server: Server, trainer: ScriptedTrainer, pod: Pod) -> list[str]:
    """Kill it while groups are sampled; the agent says what it waits for, and goes on after it."""
    tasks = trainer.insert(TASKS, group_size=GROUP)
    until(lambda: TaskState.DONE in trainer.states(tasks).values(), what="a group")
    server.kill()
    until(lambda: waits_for(pod, "store"), what="the metric that says so")
    throughout(lambda: complaint(pod), seconds=OUTAGE_SECONDS)
    assert "document store did not answer while" in pod.log()
    server.start()
    until(lambda: trainer.all_done(tasks), what="all groups")
    until(lambda: not waits_for(pod, "store"), what="the metric's end")
    assert "store: resolved" in pod.log()
    return tasks


def without_bucket(server: Server, trainer: ScriptedTrainer, pod: Pod) -> list[str]:
    """Kill it with a version to fetch; the old one serves until then."""
    trainer.advance()
    pointer = trainer.write(seed=2)
    server.kill()
    trainer.point(pointer)
    pod.wait_document(
        lambda document: "bucket" in document.last_error, what="the registration to say so"
    )
    assert waits_for(pod, "policy")
    assert waits_for(pod, "bucket")
    tasks = trainer.insert(TASKS, group_size=GROUP)
    throughout(lambda: complaint(pod), seconds=OUTAGE_SECONDS)
    until(lambda: trainer.all_done(tasks), what="groups of the old version")
    assert {span.version for rollout in trainer.chosen(tasks) for span in rollout.spans} == {1}
    server.start()
    pod.wait_version(pointer.version)
    pod.wait_document(
        lambda document: "bucket" not in document.last_error, what="the problem's end"
    )
    assert not waits_for(pod, "bucket")
    fresh = trainer.insert(1, group_size=GROUP)
    until(lambda: trainer.all_done(fresh), what="a group of the new version")
    assert {span.version for rollout in trainer.chosen(fresh) for span in rollout.spans} == {2}
    return [*tasks, *fresh]


def complaint(pod: Pod) -> str:
    assert pod.process is not None
    return f"the agent ended: {pod.log()[-3000:]}" if pod.process.poll() is not None else ""


def waits_for(pod: Pod, topic: str) -> bool:
    return f'rl_sampler_problem{{topic="{topic}"}} 1.0' in pod.get("/metrics")[1]


def check_nothing_lost(trainer: ScriptedTrainer, tasks: list[str]) -> None:
    stored = trainer.stores.tasks.get(tasks)
    assert {task.state for task in stored.values()} == {TaskState.DONE}
    assert len(stored) == len(set(tasks)) == 2 * TASKS + 1
    assert len(trainer.chosen(tasks)) == len(tasks) * GROUP
    assert not find_orphans(trainer.stores.mongo, trainer.run)
