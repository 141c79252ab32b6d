"""From the trainer's tensors to a staged folder, byte for byte."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from safetensors import safe_open

from rl_contracts.disk import DiskFullError
from rl_contracts.errors import IntegrityError, ObjectMissingError
from rl_contracts.spec.storage import Delta
from rl_contracts.stores.connect import Stores
from rl_sampler.policy import fetch
from rl_sampler.policy.fetch import StagingCancelledError
from rl_trainer.publish import policy_shard
from tests.contract.policy_broadcast.training import follow_training
from tests.contract.policy_broadcast.world import (
    Line,
    Subscriber,
    content,
    moved,
    strange,
)


@pytest.fixture
def line(stores: Stores) -> Line:
    return Line(stores.objects)


@pytest.fixture
def subscriber(tmp_path: Path, stores: Stores) -> Subscriber:
    return Subscriber.make(tmp_path / "weights", stores.objects, strange())


@pytest.mark.parametrize("rate", [1e-6, 3e-6, 1e-5])
def test_samplers_get_exactly_the_trained_weights(
    line: Line, tmp_path: Path, stores: Stores, rate: float
) -> None:
    changes = follow_training(line, tmp_path, stores.objects, rate=rate, steps=12)
    assert min(changes) > 0, "no step changed anything: the test shows nothing"


def test_every_dtype_and_every_bit_pattern_arrives(line: Line, subscriber: Subscriber) -> None:
    tensors = strange()
    keep: list[Path] = []
    for seed in range(4):
        staged = subscriber.stage(line.publish(tensors), keep=keep)
        assert content(staged) == line.states[line.version]
        keep, tensors = [staged.folder], moved(tensors, seed=seed)
    assert [policy.content for policy in line.sent.values()] == ["full", "delta", "delta", "delta"]
    with safe_open(staged.folder / "model.safetensors", framework="pt") as file:
        assert set(file.keys()) == set(tensors), "what the engine reads"
    received = len(subscriber.received)
    assert subscriber.stage(line.pointers[4]) == staged
    assert len(subscriber.received) == received, "a policy made of deltas is only checked again"


def test_anchors_come_first_regularly_and_when_a_delta_is_too_large(stores: Stores) -> None:
    line = Line(stores.objects, delta=Delta(anchor_every=3, max_fraction=0.3))
    tensors = strange()
    for seed in range(7):
        line.publish(tensors)
        tensors = moved(tensors, seed=seed, share=0.9 if seed == 4 else 0.02)
    kinds = [(policy.content, policy.base_version) for policy in line.sent.values()]
    assert kinds == [
        ("full", 0),
        ("delta", 1),
        ("delta", 2),
        ("full", 3),
        ("delta", 4),
        ("full", 0),
        ("delta", 6),
    ]
    never = Line(stores.objects, delta=Delta(anchor_every=1), epoch=2)
    for _ in range(2):
        never.publish(tensors)
    assert [policy.base_version for policy in never.sent.values()] == [0, 0]
    assert never.base is None, "no copy is kept for deltas that are never made"


def test_unchanged_weights_are_a_delta_of_no_bytes(line: Line, subscriber: Subscriber) -> None:
    first = subscriber.stage(line.publish(strange()))
    subscriber.received.clear()
    second = subscriber.stage(line.publish(strange()), keep=[first.folder])
    assert content(second) == line.states[1]
    assert subscriber.received == []


def test_a_joiner_takes_the_last_anchor_and_what_came_after(
    stores: Stores, subscriber: Subscriber
) -> None:
    line = Line(stores.objects, delta=Delta(anchor_every=4, max_fraction=0.5))
    tensors = strange()
    for seed in range(7):
        line.publish(tensors)
        tensors = moved(tensors, seed=seed)
    staged = subscriber.stage(line.pointers[7])
    assert content(staged) == line.states[7]
    wanted = [line.manifest(5).full_bytes, *(_delta(line, version) for version in (6, 7))]
    assert sum(subscriber.received) == sum(wanted)


def _delta(line: Line, version: int) -> int:
    entry = line.manifest(version).delta
    assert entry is not None
    return entry.size_bytes


def test_a_sampler_fifty_versions_behind_needs_no_full_download(
    stores: Stores, tmp_path: Path
) -> None:
    tensors = strange(size=100_000)
    line = Line(stores.objects, delta=Delta(anchor_every=10, max_fraction=0.5))
    subscriber = Subscriber.make(tmp_path / "weights", stores.objects, tensors)
    first = subscriber.stage(line.publish(tensors))
    for seed in range(50):
        tensors = moved(tensors, seed=seed, share=0.0005)
        line.publish(tensors)
    subscriber.received.clear()
    staged = subscriber.stage(line.pointers[51], keep=[first.folder])
    assert content(staged) == line.states[51]
    assert sum(subscriber.received) < 0.5 * line.manifest(1).full_bytes


def test_a_full_policy_is_taken_where_the_chain_is_longer(
    stores: Stores, subscriber: Subscriber
) -> None:
    line = Line(stores.objects, delta=Delta(anchor_every=8, max_fraction=1.0))
    tensors = strange()
    first = subscriber.stage(line.publish(tensors))
    for seed in range(9):
        tensors = moved(tensors, seed=seed, share=0.3)
        line.publish(tensors)
    subscriber.received.clear()
    staged = subscriber.stage(line.pointers[10], keep=[first.folder])
    assert content(staged) == line.states[10]
    assert sum(subscriber.received) == line.manifest(9).full_bytes + _delta(line, 10)


def test_shards_arrive_as_one_policy(
    line: Line, subscriber: Subscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_shard, "FILE_BYTES", 1000)
    monkeypatch.setattr(fetch, "PART_BYTES", 300)
    staged = subscriber.stage(line.publish(strange()))
    assert len(list(staged.folder.glob("model-*-of-*.safetensors"))) == 2
    again = subscriber.stage(line.publish(moved(strange(), seed=1)), keep=[staged.folder])
    assert content(again) == line.states[2]


def test_a_joiner_during_publications_gets_one_whole_version(
    line: Line, tmp_path: Path, stores: Stores
) -> None:
    tensors, done = strange(), threading.Event()
    line.publish(tensors)

    def publish() -> None:
        following = tensors
        for seed in range(12):
            following = moved(following, seed=seed)
            line.publish(following)
        done.set()

    with ThreadPoolExecutor(1) as pool:
        publishing = pool.submit(publish)
        for number in range(100):
            newest = max(line.pointers)
            joiner = Subscriber.make(tmp_path / str(number), stores.objects, tensors)
            assert content(joiner.stage(line.pointers[newest])) == line.states[newest]
            if done.is_set():
                break
        publishing.result()


def replace(line: Line, key: str, change: str) -> None:
    """Damage an object in the bucket."""
    data = line.objects.get(key)
    middle = len(data) // 2
    if change == "missing":
        line.objects._client.remove_object(line.objects.bucket, key)
        return
    changed = {
        "truncated": data[:-1],
        "empty": b"",
        "flipped": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
    }[change]
    line.objects.put(key, changed)


@pytest.mark.parametrize("change", ["missing", "truncated", "empty", "flipped"])
@pytest.mark.parametrize(
    ("version", "name"),
    [
        (2, "delta-00000.zst"),
        (2, "manifest.json"),
        (1, "model.safetensors"),
        (1, "manifest.json"),
    ],
)
def test_damaged_objects_are_never_staged(
    line: Line, subscriber: Subscriber, version: int, name: str, change: str
) -> None:
    tensors = strange()
    line.publish(tensors)
    line.publish(moved(tensors, seed=1))
    replace(line, line.pointers[version].prefix + name, change)
    with pytest.raises((IntegrityError, ObjectMissingError)):
        subscriber.stage(line.pointers[2])
    assert subscriber.names == []
    # The next epoch begins with a full version, whatever became of this one.
    line.base, line.epoch = None, 2
    line.publish(tensors)
    assert content(subscriber.stage(line.pointers[3])) == line.states[3]


def test_a_pointer_without_its_objects_changes_nothing(line: Line, subscriber: Subscriber) -> None:
    first = subscriber.stage(line.publish(strange()))
    ahead = line.pointers[1].model_copy(
        update={"version": 2, "prefix": f"{line.objects.prefix}policies/00000002-1-zz/"}
    )
    with pytest.raises(ObjectMissingError):
        subscriber.stage(ahead, keep=[first.folder])
    assert subscriber.names == [first.folder.name]


def test_a_delta_on_another_base_is_refused(line: Line, subscriber: Subscriber) -> None:
    """Two versions whose deltas changed places: all digests of files are right."""
    tensors = strange()
    line.publish(tensors)
    for seed in (1, 2):
        tensors = moved(tensors, seed=seed)
        line.publish(tensors)
    third = line.manifest(3)
    assert third.delta is not None
    delta = third.delta.model_copy(update={"base": line.base_of(1)})
    pointer = line.forge(3, third.model_copy(update={"delta": delta}))
    with pytest.raises(IntegrityError, match="digest"):
        subscriber.stage(pointer)
    other_epoch = line.forge(3, third.model_copy(update={"epoch": 7}), epoch=7)
    with pytest.raises(IntegrityError, match="cannot start from"):
        subscriber.stage(other_epoch)
    assert subscriber.names == []


def test_a_corrupt_base_on_disk_costs_one_download(line: Line, subscriber: Subscriber) -> None:
    tensors = strange()
    first = subscriber.stage(line.publish(tensors))
    path = first.folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x55")
    staged = subscriber.stage(line.publish(moved(tensors, seed=1)), keep=[first.folder])
    assert content(staged) == line.states[2]


def test_a_download_resumes_where_it_stopped(
    line: Line, subscriber: Subscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "PART_BYTES", 500)
    monkeypatch.setattr(fetch, "PARTS_AT_A_TIME", 1)
    line.publish(strange())
    cancelled = threading.Event()

    class Ending(list[int]):
        def append(self, size: int) -> None:
            super().append(size)
            if len(self) == 5:
                cancelled.set()

    subscriber.bucket.received = received = Ending()
    with pytest.raises(StagingCancelledError):
        subscriber.stage(line.pointers[1], cancelled=cancelled)
    assert sum(received) == 2500
    assert content(subscriber.stage(line.pointers[1])) == line.states[1]
    assert sum(received) == line.manifest(1).full_bytes, "no byte came twice"


def test_a_half_staged_policy_is_verified_when_resumed(
    line: Line, subscriber: Subscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "PARTS_AT_A_TIME", 1)
    line.publish(strange())
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(StagingCancelledError):
        subscriber.stage(line.pointers[1], cancelled=cancelled)
    (partial,) = subscriber.weights.policies.iterdir()
    size = line.manifest(1).full_bytes
    (partial / fetch.JOURNAL).write_text(f"0 {size} model.safetensors\n")  # it never came
    with pytest.raises(IntegrityError):
        subscriber.stage(line.pointers[1])
    assert content(subscriber.stage(line.pointers[1])) == line.states[1]


def test_a_full_disk_is_named_and_left_clean(
    line: Line, subscriber: Subscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There was room when it was asked for, and somebody else has taken it."""
    first = subscriber.stage(line.publish(strange()))
    line.base = None
    line.publish(moved(strange(), seed=1))
    with monkeypatch.context() as patch:

        def allocate(file: int, offset: int, size: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patch.setattr(os, "posix_fallocate", allocate)
        with pytest.raises(DiskFullError, match=r"no room for model\.safetensors"):
            subscriber.stage(line.pointers[2], keep=[first.folder])
    assert subscriber.names == [first.folder.name], "what is served stays, and nothing half-done"
    staged = subscriber.stage(line.pointers[2], keep=[first.folder])
    assert content(staged) == line.states[2]


def test_an_interrupted_copy_is_repeated(line: Line, subscriber: Subscriber) -> None:
    tensors = strange()
    first = subscriber.stage(line.publish(tensors))
    line.publish(moved(tensors, seed=1))
    partial = subscriber.weights.of_policy(line.pointers[2]).with_suffix(".partial")
    shutil.copytree(first.folder, partial)
    (partial / "model.safetensors").write_bytes(b"half a copy")
    staged = subscriber.stage(line.pointers[2], keep=[first.folder])
    assert content(staged) == line.states[2]
