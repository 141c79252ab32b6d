"""The trainers' part in the life of tasks: each newer one fences out those that still run."""

from __future__ import annotations

from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import rule

from rl_contracts import ids
from rl_contracts.documents.batch import BatchMember
from rl_contracts.documents.run import Totals
from rl_contracts.documents.task import Cause
from rl_contracts.errors import FencedOutError, StoreUnavailableError
from tests.contract.rl_contracts.tasks.actors import Actor, Learner
from tests.contract.rl_contracts.tasks.watching import Watching
from tests.samples.documents import a_batch, a_step

PER_BATCH, MAX_TASKS = 2, 12


class Training(Watching):
    """Rules of trainers."""

    actors: ClassVar[list[Actor]]
    trainers: list[Learner]
    inserted: int

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
        tasks = [self.task(index, attempts) for index in range(again, self.inserted + number)]
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
            members=[
                BatchMember(rollout=rollout, advantage=0.0) for t in ready for rollout in t.rollouts
            ],
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
        newest = trainer.epoch == max(other.epoch for other in self.trainers)
        try:
            trainer.actor.runs.commit_step(
                self.run,
                epoch=trainer.epoch,
                head_batch=batch.id,
                latest=a_step(batch.step),
                totals=Totals(),
            )
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
        spare = [batch.id for batch in ready if mine is None or batch.id not in mine.tasks][-1:]
        self.quietly(lambda: trainer.actor.tasks.drop(spare, reason="old", cause=Cause.STALE))

    @rule(which=st.integers(0, 1))
    def train(self, which: int) -> None:
        """A step that nothing disturbs."""
        self.form(which)
        self.commit(which)

    def trainer(self, which: int) -> Learner:
        return self.trainers[which % len(self.trainers)]
