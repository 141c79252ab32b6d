"""Stored runs are brought forward on the real store, once and without losing a concurrent write."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.documents import migrations
from rl_contracts.documents.evaluation import Evaluation
from rl_contracts.documents.migrations import Stored
from rl_contracts.documents.run import DurablePointer
from rl_contracts.documents.task import Queue, TaskState
from rl_contracts.errors import SchemaTooNewError
from rl_contracts.ids import RunId, evaluation_id
from rl_contracts.stores import upgrade
from rl_contracts.stores.connect import Stores
from tests.samples.documents import RUN, a_batch, a_rollout, a_run, a_sampler, a_saved_turn, a_task


def renamed(stored: Stored) -> Stored:
    return {key: value for key, value in stored.items() if key != "hint"} | {
        "reason": stored.get("hint", "")
    }


@pytest.fixture
def next_version(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of version 1, and a release of version 2 in which a task's hint is its reason."""
    task = a_task()
    stores.runs.create(a_run())
    stores.tasks.insert([task])
    stores.rollouts.put([a_rollout(task)])
    stores.batches.put([a_batch(1, None)])
    stores.samplers.put([a_sampler()])
    stores.turns.save([a_saved_turn(task, 0)])
    name = evaluation_id(RunId(RUN), 0, 1)
    stores.evaluations.put([Evaluation(id=name, run=RUN, epoch=1, parent=None, results=[])])
    set_fields(stores, "tasks", {"_id": task.id}, {"hint": "why"})
    monkeypatch.setattr(migrations, "SCHEMA_VERSION", 2)
    monkeypatch.setattr(migrations, "MIGRATIONS", {**migrations.MIGRATIONS, "tasks": {1: renamed}})


def set_fields(stores: Stores, collection: str, query: Stored, fields: dict[str, Any]) -> None:
    stores.mongo.collection(collection).update_one(query, {"$set": fields})


def raw(stores: Stores, collection: str) -> Stored:
    document = stores.mongo.collection(collection).find_one({})
    assert document is not None
    return document


@pytest.mark.usefixtures("next_version")
def test_a_dry_run_counts_and_writes_nothing(stores: Stores) -> None:
    before = {name: raw(stores, name) for name in upgrade.KINDS if name != "policies"}
    done = upgrade.upgrade(stores.mongo, RUN, write=False)
    assert (done.older, done.written) == (7, 0)
    assert done.versions["tasks"] == {1: 1}
    assert {name: raw(stores, name) for name in before} == before


@pytest.mark.usefixtures("next_version")
def test_older_documents_are_read_and_rewritten_once(stores: Stores) -> None:
    assert stores.tasks.get([a_task().id])[a_task().id].reason == "why"
    done = upgrade.upgrade(stores.mongo, RUN, write=True)
    assert (done.older, done.written) == (7, 7)
    task = raw(stores, "tasks")
    assert (task["schema_version"], task["reason"], "hint" in task) == (2, "why", False)
    again = upgrade.upgrade(stores.mongo, RUN, write=True)
    assert (again.older, again.written) == (0, 0)
    assert upgrade.begin(stores.mongo, RUN) is None


@pytest.mark.usefixtures("next_version")
def test_a_trainer_migrates_documents_that_it_updates(stores: Stores) -> None:
    assert upgrade.begin(stores.mongo, "another run") is None
    done = upgrade.begin(stores.mongo, RUN)
    assert done is not None
    assert done.written == 4
    assert raw(stores, "rollouts")["schema_version"] == 1  # migrated when it is read
    assert upgrade.begin(stores.mongo, RUN) is None


@pytest.mark.usefixtures("next_version")
def test_an_upgrade_does_not_undo_a_concurrent_claim(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate = migrations.migrate

    def claimed_meanwhile(collection: str, stored: Stored) -> Stored:
        monkeypatch.setattr(upgrade, "migrate", migrate)
        assert stores.tasks.claim(RUN, queue=Queue.TRAIN, owner="s", lease_seconds=60)
        return migrate(collection, stored)

    monkeypatch.setattr(upgrade, "migrate", claimed_meanwhile)
    assert upgrade.upgrade(stores.mongo, RUN, kinds=["tasks"], write=True).written == 1
    task = stores.tasks.get([a_task().id])[a_task().id]
    assert (task.state, task.owner, task.reason) == (TaskState.CLAIMED, "s", "why")


@pytest.mark.usefixtures("next_version")
def test_a_checkpoint_during_an_upgrade_is_not_undone(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = (DurablePointer(step=n, prefix="c/", manifest_sha256="0") for n in (10, 20))
    epoch = stores.runs.take_epoch(RUN).epoch
    stores.runs.make_durable(RUN, epoch=epoch, pointer=before)
    migrate = migrations.migrate

    def durable_meanwhile(collection: str, stored: Stored) -> Stored:
        monkeypatch.setattr(upgrade, "migrate", migrate)
        stores.runs.make_durable(RUN, epoch=epoch, pointer=after)
        return migrate(collection, stored)

    monkeypatch.setattr(upgrade, "migrate", durable_meanwhile)
    assert upgrade.upgrade(stores.mongo, RUN, kinds=["runs"], write=True).written == 1
    assert raw(stores, "runs")["schema_version"] == 2
    assert stores.runs.require(RUN).durable == after


def test_a_newer_run_is_not_touched(stores: Stores) -> None:
    stores.runs.create(a_run())
    set_fields(stores, "runs", {"_id": RUN}, {"schema_version": 99})
    before = raw(stores, "runs")
    for act in (
        lambda: upgrade.begin(stores.mongo, RUN),
        lambda: upgrade.upgrade(stores.mongo, RUN, write=True),
        lambda: stores.runs.get(RUN),
    ):
        with pytest.raises(SchemaTooNewError, match="99"):
            act()
    assert raw(stores, "runs") == before
