"""Tasks on the real embedded store: claimed once, never lost, finished by their owner alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from rl_contracts.documents.migrations import SCHEMA_VERSION
from rl_contracts.documents.task import Cause, Queue, Task, TaskState
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.leases import REAPER
from rl_contracts.stores.tasks import LONGEST_LEASE_SECONDS
from tests.samples.documents import RUN, a_rollout, a_task
from tests.samples.orphans import find_orphans


def claim(stores: Stores, owner: str = "a", lease: float = 60.0) -> Task | None:
    return stores.tasks.claim(RUN, queue=Queue.TRAIN, owner=owner, lease_seconds=lease)


def stored(stores: Stores, task: Task) -> Task:
    return stores.tasks.get([task.id])[task.id]


def test_inserting_again_changes_nothing(stores: Stores) -> None:
    assert stores.tasks.insert([a_task(0), a_task(1)]) == 2
    claimed = claim(stores)
    assert stores.tasks.insert([a_task(0), a_task(1), a_task(2)]) == 1, "one was not there"
    assert stores.tasks.insert([]) == 0
    assert claimed is not None
    assert stored(stores, claimed) == claimed
    counts = stores.tasks.count(RUN, queue=Queue.TRAIN)
    assert (counts[TaskState.CLAIMED], counts[TaskState.PENDING]) == (1, 2)


def test_more_ids_than_a_query_may_name_are_read(stores: Stores) -> None:
    """SQLite, below the embedded store, takes 32,766 values in a statement."""
    stores.tasks.insert([a_task(0), a_task(1)])
    ids = [a_task(0).id, *(f"none-{number}" for number in range(33_000)), a_task(1).id]
    assert set(stores.tasks.get(ids)) == {a_task(0).id, a_task(1).id}


def test_parallel_claims_take_each_task_once(stores: Stores) -> None:
    stores.tasks.insert([a_task(i) for i in range(60)])

    def drain(owner: str) -> list[str]:
        taken = []
        while (task := claim(stores, owner)) is not None:
            taken.append(task.id)
        return taken

    with ThreadPoolExecutor(8) as pool:
        taken = [task for ids in pool.map(drain, [f"w{i}" for i in range(8)]) for task in ids]
    assert sorted(taken) == [a_task(i).id for i in range(60)]


def test_retries_come_before_pending_tasks(stores: Stores) -> None:
    stores.tasks.insert([a_task(0), a_task(1)])
    first = claim(stores)
    assert first is not None
    assert stores.tasks.hand_back(first, reason="engine restarted")
    again = claim(stores, "b")
    assert again is not None
    assert (again.id, again.attempt, again.owner) == (first.id, 2, "b")


def test_the_last_attempt_that_fails_ends_the_task_with_its_reason(stores: Stores) -> None:
    stores.tasks.insert([a_task(0, max_attempts=1)])
    task = claim(stores)
    assert task is not None
    assert stores.tasks.hand_back(task, reason="scorer down")
    after = stored(stores, task)
    assert (after.state, after.reason) == (TaskState.DEAD, "scorer down")


def test_a_lost_claim_can_neither_be_renewed_nor_completed(stores: Stores) -> None:
    stores.tasks.insert([a_task(0)])
    task = claim(stores, lease=-1.0)
    assert task is not None
    assert stores.tasks.reap(RUN) == 1
    assert not stores.tasks.renew(task, lease_seconds=60)
    assert not stores.tasks.complete(task, rollouts=["late"])
    successor = claim(stores, "b")
    assert successor is not None
    assert not stores.tasks.complete(task, rollouts=["late"])
    assert stores.tasks.complete(successor, rollouts=["good"])
    assert stored(stores, task).rollouts == ["good"]


def test_a_task_of_a_newer_release_is_left_to_newer_samplers(stores: Stores) -> None:
    """A newer trainer migrates tasks before the run document, which older agents still follow."""
    stores.tasks.insert([a_task(0), a_task(1)])
    newer = {"$set": {"schema_version": SCHEMA_VERSION + 1}}
    stores.mongo.collection("tasks").update_one({"_id": a_task(0).id}, newer)
    task = claim(stores)
    assert task is not None
    assert task.id == a_task(1).id
    assert claim(stores) is None
    left = stores.mongo.collection("tasks").find_one({"_id": a_task(0).id})
    assert left is not None
    assert (left["state"], left["attempt"]) == (TaskState.PENDING, 0)


def test_a_renewed_lease_is_not_reaped(stores: Stores) -> None:
    stores.tasks.insert([a_task(0)])
    task = claim(stores, lease=-1.0)
    assert task is not None
    assert stores.tasks.renew(task, lease_seconds=60)
    assert stores.tasks.reap(RUN) == 0


def test_completing_again_after_a_lost_reply_is_success(stores: Stores) -> None:
    stores.tasks.insert([a_task(0)])
    task = claim(stores)
    assert task is not None
    assert stores.tasks.complete(task, rollouts=["x", "y"])
    assert stores.tasks.complete(task, rollouts=["x", "y"])
    assert not stores.tasks.complete(task, rollouts=["x", "z"])


def test_tasks_out_of_the_queue_stay_for_the_audit(stores: Stores) -> None:
    stores.tasks.insert([a_task(number) for number in range(3)])
    trained, stale, dead = (claim(stores) for _ in range(3))
    assert trained is not None
    assert stale is not None
    assert dead is not None
    stores.tasks.complete(trained, rollouts=["x"])
    stores.tasks.complete(stale, rollouts=["y"])
    stores.tasks.kill(dead, reason="too long")
    stores.tasks.retire([trained.id])
    stores.tasks.drop([trained.id, stale.id], reason="too old", cause=Cause.STALE)
    stores.tasks.bury([trained.id, stale.id, dead.id])
    assert stores.tasks.total(RUN, queue=Queue.TRAIN) == 0
    after = [stored(stores, task) for task in (trained, stale, dead)]
    assert [(task.queue, task.state, task.cause, task.reason) for task in after] == [
        (Queue.CONSUMED, TaskState.DONE, None, ""),
        (Queue.CONSUMED, TaskState.DEAD, Cause.STALE, "too old"),
        (Queue.CONSUMED, TaskState.DEAD, Cause.PROMPT, "too long"),
    ]


def test_a_committed_batch_wins_over_an_older_trainers_drop(stores: Stores) -> None:
    stores.tasks.insert([a_task(0)])
    task = claim(stores)
    assert task is not None
    stores.tasks.complete(task, rollouts=["x"])
    stores.tasks.drop([task.id], reason="too old", cause=Cause.STALE)
    stores.tasks.retire([task.id])
    after = stored(stores, task)
    assert (after.state, after.cause, after.reason) == (TaskState.DONE, None, "")


def test_a_stopped_samplers_claim_costs_the_task_no_attempt(stores: Stores) -> None:
    stores.tasks.insert([a_task(0, max_attempts=2)])
    for cause, state in (
        (Cause.STOPPED, TaskState.RETRY),
        (Cause.FAILED, TaskState.RETRY),
        (Cause.STOPPED, TaskState.RETRY),
        (Cause.FAILED, TaskState.DEAD),
    ):
        task = claim(stores)
        assert task is not None
        assert stores.tasks.hand_back(task, reason="r", cause=cause)
        assert (stored(stores, task).state, stored(stores, task).cause) == (state, cause)


def test_a_lease_from_before_the_clock_was_set_back_still_ends(stores: Stores) -> None:
    stores.tasks.insert([a_task(0)])
    task = claim(stores, lease=86_400.0)
    assert task is not None
    assert stores.tasks.reap(RUN) == 0
    left = stored(stores, task).lease_until - stores.mongo.now()
    assert 0 < left <= LONGEST_LEASE_SECONDS
    assert stores.tasks.renew(task, lease_seconds=30)


def test_a_lease_has_one_holder_until_it_ends(stores: Stores) -> None:
    def hold(holder: str, seconds: float) -> bool:
        return stores.leases.hold(RUN, REAPER, holder=holder, seconds=seconds)

    assert hold("a", 60)
    assert not hold("b", 60)
    assert hold("a", -1)
    assert hold("b", 60)
    assert not hold("a", 60)
    assert stores.leases.hold("other", REAPER, holder="a", seconds=60)


def test_orphans_are_listed_without_spare_members(stores: Stores) -> None:
    stores.tasks.insert([a_task(number) for number in range(2)])
    done, lapsed = claim(stores), claim(stores, lease=-60)
    assert done is not None
    assert lapsed is not None
    spare, missing = a_rollout(done, 0), a_rollout(done, 1)
    stores.rollouts.put([spare])
    assert find_orphans(stores.mongo, RUN).expired_claims == [lapsed.id]
    stores.tasks.reap(RUN)
    assert not find_orphans(stores.mongo, RUN)
    stores.tasks.complete(done, rollouts=[spare.id, missing.id])
    unclaimed = a_rollout(done.model_copy(update={"attempt": 2}), 0)
    of_nothing = a_rollout(a_task(9, attempt=1), 0)
    stores.rollouts.put([unclaimed, of_nothing])
    orphans = find_orphans(stores.mongo, RUN)
    assert orphans.missing_rollouts == [missing.id]
    assert orphans.unclaimed_rollouts == sorted([unclaimed.id, of_nothing.id])


def test_queues_and_runs_are_separate(stores: Stores) -> None:
    stores.tasks.insert([a_task(0, queue=Queue.EVALUATION)])
    assert claim(stores) is None
    taken = stores.tasks.claim("other", queue=Queue.EVALUATION, owner="a", lease_seconds=1)
    assert taken is None


def test_whether_a_stream_has_a_task_is_asked_of_its_split_queue_and_state(stores: Stores) -> None:
    stores.tasks.insert([a_task(3)])

    def has(run: str = RUN, split: str = "train", state: TaskState = TaskState.PENDING) -> bool:
        return stores.tasks.any_of(run, split, queue=Queue.TRAIN, state=state)

    assert has()
    assert not has(state=TaskState.DONE)
    assert not has(split="trai")
    assert not has(split="validation")
    assert not has(run=f"{RUN}x")
    assert not stores.tasks.any_of(RUN, "train", queue=Queue.CONSUMED, state=TaskState.PENDING)
