"""Policies that come faster than they are fetched, and ones that do not fit the model."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from rl_contracts.documents.task import TaskState
from rl_contracts.stores.connect import Stores
from tests.contract.rl_sampler.engine_server import EngineServer
from tests.contract.rl_sampler.pods import MakePod, start_run
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.contract.rl_sampler.tiny_model import tensors
from tests.servers import MinioServer, StoreServer, running_minio, settings_of
from tests.waiting import until

ANY_AGE = {"offPolicy": {"maxStaleness": 64}}


@pytest.fixture
def own_minio(tmp_path: Path) -> Iterator[MinioServer]:
    """A bucket server that the test may stop for a while."""
    folder = tmp_path / "minio"
    folder.mkdir()
    with running_minio(folder) as server:
        yield server


def test_pointer_that_moves_during_a_download_leads_to_the_newest_policy(
    store_server: StoreServer, own_minio: MinioServer, make_pod: MakePod, tiny_model: Path
) -> None:
    settings = settings_of(store_server, own_minio)
    with closing(Stores.connect(settings, patience_seconds=200)) as stores:
        stores.mongo.ensure_indexes()
        stores.objects.make_bucket()
        trainer = start_run(stores, tiny_model)
        pod = make_pod(settings=settings, stores=stores, algorithm=ANY_AGE)
        pod.serve_first_of(trainer)
        later = [trainer.write(seed=seed) for seed in (2, 3, 4, 5)]
        process = own_minio.server.process
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        try:
            trainer.point(later[0])
            pod.wait_document(
                lambda document: document.staging_version == 2, what="the download's begin"
            )
            for pointer in later[1:]:
                trainer.point(pointer)
            tasks = trainer.insert(1)
            until(lambda: trainer.all_done(tasks), what="a group meanwhile")
        finally:
            os.kill(process.pid, signal.SIGCONT)
        assert {span.version for rollout in trainer.chosen(tasks) for span in rollout.spans} == {1}
        pod.wait_version(5)
        assert [f"serving version {number}," in pod.log() for number in (3, 4, 5)] == [
            False,
            False,
            True,
        ]
        tasks = trainer.insert(1)
        until(lambda: trainer.all_done(tasks), what="a group of the newest")
        assert {span.version for rollout in trainer.chosen(tasks) for span in rollout.spans} == {5}
        assert pod.signal(signal.SIGTERM) == 0


def test_policy_with_other_tensor_shapes_never_reaches_the_engine(
    trainer: ScriptedTrainer, make_pod: MakePod, engine_server: EngineServer
) -> None:
    pod = make_pod(algorithm=ANY_AGE)
    pod.serve_first_of(trainer)
    name = "model.layers.0.mlp.up_proj.weight"
    trainer.publish(weights=tensors(2) | {name: np.ones((3, 64), dtype=np.float32)})
    pod.wait_document(lambda document: name in document.last_error, what="the refusal")
    tasks = trainer.insert(1)
    until(lambda: trainer.all_done(tasks), what="a group")
    assert trainer.states(tasks)[tasks[0]] is TaskState.DONE
    assert engine_server.weight_version() == "1"
