"""Policies that are published faster than they are downloaded."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.contract.rl_sampler.pods import MakePod, new_stores, start_run
from tests.servers import MinioServer, StoreServer, settings_of
from tests.waiting import until

ANY_AGE = {"offPolicy": {"maxStaleness": 64}}


def test_pointer_that_moves_during_a_download_leads_to_the_newest_policy(
    store_server: StoreServer, own_minio: MinioServer, make_pod: MakePod, tiny_model: Path
) -> None:
    settings = settings_of(store_server, own_minio)
    with new_stores(settings) as stores:
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
