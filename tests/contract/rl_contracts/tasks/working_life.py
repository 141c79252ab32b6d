"""The workers' part in the life of tasks: each claims, writes, finishes, gives back, or dies."""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from rl_contracts.documents.task import Cause, Queue, Task
from rl_contracts.errors import StoreUnavailableError
from rl_sampler.episodes.rollout import adopted
from tests.contract.rl_contracts.tasks.actors import FOR_GOOD, Actor, State
from tests.contract.rl_contracts.tasks.watching import GROUP, Watching

LEASE_SECONDS = 30.0
MAX_STALENESS = 1
CLOCK_ERROR_SECONDS = 1.0
"""A client measures the store's clock anew once a minute."""


class Working(Watching):
    """Rules of workers that nothing else disturbs."""

    workers: list[Actor]

    @rule(who=st.integers(0, 1), times=st.integers(1, 3), lossy=st.booleans())
    def claim(self, who: int, times: int, lossy: bool) -> None:
        self.workers[who].mongo.lossy = lossy
        for _ in range(times):
            self.claim_one(self.workers[who])
        self.workers[who].mongo.lossy = False

    def claim_one(self, worker: Actor) -> None:
        before = self.snapshot()
        lost = worker.mongo.lose == FOR_GOOD
        states = Counter(task.state for task in before.values() if task.queue is Queue.TRAIN)
        hidden = [task for task in worker.hidden if self.is_ours(task)]
        asked = None if worker.mongo.lose or worker.mongo.lossy else worker.mongo.now()
        try:
            task = worker.tasks.claim(
                self.run, queue=Queue.TRAIN, owner=worker.name, lease_seconds=LEASE_SECONDS
            )
        except StoreUnavailableError:
            assert lost
            now = self.snapshot().values()
            worker.hidden += [task for task in now if task.attempt > before[task.id].attempt]
            return
        worker.hidden = []
        if hidden:
            assert task is not None, "a claim whose answer never came was forgotten"
            assert [(task.id, task.attempt)] == [
                (hidden_task.id, hidden_task.attempt) for hidden_task in hidden
            ]
        elif task is None:
            assert not states[State.RETRY] + states[State.PENDING]
            return
        else:
            assert before[task.id].state is (State.RETRY if states[State.RETRY] else State.PENDING)
            assert task.attempt == before[task.id].attempt + 1
        if asked is not None:
            given = task.lease_until - LEASE_SECONDS - asked
            assert -CLOCK_ERROR_SECONDS <= given <= worker.mongo.now() - asked + CLOCK_ERROR_SECONDS
        changed = [task for task in self.snapshot().values() if task != before[task.id]]
        assert changed == [task], "a lost reply cost another task an attempt"
        worker.claims.append(task)

    @precondition(lambda self: any(worker.claims for worker in self.workers))
    @rule(data=st.data(), member=st.integers(0, GROUP - 1), age=st.integers(0, 2))
    def write(self, data: st.DataObject, member: int, age: int) -> None:
        worker, task = self.a_claim(data)
        rollout = self.a_member(task, member, step=self.known_run().step - age)
        with self.changing(task, ours=False):
            self.quietly(lambda: worker.rollouts.put([rollout]))

    @precondition(lambda self: any(worker.claims for worker in self.workers))
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        self.finish(*self.a_claim(data))

    def finish(self, worker: Actor, task: Task) -> None:
        """Adopt what is there of earlier attempts and fresh, write the rest, finish."""
        step = self.known_run().step
        try:
            adoptable = adopted(
                worker.rollouts.of_task(task.id), task=task, oldest_step=step - MAX_STALENESS
            )
            for member in range(GROUP):
                if member not in adoptable:
                    adoptable[member] = self.a_member(task, member, step=step)
            wanted = [adoptable[member].id for member in range(GROUP)]
            worker.rollouts.put(list(adoptable.values()))
            with self.changing(task, ours=self.is_ours(task)):
                done = worker.tasks.complete(task, rollouts=wanted)
        except StoreUnavailableError:
            return
        fresh = [self.written[rollout].oldest_step >= step - MAX_STALENESS for rollout in wanted]
        own = [self.written[rollout].attempt == task.attempt for rollout in wanted]
        assert all(a or b for a, b in zip(fresh, own, strict=True)), "a stale member was adopted"
        if done:
            assert self.promised.setdefault(task.id, (task.attempt, wanted)) == (
                task.attempt,
                wanted,
            ), "completed twice"
            worker.claims.remove(task)
            worker.finished.append((task, wanted))

    @precondition(lambda self: any(worker.finished for worker in self.workers))
    @rule(who=st.integers(0, 1))
    def complete_again(self, who: int) -> None:
        """A process that thaws says once more what is long done, and something else."""
        worker = self.workers[who]
        for task, wanted in worker.finished[-1:]:
            with self.changing(task, ours=False):
                self.quietly(lambda: worker.tasks.complete(task, rollouts=wanted[::-1]))  # noqa: B023

    @precondition(lambda self: any(worker.claims for worker in self.workers))
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

    @precondition(lambda self: any(worker.claims for worker in self.workers))
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

    @rule(who=st.integers(0, 1))
    def crash(self, who: int) -> None:
        self.workers[who].restart()

    def a_claim(self, data: st.DataObject) -> tuple[Actor, Task]:
        held = [(worker, task) for worker in self.workers for task in worker.claims]
        return held[data.draw(st.integers(0, len(held) - 1))]
