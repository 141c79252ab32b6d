"""The life of tasks as hypothesis plays it against a real store: the machine of two test tiers.

Workers claim, write, finish, give back, die and wake up too late; trainers form, commit and retire
batches and are replaced while they still run; clocks jump; replies get lost, for a moment or for
good. The store's own documents are compared with what each step may have changed.
"""

from __future__ import annotations

import itertools
import secrets
from collections import Counter
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
from rl_contracts.errors import StoreUnavailableError
from rl_contracts.stores.objects import Objects
from rl_contracts.stores.orphans import find_orphans
from rl_contracts.stores.settings import StoreSettings
from rl_contracts.stores.tasks import LONGEST_LEASE_SECONDS
from rl_sampler.rollout import adopted
from tests.contract.rl_contracts.actors import (
    FOR_GOOD,
    Actor,
    Dead,
    Done,
    FaultyMongo,
    Learner,
    State,
    check_end,
    check_move,
)
from tests.contract.rl_contracts.training_life import MAX_TASKS, PER_BATCH, Training
from tests.contract.rl_contracts.watching import GROUP
from tests.documents import a_rollout, a_run

LEASE_SECONDS = 30.0
MAX_STALENESS = 1
CLOCK_ERROR_SECONDS = 1.0
"""A client measures the store's clock anew once a minute."""
RUNS = itertools.count()


class TaskLife(Training, RuleBasedStateMachine):
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

    @rule(who=st.integers(0, 1), times=st.integers(1, 3), lossy=st.booleans())
    def claim(self, who: int, times: int, lossy: bool) -> None:
        self.workers[who].mongo.lossy = lossy
        for _ in range(times):
            self.claim_one(self.workers[who])
        self.workers[who].mongo.lossy = False

    def claim_one(self, worker: Actor) -> None:
        before = self.snapshot()
        lost = worker.mongo.lose == FOR_GOOD
        states = Counter(one.state for one in before.values() if one.queue is Queue.TRAIN)
        hidden = [one for one in worker.hidden if self.is_ours(one)]
        asked = None if worker.mongo.lose or worker.mongo.lossy else worker.mongo.now()
        try:
            task = worker.tasks.claim(
                self.run, queue=Queue.TRAIN, owner=worker.name, lease_seconds=LEASE_SECONDS
            )
        except StoreUnavailableError:
            assert lost
            now = self.snapshot().values()
            worker.hidden += [one for one in now if one.attempt > before[one.id].attempt]
            return
        worker.hidden = []
        if hidden:
            assert task is not None, "a claim whose answer never came was forgotten"
            assert [(task.id, task.attempt)] == [(one.id, one.attempt) for one in hidden]
        elif task is None:
            assert not states[State.RETRY] + states[State.PENDING]
            return
        else:
            assert before[task.id].state is (State.RETRY if states[State.RETRY] else State.PENDING)
            assert task.attempt == before[task.id].attempt + 1
        if asked is not None:
            given = task.lease_until - LEASE_SECONDS - asked
            assert -CLOCK_ERROR_SECONDS <= given <= worker.mongo.now() - asked + CLOCK_ERROR_SECONDS
        changed = [one for one in self.snapshot().values() if one != before[one.id]]
        assert changed == [task], "a lost reply cost another task an attempt"
        worker.claims.append(task)

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

    @precondition(lambda self: any(one.claims for one in self.workers))
    @rule(data=st.data(), member=st.integers(0, GROUP - 1), age=st.integers(0, 2))
    def write(self, data: st.DataObject, member: int, age: int) -> None:
        worker, task = self.a_claim(data)
        rollout = self.a_member(task, member, step=self.known_run().step - age)
        with self.changing(task, ours=False):
            self.quietly(lambda: worker.rollouts.put([rollout]))

    @precondition(lambda self: any(one.claims for one in self.workers))
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        self.finish(*self.a_claim(data))

    def finish(self, worker: Actor, task: Task) -> None:
        """Adopt what is there of earlier attempts and fresh, write the rest, finish."""
        step = self.known_run().step
        try:
            found = adopted(
                worker.rollouts.of_task(task.id), task=task, oldest_step=step - MAX_STALENESS
            )
            for member in range(GROUP):
                if member not in found:
                    found[member] = self.a_member(task, member, step=step)
            wanted = [found[member].id for member in range(GROUP)]
            worker.rollouts.put(list(found.values()))
            with self.changing(task, ours=self.is_ours(task)):
                done = worker.tasks.complete(task, rollouts=wanted)
        except StoreUnavailableError:
            return
        fresh = [self.written[one].oldest_step >= step - MAX_STALENESS for one in wanted]
        own = [self.written[one].attempt == task.attempt for one in wanted]
        assert all(a or b for a, b in zip(fresh, own, strict=True)), "a stale member was adopted"
        if done:
            assert self.promised.setdefault(task.id, (task.attempt, wanted)) == (
                task.attempt, wanted,
            ), "completed twice"  # fmt: skip
            worker.claims.remove(task)
            worker.finished.append((task, wanted))

    @precondition(lambda self: any(one.finished for one in self.workers))
    @rule(who=st.integers(0, 1))
    def complete_again(self, who: int) -> None:
        """A process that thaws says once more what is long done, and something else."""
        worker = self.workers[who]
        for task, wanted in worker.finished[-1:]:
            with self.changing(task, ours=False):
                self.quietly(lambda: worker.tasks.complete(task, rollouts=wanted[::-1]))  # noqa: B023

    @precondition(lambda self: any(one.claims for one in self.workers))
    @rule(data=st.data(), cause=st.sampled_from([Cause.FAILED, Cause.STOPPED, Cause.PROMPT]))
    def give_up(self, data: st.DataObject, cause: Cause) -> None:
        worker, task = self.a_claim(data)
        self.give_back(worker, task, cause)
        # Sometimes it goes on all the same: a process that was paused knows nothing.
        if data.draw(st.booleans()):
            worker.claims.remove(task)

    def give_back(self, worker: Actor, task: Task, cause: Cause = Cause.FAILED) -> None:
        end = worker.tasks.kill if cause is Cause.PROMPT else worker.tasks.hand_back
        with self.changing(task, ours=self.is_ours(task)):
            self.quietly(lambda: end(task, reason="tested", cause=cause))

    @precondition(lambda self: any(one.claims for one in self.workers))
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        self.extend(*self.a_claim(data))

    def extend(self, worker: Actor, task: Task) -> None:
        ours = self.is_ours(task)
        try:
            with self.changing(task, ours=ours):
                renewed = worker.tasks.renew(task, lease_seconds=LEASE_SECONDS)
        except StoreUnavailableError:
            return
        assert renewed == ours

    @precondition(lambda self: any(one.claims for one in self.workers))
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

    @precondition(lambda self: any(one.claims for one in self.workers))
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

    @rule(who=st.integers(0, 1))
    def crash(self, who: int) -> None:
        self.workers[who].restart()

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

    @precondition(lambda self: any(one.claims for one in self.workers))
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
        ready = [one.id for one in self.finished(old) if not mine or one.id not in mine.tasks]
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

    def every_change_is_a_move(self) -> None:
        after = self.snapshot()
        assert set(self.before) <= set(after), "a task was lost"
        for name, task in after.items():
            assert task.attempt - task.excused <= task.max_attempts
            check_end(task)
            if name in self.before:
                check_move(self.before[name], task)
        self.before = after

    def what_was_promised_stands(self) -> None:
        for name, (attempt, chosen) in self.promised.items():
            task = self.before[name]
            assert (task.attempt, task.rollouts) == (attempt, chosen), "completed twice"
        done = [one for one in self.before.values() if one.state is Done]
        for task in done:  # also where the reply to the completion was lost for good
            assert len(set(task.rollouts)) == GROUP
            self.promised.setdefault(task.id, (task.attempt, task.rollouts))

    def nothing_is_trained_twice(self) -> None:
        run = self.known_run()
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

    def a_claim(self, data: st.DataObject) -> tuple[Actor, Task]:
        held = [(one, task) for one in self.workers for task in one.claims]
        return held[data.draw(st.integers(0, len(held) - 1))]


def play(store: StoreSettings, *, settings: hypothesis.settings) -> None:
    """Play lives on this store; raises what the machine finds wrong."""
    machine = TaskLife.of(store)
    try:
        run_state_machine_as_test(machine, settings=settings)
    finally:
        for actor in machine.actors:
            actor.mongo.close()
