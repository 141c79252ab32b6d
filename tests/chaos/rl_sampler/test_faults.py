"""The document store and the engine end while groups are sampled, and come back."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_contracts.documents.task import TaskState
from rl_sampler.tasks.claims import LEASE_SECONDS, RENEW_SECONDS
from tests.contract.rl_sampler.engine_server import EngineServer
from tests.contract.rl_sampler.pods import MakePod, new_stores, start_run
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.servers import MinioServer, StoreServer, running_store, settings_of
from tests.waiting import until

LONG = {"sampling": {"maxTokensPerTurn": 100, "maxContextTokens": 1000}}


@pytest.fixture
def mortal_store(tmp_path: Path) -> Iterator[StoreServer]:
    """A document store that the test may kill."""
    folder = tmp_path / "store"
    folder.mkdir()
    with running_store(folder) as server:
        yield server


def test_groups_survive_an_outage_of_the_document_store(
    mortal_store: StoreServer, minio_server: MinioServer, make_pod: MakePod, tiny_model: Path
) -> None:
    settings = settings_of(mortal_store, minio_server)
    with new_stores(settings, patience_seconds=20) as stores:
        trainer = start_run(stores, tiny_model)
        pod = make_pod(settings=settings, stores=stores, agent=LONG)
        pod.serve_first_of(trainer)
        tasks = trainer.insert(16, group_size=8)
        until(lambda: TaskState.DONE in trainer.states(tasks).values(), what="a group")
        killed = time.monotonic()
        mortal_store.server.kill()
        until(lambda: "store:" in pod.log(), what="the agent to notice")
        mortal_store.server.start()
        away = time.monotonic() - killed
        until(lambda: trainer.all_done(tasks), what="all groups")
        # On a machine on which the store is away for as long as a lease, leases run out.
        assert away > LEASE_SECONDS - 2 * RENEW_SECONDS or {
            task.attempt for task in stores.tasks.get(tasks).values()
        } == {1}
        assert pod.signal(signal.SIGTERM) == 0


def test_killed_engine_is_given_its_policy_again(
    trainer: ScriptedTrainer, make_pod: MakePod, engine_server: EngineServer
) -> None:
    pod = make_pod(agent=LONG)
    pod.serve_first_of(trainer)
    tasks = trainer.insert(16, group_size=8)
    until(lambda: TaskState.DONE in trainer.states(tasks).values(), what="a group")
    engine_server.kill()
    until(lambda: pod.get("/ready")[0] == 503, what="the agent to notice")
    assert pod.get("/engine-live")[0] == 200
    assert TaskState.DEAD not in trainer.states(tasks).values()
    trainer.advance()
    trainer.publish(seed=2)
    engine_server.start()
    engine_server.wait_ready()
    until(lambda: trainer.all_done(tasks), what="all groups")
    assert engine_server.weight_version() == "2"
    versions = {span.version for rollout in trainer.chosen(tasks) for span in rollout.spans}
    assert versions == {1, 2}
