"""The life of tasks as hypothesis plays it against a real store: the machine of two test tiers.

Workers claim, write, finish, give back, die and wake up too late; trainers form, commit and retire
batches and are replaced while they still run; clocks jump; replies get lost, for a moment or for
good. The store's own documents are compared with what each step may have changed.
"""

from __future__ import annotations

import itertools
import secrets
from typing import ClassVar

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from rl_contracts import ids
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.task import Cause, Queue, Task
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.objects import Objects
from rl_contracts.stores.tasks import LONGEST_LEASE_SECONDS
from tests.contract.rl_contracts.tasks.actors import (
    FOR_GOOD,
    Actor,
    Dead,
    Done,
    FaultyMongo,
    Learner,
)
from tests.contract.rl_contracts.tasks.training_life import MAX_TASKS, PER_BATCH, Training
from tests.contract.rl_contracts.tasks.watching import GROUP
from tests.contract.rl_contracts.tasks.working_life import LEASE_SECONDS, Working
from tests.samples.documents import a_rollout, a_run
from tests.samples.orphans import find_orphans

RUNS = itertools.count()


class TaskLife(Training, Working, RuleBasedStateMachine):
    """See the module. ``settings`` is set by the test."""

    store_settings: ClassVar[StoreSettings]
    actors: ClassVar[list[Actor]]

    @classmethod
    def of(cls, settings: StoreSettings) -> type[TaskLife]:
        """The machine on this store; its clients are shared by all examples."""
        names = ("a", "b", "t", "u", "watcher")
        actors = [Actor(name, FaultyMongo(settings), Objects(settings)) for name in names]
        return type("TaskLifeHere", (cls,), {"store_settings": settings, "actors": actors})

    @initialize(attempts=st.integers(1, 3))
    def begin(self, attempts: int) -> None:
        self.run = ids.RunId(f"{secrets.token_hex(3)}-{next(RUNS)}")
        for actor in self.actors:
            actor.begin()
        self.workers, self.watcher = self.actors[:2], self.actors[4]
        self.inserted = 0
        self.written: dict[str, Rollout] = {}
        self.promised: dict[str, tuple[int, list[str]]] = {}
        self.before: dict[str, Task] = {}
        self.head: str | None = None
        self.watcher.runs.create(a_run(id=self.run))
        self.trainers: list[Learner] = []
        self.new_trainer()
        self.insert_some(self.trainers[0], number=4, attempts=attempts)

    @rule(who=st.integers(0, 1), late=st.booleans())
    def claim_unanswered(self, who: int, late: bool) -> None:
        """The answer never comes; the next claim comes in time, or after the lease was over."""
        worker = self.workers[who]
        worker.mongo.lose = FOR_GOOD
        self.claim_one(worker)
        self.all_is_well()
        if late:
            self.time_passes(40.0)
            self.reap(3)
            self.all_is_well()
        self.claim_one(worker)

    @rule(
        who=st.integers(0, 1),
        cause=st.sampled_from([None, None, Cause.STOPPED, Cause.FAILED]),
    )
    def work(self, who: int, cause: Cause | None) -> None:
        """A claim that nothing disturbs, to its end."""
        worker = self.workers[who]
        held = len(worker.claims)
        self.claim_one(worker)
        self.all_is_well()
        for task in worker.claims[held:]:
            if cause is None:
                self.finish(worker, task)
            else:
                self.give_back(worker, task, cause)
                worker.claims.remove(task)

    @rule(who=st.integers(0, 1), which=st.integers(0, 1), times=st.integers(1, 2))
    def learn(self, who: int, which: int, times: int) -> None:
        """Whole steps that nothing disturbs: without them few lives come as far as training."""
        for _ in range(times):
            self.insert_some(self.trainer(which), number=PER_BATCH, attempts=3)
            for _ in range(PER_BATCH):
                self.work(who, None)
                self.all_is_well()
            self.train(which)
            self.all_is_well()
            self.retire(which)
            self.all_is_well()

    @precondition(lambda self: any(worker.claims for worker in self.workers))
    @rule(data=st.data())
    def freeze(self, data: st.DataObject) -> None:
        """A process sleeps past its lease, somebody else takes its task, and it knows nothing."""
        worker, task = self.a_claim(data)
        self.time_passes(40.0)
        self.reap(3)
        self.all_is_well()
        self.claim_one(self.workers[1 - self.workers.index(worker)])
        self.all_is_well()
        data.draw(st.sampled_from([self.finish, self.give_back, self.extend]))(worker, task)

    @precondition(lambda self: any(worker.claims for worker in self.workers))
    @rule(data=st.data(), member=st.integers(0, GROUP - 1), age=st.integers(0, 2))
    def die_half_done(self, data: st.DataObject, member: int, age: int) -> None:
        """A process is killed between two members; another one takes up what it left."""
        worker, task = self.a_claim(data)
        rollout = self.a_member(task, member, step=self.known_run().step - age)
        with self.changing(task, ours=False):
            self.quietly(lambda: worker.rollouts.put([rollout]))
        worker.claims.remove(task)
        self.time_passes(40.0)
        self.reap(3)
        self.all_is_well()
        heir = self.workers[1 - self.workers.index(worker)]
        held = len(heir.claims)
        self.claim_one(heir)
        self.all_is_well()
        for taken in heir.claims[held:]:
            self.finish(heir, taken)

    @rule(who=st.integers(0, 3))
    def reap(self, who: int) -> None:
        reaper, before = self.actors[who], self.snapshot()
        self.quietly(lambda: reaper.tasks.reap(self.run))
        latest = reaper.mongo.now()
        for name, task in self.snapshot().items():
            lease = before[name].lease_until
            if task.state is not before[name].state:
                assert lease < latest, "a living claim was taken back"
            elif task != before[name]:
                assert task.lease_until < lease, "a reaper made a lease longer"
                assert task.lease_until <= latest + LONGEST_LEASE_SECONDS

    @precondition(lambda self: any(worker.claims for worker in self.workers))
    @rule(data=st.data(), who=st.integers(2, 3))
    def renew_while_reaped(self, data: st.DataObject, who: int) -> None:
        """The renewal comes after the reaper has looked and before it acts."""
        worker, task = self.a_claim(data)
        self.time_passes(40.0)
        reaper, renewed = self.actors[who], []
        reaper.mongo.meanwhile = lambda: renewed.append(
            self.quietly(lambda: worker.tasks.renew(task, lease_seconds=LEASE_SECONDS))
        )
        ours = self.is_ours(task)
        self.quietly(lambda: reaper.tasks.reap(self.run))
        reaper.mongo.meanwhile = None
        if ours and renewed:
            assert self.is_ours(task), "a claim was taken back that had just been renewed"

    @precondition(lambda self: len(self.trainers) > 1)
    @rule()
    def drop_late(self) -> None:
        """An older trainer sleeps between its look and its drop; the newer one trains meanwhile."""
        old = self.trainers[0]
        mine = old.formed or old.committed
        ready = [
            rollout.id for rollout in self.finished(old) if not mine or rollout.id not in mine.tasks
        ]
        self.train(1)
        self.retire(1)
        self.all_is_well()
        self.quietly(
            lambda: old.actor.tasks.drop(ready[:PER_BATCH], reason="old", cause=Cause.STALE)
        )

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
                assert honest.tasks.complete(task, rollouts=[rollout.id for rollout in rollouts])
            elif all(task.state in (Done, Dead) for task in self.snapshot().values()):
                break
        else:
            raise AssertionError("some group never ends")
        assert len(self.snapshot()) == self.inserted
        kept = honest.rollouts.get(list(self.written))
        assert kept == self.written, "a late writer changed what was written"
        assert not find_orphans(honest.mongo, self.run)


def play(store: StoreSettings, *, settings: hypothesis.settings) -> None:
    """Play lives on this store; raises what the machine finds wrong."""
    machine = TaskLife.of(store)
    try:
        run_state_machine_as_test(machine, settings=settings)
    finally:
        for actor in machine.actors:
            actor.mongo.close()
