"""The publisher against real stores: fencing, and what it deletes when."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rl_contracts import env
from rl_contracts.documents.manifest import PolicyRecord
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.documents.sampler import SamplerState
from rl_contracts.errors import FencedOutError, ObjectMissingError, StoreUnavailableError
from rl_contracts.ids import RunId, policy_id
from rl_contracts.spec.retention import ObjectBound
from rl_contracts.spec.storage import Delta
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_sampler.policy import fetch
from rl_trainer.checkpoint.retention import UNBOUNDED
from rl_trainer.publish.policy_collector import PolicyCollector
from tests.contract.policy_broadcast.publishing import SPEC
from tests.contract.policy_broadcast.world import Line, Subscriber, content, moved, strange
from tests.samples.documents import a_run, a_sampler
from tests.servers import ROOT

RUN = RunId(a_run().id)


@pytest.fixture
def line(stores: Stores) -> Line:
    """Nine versions, anchors at 1, 5 and 9, catalogued."""
    made = Line(stores.objects, delta=Delta(anchor_every=4, max_fraction=0.5))
    tensors = strange()
    for seed in range(9):
        made.publish(tensors)
        tensors = moved(tensors, seed=seed)
    stores.policies.put([record(made, version) for version in made.pointers])
    return made


def record(line: Line, version: int) -> PolicyRecord:
    pointer, sent = line.pointers[version], line.sent[version]
    return PolicyRecord(
        id=policy_id(RUN, version, 1),
        run=RUN,
        version=version,
        epoch=1,
        step=version,
        parent=version - 1,
        prefix=pointer.prefix,
        manifest_sha256=pointer.manifest_sha256,
        size_bytes=sent.size_bytes,
        published_at=float(version),
        publish_seconds=0.0,
        content=sent.content,
        base_version=sent.base_version,
    )


def left(line: Line) -> set[int]:
    keys = [
        stored_object.key for stored_object in line.objects.list(f"{line.objects.prefix}policies/")
    ]
    return {int(key.split("policies/")[1].split("-")[0]) for key in keys}


def collector(
    stores: Stores, *, grace_seconds: float, keep_last: int = 3, bound: ObjectBound = UNBOUNDED
) -> PolicyCollector:
    return PolicyCollector(
        stores, run=RUN, epoch=1, keep_last=keep_last, bound=bound, grace_seconds=grace_seconds
    )


def test_policies_are_deleted_only_after_mark_and_grace(line: Line, stores: Stores) -> None:
    keeping = {5, 6, 7, 8, 9}  # the newest three and what 7 and 8 start from
    patient, hasty = collector(stores, grace_seconds=3600.0), collector(stores, grace_seconds=0.0)
    planned = hasty.plan()
    assert {policy.version for policy in planned.marked} == {1, 2, 3, 4}
    assert all(policy.marked_at is None for policy in stores.policies.of_run(RUN)), "a plan is dry"
    for _ in range(2):
        assert patient.collect().deleted == []
        assert left(line) == set(range(1, 10))
    assert {policy.version for policy in hasty.collect().deleted} == {1, 2, 3, 4}
    assert left(line) == keeping == {policy.version for policy in stores.policies.of_run(RUN)}


def test_staged_policies_and_their_bases_are_kept(line: Line, stores: Stores) -> None:
    hasty = collector(stores, grace_seconds=0.0)
    hasty.collect()
    stores.samplers.put([a_sampler(staging_version=3)])
    assert {policy.version for policy in hasty.collect().deleted} == {4}
    assert {1, 2, 3} <= left(line)
    stores.samplers.put([a_sampler(staging_version=3, state=SamplerState.GONE)])
    assert {policy.version for policy in hasty.collect().deleted} == {1, 2, 3}


def test_a_sampler_missed_by_the_collector_stages_the_newest(
    line: Line, stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its version is deleted in the middle of its download: it registered too late."""
    monkeypatch.setattr(fetch, "PARTS_AT_A_TIME", 1)
    hasty = collector(stores, grace_seconds=0.0)
    hasty.collect()
    late = Subscriber.make(tmp_path / "weights", stores.objects, strange())

    class Sweeping(list[int]):
        def append(self, size: int) -> None:
            super().append(size)
            hasty.collect()

    late.bucket.received = Sweeping()
    with pytest.raises(ObjectMissingError):
        late.stage(line.pointers[3])
    assert late.names == []
    assert content(late.stage(line.pointers[9])) == line.states[9]


def test_an_interrupted_policy_sweep_is_completed(
    line: Line, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasty = collector(stores, grace_seconds=0.0)
    hasty.collect()
    with monkeypatch.context() as patch:

        def delete(name: str) -> None:
            raise StoreUnavailableError(store="document store", doing="deleting", cause="cut")

        patch.setattr(stores.policies, "delete", delete)
        with pytest.raises(StoreUnavailableError, match="cut"):
            hasty.collect()
    assert left(line) == set(range(2, 10)), "the first one's objects are gone, its record is not"
    assert {policy.version for policy in hasty.collect().deleted} == {1, 2, 3, 4}
    assert (
        left(line)
        == {policy.version for policy in stores.policies.of_run(RUN)}
        == set(range(5, 10))
    )


def test_an_old_mark_is_removed_when_a_policy_is_needed_again(line: Line, stores: Stores) -> None:
    collector(stores, grace_seconds=0.0).collect()
    assert {policy.version for policy in stores.policies.of_run(RUN) if policy.marked_at} == {
        1,
        2,
        3,
        4,
    }
    more = collector(stores, grace_seconds=0.0, keep_last=6)  # a manifest that keeps more
    collected = more.collect()
    # 4 and what it starts from
    assert {policy.version for policy in collected.unmarked} == {1, 2, 3, 4}
    assert (collected.marked, collected.deleted) == ([], [])
    assert not [policy for policy in stores.policies.of_run(RUN) if policy.marked_at]
    assert left(line) == set(range(1, 10))


@pytest.mark.parametrize("bound", [{"max_age_seconds": 60}, {"max_bytes": 1}])
def test_age_and_size_bounds_keep_newest_and_staged_policies(
    line: Line, stores: Stores, bound: dict[str, int]
) -> None:
    stores.samplers.put([a_sampler(version=6)])
    keen = collector(stores, grace_seconds=0.0, keep_last=9, bound=ObjectBound(**bound))
    assert {policy.version for policy in keen.collect().marked} == set(range(1, 9))
    assert {policy.version for policy in keen.collect().deleted} == {1, 2, 3, 4, 7, 8}
    assert left(line) == {5, 6, 9}  # 9 is a full one, 6 starts from 5


def test_an_older_trainer_neither_publishes_nor_deletes(line: Line, stores: Stores) -> None:
    stores.runs.create(a_run())
    old = stores.runs.take_epoch(a_run().id).epoch
    stores.runs.take_epoch(a_run().id)
    newer = record(line, 9).model_copy(update={"id": "newer", "version": 10, "epoch": 2})
    stores.policies.put([newer])
    pointer = PolicyPointer.model_validate(line.pointers[9].model_dump())
    with pytest.raises(FencedOutError):
        stores.runs.publish(a_run().id, epoch=old, pointer=pointer)
    with pytest.raises(FencedOutError):
        stores.runs.reserve_version(a_run().id, epoch=old)
    deleted = collector(stores, grace_seconds=0.0)
    deleted.collect()
    assert "newer" not in {policy.id for policy in deleted.collect().deleted}
    assert "newer" in {policy.id for policy in stores.policies.of_run(RUN)}


def test_the_collectors_dry_run_changes_nothing(
    line: Line, stores: Stores, store_settings: StoreSettings, tmp_path: Path
) -> None:
    stores.runs.create(a_run())
    stores.runs.take_epoch(RUN)
    marks = {1: 1.0, 6: 1.0}  # as after a day, and with 6 needed again
    before = [
        policy.model_copy(update={"marked_at": marks.get(policy.version)})
        for policy in stores.policies.of_run(RUN)
    ]
    stores.policies.put(before)
    (tmp_path / "rljob.json").write_text(SPEC.model_dump_json(by_alias=True))
    (tmp_path / "stores").mkdir()
    for key, value in store_settings.to_mapping().items():
        (tmp_path / "stores" / key).write_text(value)
    lines = subprocess.run(
        [sys.executable, "-m", "rl_trainer.publish.policy_collector"],
        env=os.environ
        | {
            env.NAMESPACE: "ns",
            env.JOB: "job",
            env.RUN: RUN,
            env.JOB_UID: "uid",
            env.ATTEMPT: "1",
            env.SPEC_FILE: str(tmp_path / "rljob.json"),
            env.STORES_FOLDER: str(tmp_path / "stores"),
            "PYTHONPATH": f"{ROOT / 'contracts'}:{ROOT / 'trainer_image'}",
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    ).stdout.splitlines()
    actions = [
        (2, "mark", "delta"),
        (3, "mark", "delta"),
        (4, "mark", "delta"),
        (6, "unmark", "delta"),
        (1, "delete", "full"),
    ]
    assert lines[:-1] == [
        f"would {doing} version {version} ({kind}, {line.sent[version].size_bytes} bytes)"
        for version, doing, kind in actions
    ]
    freed = line.sent[1].size_bytes
    assert lines[-1] == f"3 to mark, 1 to unmark, 1 to delete: {freed} bytes"
    assert stores.policies.of_run(RUN) == before
    assert left(line) == set(range(1, 10))
