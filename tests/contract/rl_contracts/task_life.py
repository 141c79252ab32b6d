"""The life of tasks as hypothesis plays it against a real store: the machine of two test tiers.

Workers claim, write, finish, give back, die and wake up too late; trainers form, commit and retire
batches and are replaced while they still run; clocks jump; replies get lost, for a moment or for
good. The store's own documents are compared with what each step may have changed.
"""

from __future__ import annotations

import itertools
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pymongo.errors import AutoReconnect

from rl_contracts import ids
from rl_contracts.documents.batch import Batch, BatchMember
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.run import Totals
from rl_contracts.documents.task import Cause, Queue, Task, TaskState
from rl_contracts.errors import FencedOutError, StoreUnavailableError
from rl_contracts.stores.mongo import Mongo
from rl_contracts.stores.objects import Objects
from rl_contracts.stores.orphans import find_orphans
from rl_contracts.stores.records import BatchStore
from rl_contracts.stores.rollouts import RolloutStore
from rl_contracts.stores.runs import RunStore
from rl_contracts.stores.settings import StoreSettings
from rl_contracts.stores.tasks import TaskStore
from tests.documents import a_batch, a_rollout, a_run, a_step, a_task

T = TypeVar("T")
GROUP, PER_BATCH, MAX_TASKS = 2, 2, 12
LEASE_SECONDS = 30.0
FOR_GOOD = 99
RUNS = itertools.count()

State, Claimed, Done, Dead = TaskState, TaskState.CLAIMED, TaskState.DONE, TaskState.DEAD
MOVES = {
    (State.PENDING, Claimed), (State.RETRY, Claimed), (Claimed, Done), (Claimed, State.RETRY),
    (Claimed, Dead), (Done, Dead), (State.PENDING, Dead), (Dead, Done),
}  # fmt: skip


class FaultyMongo(Mongo):
    """A client whose clock jumps and whose replies get lost; every command itself arrives."""

    def __init__(self, settings: StoreSettings) -> None:
        super().__init__(settings, patience_seconds=10.0)
        self.skew = 0.0
        self.lose = 0

    def now(self) -> float:
        return super().now() + self.skew

    def call(self, doing: str, operation: Callable[[], T]) -> T:
        lost, self.lose = self.lose, 0
        left = lost

        def sent() -> T:
            nonlocal left
            answer = operation()
            if lost == FOR_GOOD:
                raise UnansweredError
            if left:
                left -= 1
                raise AutoReconnect("the reply was lost")
            return answer

        try:
            return super().call(doing, sent)
        except UnansweredError as error:
            raise StoreUnavailableError(store="store", doing=doing, cause="lost") from error


class UnansweredError(Exception):
    """Stands for patience that ran out after the command had arrived."""


@dataclass
class Actor:
    """A process: its own connection, and what it believes."""

    name: str
    mongo: FaultyMongo
    objects: Objects
    claims: list[Task] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tasks = TaskStore(self.mongo, retry_look_seconds=0)  # no clock in the model
        self.rollouts = RolloutStore(self.mongo, self.objects)
        self.runs, self.batches = RunStore(self.mongo), BatchStore(self.mongo)


@dataclass
class Learner:
    """A trainer: what it believes of the run."""

    actor: Actor
    epoch: int
    step: int
    head: str | None
    formed: Batch | None = None
    committed: Batch | None = None


class TaskLife(RuleBasedStateMachine):
    """See the module. ``settings`` is set by the test."""

    store_settings: ClassVar[StoreSettings]
    actors: ClassVar[list[Actor]]

    @classmethod
    def of(cls, settings: StoreSettings) -> type[TaskLife]:
        """The machine on this store; its clients are shared by all examples."""
        names = ("a", "b", "t", "u", "watcher")
        actors = [Actor(name, FaultyMongo(settings), Objects(settings)) for name in names]
        return type("TaskLifeHere", (cls,), {"store_settings": settings, "actors": actors})

    @initialize()
    def begin(self) -> None:
        self.run = ids.RunId(f"{secrets.token_hex(3)}-{next(RUNS)}")
        for actor in self.actors:
            actor.mongo.skew, actor.mongo.lose, actor.claims = 0.0, 0, []
        self.workers, self.watcher = self.actors[:2], self.actors[4]
        self.inserted = 0
        self.written: dict[str, Rollout] = {}
        self.promised: dict[str, tuple[int, list[str]]] = {}
        self.before: dict[str, Task] = {}
        self.head: str | None = None
        self.watcher.runs.create(a_run(id=self.run))
        self.trainers: list[Learner] = []
        self.new_trainer()
        self.insert_some(self.trainers[0], number=4, attempts=3)

    # Trainers

    @rule()
    def new_trainer(self) -> None:
        """The next epoch; the trainer before it does not know and goes on."""
        actor = self.actors[2 + len(self.trainers) % 2]
        actor.mongo.lose = 0
        run = actor.runs.take_epoch(self.run)
        learner = Learner(actor, run.epoch, run.step, run.head_batch)
        lineage = actor.batches.lineage(run.head_batch)
        actor.tasks.retire([task for batch in lineage for task in batch.tasks])
        self.trainers = [*self.trainers, learner][-2:]

    @rule(number=st.integers(1, 4), attempts=st.integers(1, 3), which=st.integers(0, 1))
    def insert(self, number: int, attempts: int, which: int) -> None:
        self.insert_some(self.trainer(which), number=number, attempts=attempts)

    def insert_some(self, trainer: Learner, *, number: int, attempts: int) -> None:
        number = min(number, MAX_TASKS - self.inserted)
        again = max(0, self.inserted - 1)  # one that is there already is left as it is
        tasks = [self.task(one, attempts) for one in range(again, self.inserted + number)]
        self.inserted += number
        self.quietly(lambda: trainer.actor.tasks.insert(tasks))

    @rule(which=st.integers(0, 1))
    def form(self, which: int) -> None:
        trainer = self.trainer(which)
        ready = self.finished(trainer)[:PER_BATCH]
        if len(ready) < PER_BATCH or trainer.committed:
            return
        step = trainer.step + 1
        trainer.formed = a_batch(
            step,
            trainer.head,
            id=ids.batch_id(self.run, step, trainer.epoch),
            run=self.run,
            epoch=trainer.epoch,
            tasks=[task.id for task in ready],
            members=[BatchMember(rollout=one, advantage=0.0) for t in ready for one in t.rollouts],
        )
        formed = trainer.formed
        if not self.quietly(lambda: trainer.actor.batches.put([formed])):
            trainer.formed = None

    @rule(which=st.integers(0, 1))
    def commit(self, which: int) -> None:
        trainer = self.trainer(which)
        batch = trainer.formed
        if batch is None:
            return
        newest = trainer.epoch == max(one.epoch for one in self.trainers)
        try:
            trainer.actor.runs.commit_step(
                self.run, epoch=trainer.epoch, head_batch=batch.id,
                latest=a_step(batch.step), totals=Totals(),
            )  # fmt: skip
        except FencedOutError:
            assert not newest
            trainer.formed = None
            return
        except StoreUnavailableError:  # such a trainer ends
            self.trainers.remove(trainer)
            self.new_trainer()
            return
        assert newest, "an older trainer committed"
        trainer.step, trainer.head = batch.step, batch.id
        trainer.formed, trainer.committed = None, batch

    @rule(which=st.integers(0, 1))
    def retire(self, which: int) -> None:
        trainer = self.trainer(which)
        batch = trainer.committed
        if batch and self.quietly(lambda: trainer.actor.tasks.retire(batch.tasks)):
            trainer.committed = None

    @rule(which=st.integers(0, 1))
    def drop_one(self, which: int) -> None:
        trainer = self.trainer(which)
        ready = self.finished(trainer)
        mine = trainer.formed or trainer.committed
        spare = [one.id for one in ready if mine is None or one.id not in mine.tasks][-1:]
        self.quietly(lambda: trainer.actor.tasks.drop(spare, reason="old", cause=Cause.STALE))

    # Workers

    @rule(who=st.integers(0, 1), times=st.integers(1, 3))
    def claim(self, who: int, times: int) -> None:
        for _ in range(times):
            self.claim_one(self.workers[who])

    def claim_one(self, worker: Actor) -> None:
        before = self.snapshot()
        lost = worker.mongo.lose == FOR_GOOD
        states = Counter(one.state for one in before.values() if one.queue is Queue.TRAIN)
        try:
            task = worker.tasks.claim(
                self.run, queue=Queue.TRAIN, owner=worker.name, lease_seconds=LEASE_SECONDS
            )
        except StoreUnavailableError:
            assert lost
            return
        if task is None:
            assert not states[State.RETRY] + states[State.PENDING]
            return
        assert before[task.id].state is (State.RETRY if states[State.RETRY] else State.PENDING)
        assert task.attempt == before[task.id].attempt + 1
        changed = [one for one in self.snapshot().values() if one != before[one.id]]
        assert changed == [task], "a lost reply cost another task an attempt"
        worker.claims.append(task)

    @precondition(lambda self: any(one.claims for one in self.workers))
    @rule(data=st.data(), member=st.integers(0, GROUP - 1))
    def write(self, data: st.DataObject, member: int) -> None:
        worker, task = self.a_claim(data)
        rollout = a_rollout(task, member, sampler=worker.name)
        self.written.setdefault(rollout.id, rollout)
        self.quietly(lambda: worker.rollouts.put([rollout]))

    @precondition(lambda self: any(one.claims for one in self.workers))
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        """Adopt what is there of earlier attempts, write the rest, finish."""
        worker, task = self.a_claim(data)
        try:
            found = {one.member: one for one in worker.rollouts.of_task(task.id)}
            for member in range(GROUP):
                found.setdefault(member, a_rollout(task, member, sampler=worker.name))
            wanted = [found[member].id for member in range(GROUP)]
            self.written |= {found[member].id: found[member] for member in range(GROUP)}
            worker.rollouts.put(list(found.values()))
            done = worker.tasks.complete(task, rollouts=wanted)
        except StoreUnavailableError:
            return
        if done:
            assert self.promised.setdefault(task.id, (task.attempt, wanted)) == (
                task.attempt, wanted,
            ), "completed twice"  # fmt: skip
            worker.claims.remove(task)

    @precondition(lambda self: any(one.claims for one in self.workers))
    @rule(data=st.data(), cause=st.sampled_from([Cause.FAILED, Cause.STOPPED, Cause.PROMPT]))
    def give_up(self, data: st.DataObject, cause: Cause) -> None:
        worker, task = self.a_claim(data)
        end = worker.tasks.kill if cause is Cause.PROMPT else worker.tasks.hand_back
        self.quietly(lambda: end(task, reason="tested", cause=cause))
        # Sometimes it goes on all the same: a process that was paused knows nothing.
        if data.draw(st.booleans()):
            worker.claims.remove(task)

    @precondition(lambda self: any(one.claims for one in self.workers))
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        worker, task = self.a_claim(data)
        held = self.snapshot()[task.id]
        ours = (held.state, held.owner, held.attempt) == (Claimed, worker.name, task.attempt)
        try:
            renewed = worker.tasks.renew(task, lease_seconds=LEASE_SECONDS)
        except StoreUnavailableError:
            return
        assert renewed == ours

    @rule(who=st.integers(0, 1))
    def crash(self, who: int) -> None:
        self.workers[who].claims = []

    # The world

    @rule(who=st.integers(0, 3))
    def reap(self, who: int) -> None:
        self.quietly(lambda: self.actors[who].tasks.reap(self.run))

    @rule(who=st.integers(0, 3), seconds=st.sampled_from([-86_400.0, -40.0, 40.0, 86_400.0]))
    def jump(self, who: int, seconds: float) -> None:
        self.actors[who].mongo.skew += seconds

    @rule(seconds=st.sampled_from([10.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        for actor in self.actors:
            actor.mongo.skew += seconds

    @rule(who=st.integers(0, 3), times=st.sampled_from([1, 2, FOR_GOOD]))
    def lose_reply(self, who: int, times: int) -> None:
        self.actors[who].mongo.lose = times

    # What must hold

    @invariant()
    def all_is_well(self) -> None:
        if self.snapshot() != self.before:
            self.every_change_is_a_move()
            self.what_was_promised_stands()
            self.counts_are_queries()
        self.nothing_is_trained_twice()

    def every_change_is_a_move(self) -> None:
        after = self.snapshot()
        assert set(self.before) <= set(after), "a task was lost"
        for name, task in after.items():
            assert task.attempt - task.excused <= task.max_attempts
            was = self.before.get(name)
            if was is None:
                continue
            assert was.attempt <= task.attempt
            moved = (was.state, task.state)
            assert was.state is task.state or moved in MOVES, f"{name} moved {moved}"
            assert not (was.queue is Queue.CONSUMED and task.queue is not Queue.CONSUMED)
            if was.queue is Queue.CONSUMED and moved[0] is not moved[1]:
                assert moved == (Dead, Done), "a retired task was dropped"
            if was.state is Done and task.state is not was.state:
                assert task.queue is Queue.CONSUMED, "a finished task was taken back"
        self.before = after

    def what_was_promised_stands(self) -> None:
        for name, (attempt, chosen) in self.promised.items():
            task = self.before[name]
            assert (task.attempt, task.rollouts) == (attempt, chosen), "completed twice"
        done = [one for one in self.before.values() if one.state is Done]
        for task in done:  # also where the reply to the completion was lost for good
            assert len(set(task.rollouts)) == GROUP
            self.promised.setdefault(task.id, (task.attempt, task.rollouts))

    def counts_are_queries(self) -> None:
        open_ones = [one for one in self.before.values() if one.queue is Queue.TRAIN]
        counts = self.watcher.tasks.count(self.run, queue=Queue.TRAIN)
        assert counts == Counter(one.state for one in open_ones)
        assert self.watcher.tasks.total(self.run, queue=Queue.TRAIN) == len(open_ones)

    def nothing_is_trained_twice(self) -> None:
        run = self.watcher.runs.get(self.run)
        assert run is not None
        if run.head_batch == self.head:
            return
        self.head = run.head_batch
        lineage = self.watcher.batches.lineage(run.head_batch)
        assert [batch.step for batch in lineage] == list(range(1, run.step + 1))
        tasks = [task for batch in lineage for task in batch.tasks]
        assert len(tasks) == len(set(tasks)), "a task was trained twice"
        for batch in lineage:
            promised = [one for task in batch.tasks for one in self.promised[task][1]]
            assert [one.rollout for one in batch.members] == promised

    def teardown(self) -> None:
        """From wherever it stands, honest workers bring every group to its end."""
        if not hasattr(self, "run"):
            return
        for actor in self.actors:
            actor.mongo.skew, actor.mongo.lose = 0.0, 0
        honest = self.workers[0]
        for _ in range(3 * MAX_TASKS * 8):
            honest.mongo.skew += 1000.0
            honest.tasks.reap(self.run)
            task = honest.tasks.claim(
                self.run, queue=Queue.TRAIN, owner="honest", lease_seconds=LEASE_SECONDS
            )
            if task is not None:
                rollouts = [a_rollout(task, member) for member in range(GROUP)]
                honest.rollouts.put(rollouts)
                assert honest.tasks.complete(task, rollouts=[one.id for one in rollouts])
            elif all(one.state in (Done, Dead) for one in self.snapshot().values()):
                break
        else:
            raise AssertionError("some group never ends")
        assert len(self.snapshot()) == self.inserted
        kept = honest.rollouts.get(list(self.written))
        assert kept == self.written, "a late writer changed what was written"
        assert not find_orphans(honest.mongo, self.run)

    def task(self, sequence: int, attempts: int) -> Task:
        name = ids.task_id(self.run, "train", sequence)
        return a_task(sequence, id=name, run=self.run, group_size=GROUP, max_attempts=attempts)

    def trainer(self, which: int) -> Learner:
        return self.trainers[which % len(self.trainers)]

    def a_claim(self, data: st.DataObject) -> tuple[Actor, Task]:
        held = [(one, task) for one in self.workers for task in one.claims]
        return held[data.draw(st.integers(0, len(held) - 1))]

    def finished(self, trainer: Learner) -> list[Task]:
        try:
            return trainer.actor.tasks.find(self.run, queue=Queue.TRAIN, state=Done)
        except StoreUnavailableError:
            return []

    def snapshot(self) -> dict[str, Task]:
        found = self.watcher.mongo.collection("tasks").find({"run": self.run})
        return {one["_id"]: Task.from_mongo(one) for one in found}

    def quietly(self, command: Callable[[], Any]) -> bool:
        """Send it; False where its sender will never know what became of it."""
        try:
            command()
        except StoreUnavailableError:
            return False
        return True
