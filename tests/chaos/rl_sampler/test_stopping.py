"""SIGTERM while something hangs that the pod waits for: it ends all the same, and claims go back.

States in which the engine is what hangs are in test_engine_ends.py.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rl_contracts.documents.task import Cause, TaskState
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.contract.rl_sampler.pods import MakePod, Pod, new_process, new_stores, start_run
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.servers import MinioServer, StoreServer, settings_of
from tests.waiting import HUNG_SECONDS, until

LONG = {"sampling": {"maxTokensPerTurn": 900, "maxContextTokens": 1000}}
ANY_AGE = {"offPolicy": {"maxStaleness": 64}}
DRAIN_SECONDS = 2
GROUPS = 400

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def own_settings(store_server: StoreServer, own_minio: MinioServer) -> StoreSettings:
    return settings_of(store_server, own_minio)


@pytest.fixture
def own_stores(own_settings: StoreSettings) -> Iterator[Stores]:
    with new_stores(own_settings) as stores:
        yield stores


@pytest.fixture
def pod(own_settings: StoreSettings, own_stores: Stores, make_pod: MakePod) -> Pod:
    pod = make_pod(settings=own_settings, stores=own_stores, agent=LONG, algorithm=ANY_AGE)
    pod.environment["RL_DRAIN_SECONDS"] = str(DRAIN_SECONDS)
    return pod


@pytest.fixture
def trainer(own_stores: Stores, tiny_model: Path) -> ScriptedTrainer:
    return start_run(own_stores, tiny_model)


@contextmanager
def hanging(server: MinioServer) -> Iterator[None]:
    """The bucket takes requests and never answers."""
    process = server.server.process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


def check_handed_back(pod: Pod, trainer: ScriptedTrainer, tasks: list[str]) -> None:
    """Nothing is held, and what was given up costs no attempt."""
    left = pod.document()
    assert left is not None
    assert left.drained
    stored = trainer.stores.tasks.get(tasks).values()
    assert {task.state for task in stored} <= {TaskState.DONE, TaskState.PENDING, TaskState.RETRY}
    given_up = [task for task in stored if task.state is TaskState.RETRY]
    assert {task.cause for task in given_up} <= {Cause.STOPPED}
    assert {task.attempt - task.excused for task in given_up} <= {0}


def test_agent_stops_while_staging_and_sampling(
    own_minio: MinioServer, pod: Pod, trainer: ScriptedTrainer
) -> None:
    pod.serve_first_of(trainer)
    later = trainer.write(seed=2)
    tasks = trainer.insert(GROUPS, group_size=8)  # more than are done before it is stopped
    with hanging(own_minio):
        trainer.point(later)
        pod.wait_document(
            lambda document: document.staging_version == 2, what="the download's begin"
        )
        until(lambda: TaskState.CLAIMED in trainer.states(tasks).values(), what="a claim")
        assert pod.signal(signal.SIGTERM) == 0
    check_handed_back(pod, trainer, tasks)


def test_init_container_stops_at_once(
    own_minio: MinioServer, pod: Pod, trainer: ScriptedTrainer
) -> None:
    with hanging(own_minio):
        environment = {**os.environ, **pod.environment}
        staging = new_process("stage", environment, pod.folder / "stage.log")
        handled = Path(f"/proc/{staging.pid}/status")

        def handles() -> bool:
            """A container's first process is sent no signal that it has no handler for."""
            caught = handled.read_text().split("SigCgt:\t")[1].split()[0]
            return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)

        until(handles, what="its handler of SIGTERM")
        staging.send_signal(signal.SIGTERM)
        assert staging.wait(timeout=HUNG_SECONDS) == 128 + signal.SIGTERM
    assert pod.stage().returncode == 0, "the next one is not held up by what is left"
