"""The run document on the real embedded store: only the newest epoch's writes take effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rl_contracts.documents.batch import BatchState
from rl_contracts.documents.run import (
    DurablePointer,
    Holder,
    Outcome,
    PolicyPointer,
    Run,
    Totals,
)
from rl_contracts.documents.sampler import SamplerState
from rl_contracts.errors import FencedOutError, LateAttemptError, ObjectMissingError
from rl_contracts.stores import reports
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.runs import next_epoch
from tests.samples.documents import RUN, a_batch, a_run, a_sampler, a_step

POINTER = PolicyPointer(version=1, epoch=1, step=0, prefix="p/", manifest_sha256="0")
OUTCOME = Outcome(kind="Succeeded", reason="Done", message="all steps made")

WRITES: dict[str, Callable[[Stores, int], object]] = {
    "commit": lambda stores, epoch: stores.runs.commit_step(
        RUN, epoch=epoch, head_batch="b", latest=a_step(1), totals=Totals()
    ),
    "publish": lambda stores, epoch: stores.runs.publish(RUN, epoch=epoch, pointer=POINTER),
    "durable": lambda stores, epoch: stores.runs.make_durable(
        RUN, epoch=epoch, pointer=DurablePointer(step=1, prefix="c/", manifest_sha256="0")
    ),
    "evaluations": lambda stores, epoch: stores.runs.record_evaluation(
        RUN, epoch=epoch, last="e", newest=[]
    ),
    "heartbeat": lambda stores, epoch: stores.runs.heartbeat(RUN, epoch=epoch, phase="Waiting"),
    "finish": lambda stores, epoch: stores.runs.finish(RUN, epoch=epoch, outcome=OUTCOME),
    "version": lambda stores, epoch: stores.runs.reserve_version(RUN, epoch=epoch),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_an_older_trainer_is_fenced_out_of_every_write(
    stores: Stores, write: Callable[[Stores, int], object]
) -> None:
    stores.runs.create(a_run())
    old = stores.runs.take_epoch(RUN).epoch
    new = stores.runs.take_epoch(RUN).epoch
    before = stores.runs.get(RUN)
    with pytest.raises(FencedOutError):
        write(stores, old)
    assert stores.runs.get(RUN) == before
    write(stores, new)


def test_creating_a_run_again_keeps_it(stores: Stores) -> None:
    stores.runs.create(a_run())
    stores.runs.take_epoch(RUN)
    stores.runs.create(a_run())
    run = stores.runs.get(RUN)
    assert run is not None
    assert run.trainers == 1


def test_version_numbers_only_grow_over_epochs(stores: Stores) -> None:
    stores.runs.create(a_run())
    numbers = []
    for _ in range(3):
        epoch = stores.runs.take_epoch(RUN).epoch
        numbers += [stores.runs.reserve_version(RUN, epoch=epoch) for _ in range(2)]
    assert numbers == [1, 2, 3, 4, 5, 6]


def test_the_lineage_follows_parents_not_steps(stores: Stores) -> None:
    first, second = a_batch(1, None), a_batch(2, a_batch(1, None).id)
    stray = a_batch(2, first.id, id="stray", epoch=7)
    stores.batches.put([first, second, stray])
    assert stores.batches.lineage(second.id) == [first, second]
    assert stores.batches.lineage(second.id, after_step=1) == [second]
    assert stores.batches.lineage(None) == []
    with pytest.raises(LookupError, match="missing"):
        stores.batches.lineage("nowhere")


def test_a_run_is_followed_and_confirmed_without_a_change(stores: Stores) -> None:
    stores.runs.create(a_run(epoch=3, step=4, last_version=7, latest=a_step(4)))
    before = stores.mongo.collection("runs").find_one({"_id": RUN})
    for followed in (stores.runs.follow(RUN), stores.runs.confirm(RUN)):
        assert followed is not None
        assert (followed.id, followed.epoch, followed.step) == (RUN, 3, 4)
        assert (followed.last_version, followed.handed_out) == (7, 0)
    assert stores.mongo.collection("runs").find_one({"_id": RUN}) == before
    assert (stores.runs.follow("none"), stores.runs.confirm("none")) == (None, None)
    assert stores.runs.get("none") is None, "confirming creates nothing"


def test_announced_tasks_count_under_the_present_epoch_alone(stores: Stores) -> None:
    stores.runs.create(a_run(epoch=3))
    stores.runs.hint(RUN, epoch=2)
    assert stores.runs.require(RUN).handed_out == 0
    stores.runs.hint(RUN, epoch=3)
    assert stores.runs.require(RUN).handed_out == 1


def test_silent_samplers_expire_and_return_with_a_heartbeat(stores: Stores) -> None:
    now = stores.mongo.now()
    silent = a_sampler("silent", heartbeat_at=now - 100)
    alive = a_sampler("alive", heartbeat_at=now)
    stores.samplers.put([silent, alive])
    assert [sampler.id for sampler in stores.samplers.expire(RUN, silent_seconds=30)] == [silent.id]
    assert stores.samplers.get([silent.id])[silent.id].state == SamplerState.GONE
    stores.samplers.put([silent.model_copy(update={"heartbeat_at": now})])
    assert stores.samplers.expire(RUN, silent_seconds=30) == []


def test_a_dead_sampler_does_not_live_on_when_the_clock_is_set_back(stores: Stores) -> None:
    now = stores.mongo.now()
    ahead = a_sampler("ahead", heartbeat_at=now + 3600)
    slightly = a_sampler("slightly", heartbeat_at=now + 30)
    stores.samplers.put([ahead, slightly])
    assert [sampler.id for sampler in stores.samplers.expire(RUN, silent_seconds=30)] == [ahead.id]


def test_a_heartbeat_between_read_and_write_is_not_lost(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = stores.mongo.now()
    silent = a_sampler("silent", heartbeat_at=now - 100)
    stores.samplers.put([silent])
    call = stores.mongo.call

    def beats_meanwhile(doing: str, operation: Callable[[], Any]) -> Any:
        seen = call(doing, operation)
        if doing.startswith("listing silent"):
            stores.samplers.put([silent.model_copy(update={"heartbeat_at": now})])
        return seen

    monkeypatch.setattr(stores.mongo, "call", beats_meanwhile)
    stores.samplers.expire(RUN, silent_seconds=30)
    assert stores.samplers.get([silent.id])[silent.id].is_alive(now)


def test_deleting_a_run_leaves_no_document_of_it(stores: Stores) -> None:
    stores.runs.create(a_run())
    stores.batches.put([a_batch(1, None)])
    stores.samplers.put([a_sampler()])
    assert stores.mongo.delete_run(RUN) == 3
    assert stores.runs.get(RUN) is None
    assert stores.batches.of_run(RUN) == []


def test_a_batch_never_goes_back_to_an_earlier_state(stores: Stores) -> None:
    batch = a_batch(1, None)
    stores.batches.put([batch])
    seen = []
    for state in (BatchState.DURABLE, BatchState.TRAINED, BatchState.FORMED, BatchState.DURABLE):
        stores.batches.mark(batch, state)
        seen.append(stores.batches.get([batch.id])[batch.id].state)
    assert seen == [BatchState.DURABLE] * 4


def test_a_batch_keeps_the_metrics_of_its_step(stores: Stores) -> None:
    batch = a_batch(1, None)
    stores.batches.put([batch])
    stores.batches.mark(batch, BatchState.TRAINED, metrics=a_step(1))
    stores.batches.mark(batch, BatchState.DURABLE)
    assert stores.batches.get([batch.id])[batch.id].metrics == a_step(1)


def test_the_newest_epochs_report_counts_whatever_an_older_one_writes_later(stores: Stores) -> None:
    prefix = stores.run_prefix(RUN)
    with pytest.raises(ObjectMissingError, match=r"reports/\*/report\.json"):
        reports.newest(stores.objects, prefix, reports.REPORT)
    for epoch in (9, 10, 2):
        stores.objects.put(reports.key(prefix, reports.REPORT, epoch=epoch), b"%d" % epoch)
    stores.objects.put(reports.key(prefix, reports.METRICS, epoch=11), b"")
    assert reports.newest(stores.objects, prefix, reports.REPORT) == b"10"


def test_an_older_attempt_that_starts_late_does_not_take_the_run(stores: Stores) -> None:
    stores.runs.create(a_run())
    newer = stores.runs.take_epoch(RUN, holder=Holder(job="uid", attempt=2))
    with pytest.raises(LateAttemptError, match="attempt 1, but attempt 2 of the same job"):
        stores.runs.take_epoch(RUN, holder=Holder(job="uid", attempt=1))
    assert stores.runs.get(RUN) == newer
    stores.runs.heartbeat(RUN, epoch=newer.epoch, phase="Waiting")


def test_an_attempt_may_take_the_run_again_and_another_job_begins_with_its_first(
    stores: Stores,
) -> None:
    stores.runs.create(a_run())
    holders = [Holder(job="uid", attempt=2), Holder(job="uid", attempt=2), Holder(job="b")]
    runs = [stores.runs.take_epoch(RUN, holder=holder) for holder in holders]
    assert [run.holder for run in runs] == holders
    assert [run.trainers for run in runs] == [1, 2, 3]
    assert runs[0].epoch < runs[1].epoch < runs[2].epoch


def test_a_restored_document_store_fences_who_lived_before(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores.runs.create(a_run())
    backup = stores.runs.take_epoch(RUN)
    before = stores.runs.take_epoch(RUN)
    restore(stores, backup)
    later = stores.mongo.now() + 1.0
    monkeypatch.setattr(stores.mongo, "now", lambda: later)
    after = stores.runs.take_epoch(RUN)
    assert backup.epoch < before.epoch < after.epoch
    for write in WRITES.values():
        with pytest.raises(FencedOutError):
            write(stores, before.epoch)
    stores.runs.heartbeat(RUN, epoch=after.epoch, phase="Waiting")


def test_epochs_stay_different_when_the_clock_is_set_back() -> None:
    now = 1_795_671_234.5
    assert next_epoch(0, now=now) // 1000 == 1_795_671_234
    ahead = next_epoch(0, now=now + 3600)
    assert next_epoch(ahead, now=now) == ahead + 1
    assert len({next_epoch(0, now=now) for _ in range(50)}) > 25


def restore(stores: Stores, run: Run) -> None:
    """Put the run document of an earlier time in the place of the present one."""
    stores.mongo.collection(Run.collection).replace_one({"_id": run.id}, run.to_mongo())


def test_skipped_versions_are_never_handed_out_and_none_comes_back(stores: Stores) -> None:
    stores.runs.create(a_run())
    epoch = stores.runs.take_epoch(RUN).epoch
    stores.runs.skip_versions(RUN, epoch=epoch, through=7)
    stores.runs.skip_versions(RUN, epoch=epoch, through=3)
    assert stores.runs.reserve_version(RUN, epoch=epoch) == 8
    with pytest.raises(FencedOutError):
        stores.runs.skip_versions(RUN, epoch=epoch - 1, through=9)


def test_a_fenced_out_trainer_names_what_happened_to_its_run(stores: Stores) -> None:
    stores.runs.create(a_run())
    backup = stores.runs.take_epoch(RUN)
    epoch = stores.runs.take_epoch(RUN).epoch
    stores.runs.take_epoch(RUN)
    with pytest.raises(FencedOutError, match="a newer trainer has taken over"):
        stores.runs.heartbeat(RUN, epoch=epoch, phase="")
    later = stores.runs.require(RUN).epoch
    restore(stores, backup.model_copy(update={"epoch": later - 1}))
    with pytest.raises(FencedOutError, match="was restored from a backup: it names epoch"):
        stores.runs.heartbeat(RUN, epoch=later, phase="")
    stores.mongo.delete_run(RUN)
    with pytest.raises(FencedOutError, match="its run document is gone"):
        stores.runs.heartbeat(RUN, epoch=later, phase="")


@pytest.mark.parametrize("progress", [False, True])
def test_a_heartbeat_is_progress_only_where_the_trainer_got_on(
    stores: Stores, progress: bool
) -> None:
    stores.runs.create(a_run())
    epoch = stores.runs.take_epoch(RUN).epoch
    stores.runs.heartbeat(RUN, epoch=epoch, phase="evaluating", progress=progress)
    run = stores.runs.require(RUN)
    assert run.progress_at == (run.heartbeat_at if progress else 0.0)
