"""An object larger than its reader's bound is refused before a byte of it is read."""

from __future__ import annotations

import gzip
import io
import shutil
from collections import namedtuple
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rl_contracts.disk import DiskFullError
from rl_contracts.documents.overflow import FIELD
from rl_contracts.errors import ObjectTooLargeError
from rl_contracts.queries import lineage, tokenizer
from rl_contracts.spec.data import DatasetSource
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.files.images import PNG_BYTES
from rl_contracts.stores.objects import Objects
from rl_contracts.stores.rollouts import RolloutStore
from rl_reader import dataset_checks, model_checks
from tests.samples.documents import a_rollout, a_task

KIB = 1 << 10
Usage = namedtuple("Usage", "total used free")


def put(stores: Stores, name: str, content: bytes) -> str:
    key = f"{stores.objects.prefix}{name}"
    stores.objects.put(key, content)
    return key


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the chunks that clients receive from now on."""
    sizes: list[int] = []
    real = Objects.receive

    def counted(self: Objects, key: str, *, most: int | None = None) -> Iterator[bytes]:
        for chunk in real(self, key, most=most):
            sizes.append(len(chunk))
            yield chunk

    monkeypatch.setattr(Objects, "receive", counted)
    return sizes


def test_an_object_beyond_the_bound_is_refused_unread(stores: Stores, received: list[int]) -> None:
    key = put(stores, "large", bytes(64 * KIB))
    with pytest.raises(ObjectTooLargeError, match="has 65536 bytes, more than the 65535"):
        stores.objects.get(key, most=64 * KIB - 1)
    assert received == []
    assert len(stores.objects.get(key, most=64 * KIB)) == sum(received) == 64 * KIB


def test_a_client_has_a_bound_of_its_own_in_every_bucket(
    stores: Stores, store_settings: StoreSettings
) -> None:
    key = put(stores, "large", bytes(KIB))
    with closing(Stores.connect(store_settings, memory_bytes=KIB - 1)) as bounded:
        for objects in (bounded.objects, bounded.objects.of_bucket(store_settings.s3_bucket)):
            with pytest.raises(ObjectTooLargeError):
                objects.get(key, most=PNG_BYTES)
        assert bounded.objects.read_chunks(key, lambda chunks: sum(map(len, chunks))) == KIB


def test_an_object_that_would_inflate_is_read_as_it_is_stored(stores: Stores) -> None:
    packed, key = gzip.compress(bytes(1 << 20)), f"{stores.objects.prefix}packed"
    stores.objects._client.put_object(
        stores.objects.bucket,
        key,
        io.BytesIO(packed),
        len(packed),
        metadata={"Content-Encoding": "gzip"},
    )
    assert stores.objects.get(key, most=len(packed)) == packed


def test_a_file_beyond_its_bound_or_the_disk_is_not_begun(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, received: list[int]
) -> None:
    key, path = put(stores, "file", bytes(KIB)), tmp_path / "file"
    with pytest.raises(ObjectTooLargeError):
        stores.objects.get_file(key, path, most=KIB - 1)
    with monkeypatch.context() as full:
        full.setattr(shutil, "disk_usage", lambda folder: Usage(1 << 40, 0, 100))
        with pytest.raises(DiskFullError, match="of 1024 bytes does not fit"):
            stores.objects.get_file(key, path)
    assert (received, list(tmp_path.iterdir())) == ([], [])
    stores.objects.get_file(key, path, most=KIB)
    assert path.stat().st_size == KIB


def test_a_field_that_overflowed_is_read_up_to_the_size_in_its_document(stores: Stores) -> None:
    tight = RolloutStore(stores.mongo, stores.objects, overflow_bytes=4 * KIB)
    rollout = a_rollout(a_task(), tokens=bytes(5 * KIB))
    tight.put([rollout])
    stored = stores.mongo.collection("rollouts").find_one({"_id": rollout.id})
    assert stored is not None
    key = stored[FIELD]["tokens"]["key"]
    stores.objects.put(key, bytes(stored[FIELD]["tokens"]["size_bytes"] + 1))
    read = stores.rollouts.read([rollout.id])
    assert read.whole == {}
    assert "more than the" in read.damaged[rollout.id]


def test_a_viewers_range_has_a_bound(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    key = put(stores, "columns", bytes(KIB))
    monkeypatch.setattr(lineage, "RANGE_BYTES", KIB - 1)
    with pytest.raises(ObjectTooLargeError):
        lineage._range(stores, key, 0, KIB)


def test_a_large_tokenizer_is_refused_by_its_size(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(stores, "model/tokenizer.json", b"{}" + b" " * KIB)
    monkeypatch.setattr(tokenizer, "MOST_BYTES", KIB)
    uri = f"{stores.objects.uri(stores.objects.prefix)}model"
    with pytest.raises(ValueError, match="larger than"):
        tokenizer.load(stores, uri)


def test_a_whole_bucket_is_no_models_folder(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        put(stores, f"model/{number}", b"")
    uri = f"{stores.objects.uri(stores.objects.prefix)}model"
    monkeypatch.setattr(model_checks, "MOST_FILES", 3)
    (refusal,) = model_checks.folder(stores, "uri", uri, ("config.json",))
    assert (refusal.field, refusal.reason) == ("spec.model.uri", "ModelUnreadable")
    assert "More than 3 objects" in refusal.message


@pytest.mark.parametrize(
    ("config", "most", "reasons"),
    [
        ("c/task.toml", (10, 10), []),
        ("task.toml", (10, 10), []),
        ("c/d/task.toml", (10, 10), ["DatasetNotFound"]),
        ("c/other.toml", (5, 3), ["DatasetNotFound"]),
        ("c/other.toml", (4, 3), []),
        ("c/other.toml", (5, 2), []),
    ],
    ids=["a task", "the folder itself", "too deep", "no task", "more entries", "more folders"],
)
def test_a_folder_without_tasks_is_refused_once_all_of_it_was_looked_at(
    stores: Stores,
    monkeypatch: pytest.MonkeyPatch,
    config: str,
    most: tuple[int, int],
    reasons: list[str],
) -> None:
    """However many files its folders have."""
    prefix = f"{stores.objects.prefix}tasks/"
    for name in ("README.md", *(f"{folder}/environment/{n}" for folder in "ab" for n in range(3))):
        stores.objects.put(f"{prefix}{name}", b"")
    stores.objects.put(f"{prefix}{config}", b"")
    for name, limit in zip(("MOST_ENTRIES", "MOST_FOLDERS"), most, strict=True):
        monkeypatch.setattr(dataset_checks, name, limit)
    source = DatasetSource(name="tasks", format="Harbor", uri=stores.objects.uri(prefix))
    refusals = dataset_checks.of_tasks(stores.objects, prefix, source, field="spec.data.train[0]")
    assert [refusal.reason for refusal in refusals] == reasons
