"""Uploads in parts that a killed process leaves are aborted; living ones are sent again."""

from __future__ import annotations

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from minio import Minio

from rl_contracts.stores.clients.multipart import PART_BYTES, Multipart, unfinished
from rl_contracts.stores.connect import Stores
from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN

PART = bytes(5 << 20)


def begin(stores: Stores, key: str) -> None:
    """As a process that is killed between two parts."""
    Multipart(stores.objects._requests, key).put(1, [memoryview(PART)])


def left(stores: Stores) -> set[str]:
    """Keys of the unfinished uploads below the prefix of the test."""
    objects = stores.objects
    uploads = unfinished(objects._client, bucket=objects.bucket, prefix=objects.prefix)
    return {upload.key.removeprefix(objects.prefix) for upload in uploads}


def test_a_killed_upload_leaves_no_parts(make_world: MakeWorld) -> None:
    world = make_world(steps=1)
    run = world.stores.run_prefix(RUN)
    for name in ("policies/00000001-1-aa/model.safetensors", "checkpoints/00000001-1-aa/weights"):
        begin(world.stores, f"{run}{name}")
    for name in ("overflow/a-rollout/tokens-1", "batches/a-batch/members-1"):
        begin(world.stores, f"{run}{name}")
    begin(world.stores, f"{world.stores.objects.prefix}models/hub/weights")
    begin(world.stores, f"{world.stores.objects.prefix}runs/another/policies/1-1-aa/weights")
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == 0
    assert left(world.stores) == {
        f"runs/{RUN}/overflow/a-rollout/tokens-1",  # a sampler may be writing it
        "models/hub/weights",  # a pod may be importing it
        "runs/another/policies/1-1-aa/weights",
    }
    assert world.stores.objects.abort_uploads(run, before=math.inf) == 1
    assert world.stores.objects.abort_uploads(run, before=math.inf) == 0


def test_young_uploads_stay(stores: Stores) -> None:
    prefix = f"{stores.objects.prefix}models/"
    begin(stores, f"{prefix}hub/weights")
    assert stores.objects.abort_uploads(prefix, before=stores.mongo.now() - 60) == 0
    assert stores.objects.abort_uploads(prefix, before=stores.mongo.now() + 60) == 1
    assert left(stores) == set()


@pytest.mark.soak
@pytest.mark.parametrize("way", ["put", "put_file", "put_parts"])
def test_an_upload_that_another_process_aborts_is_sent_again(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    objects = stores.objects
    key, content = f"{objects.prefix}large", bytes(range(256)) * (PART_BYTES // 256 + 1)
    aborted = threading.Event()
    call = type(objects._client)._execute

    def aborting(client: Minio, method: str, *given: Any, **named: Any) -> object:
        if method == "POST" and (named.get("query_params") or {}).get("uploadId"):
            abort_once()
        return call(client, method, *given, **named)

    def abort_once() -> None:
        if not aborted.is_set():
            aborted.set()
            assert objects.abort_uploads(objects.prefix, before=math.inf) == 1

    complete = Multipart.complete

    def completing(upload: Multipart, tags: list[str]) -> None:
        abort_once()
        complete(upload, tags)

    monkeypatch.setattr(type(objects._client), "_execute", aborting)
    monkeypatch.setattr(Multipart, "complete", completing)
    if way == "put":
        objects.put(key, content)
    elif way == "put_file":
        (tmp_path / "large").write_bytes(content)
        objects.put_file(key, tmp_path / "large")
    else:
        view = memoryview(content)
        with ThreadPoolExecutor(2) as pool:
            objects.put_parts(
                key,
                lambda offset, size: [view[offset : offset + size]],
                size_bytes=len(content),
                executor=pool,
            )
    assert aborted.is_set()
    assert objects.get(key) == content
    assert left(stores) == set()
