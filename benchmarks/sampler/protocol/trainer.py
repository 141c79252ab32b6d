"""The trainer's side of the document store: its real heartbeat thread, and steps without training.

It trains nothing: when asked to be busy it keeps the queue filled, takes out what is finished, and
commits and publishes a step from time to time.
"""

from __future__ import annotations

import threading
from typing import Any

from benchmarks.sampler.protocol import command_counts, remote, slowed
from benchmarks.sampler.protocol.paces import GROUP_SIZE
from benchmarks.sampler.protocol.stores import connected
from rl_contracts.documents.run import PolicyPointer, Totals
from rl_contracts.documents.task import Queue, TaskState
from rl_contracts.stores.connect import Stores
from rl_trainer.context.heartbeat import Heartbeat
from tests.samples.documents import RUN, a_run, a_step, a_task

STEP_SECONDS = 20.0
POLL_SECONDS = 1.0
QUEUED_PER_AGENT = 12
INSERTED_AT_ONCE, READ_AT_ONCE = 1000, 64
PROMPT = [{"role": "user", "content": "How many apples are left? " * 8}]


class ScriptedTrainer:
    """Makes the run, and its steps when it is busy."""

    def __init__(self, stores: Stores, *, agents: int) -> None:
        """Take the run and publish the first policy."""
        self._stores, self._agents = stores, agents
        self._sequence = self._step = 0
        self.busy = threading.Event()
        stores.mongo.ensure_indexes()
        stores.runs.create(a_run(id=RUN, created_at=stores.mongo.now()))
        self.epoch = stores.runs.take_epoch(RUN).epoch
        self._publish()

    def go_on(self) -> None:
        """Make steps while busy; never returns."""
        seconds = 0.0
        while True:
            slowed.sleep(POLL_SECONDS)
            if not self.busy.is_set():
                continue
            self._take()
            self._fill()
            seconds += POLL_SECONDS
            if seconds >= STEP_SECONDS:
                seconds = 0.0
                self._commit()

    def be_busy(self) -> int:
        """Begin to hand out tasks and to make steps; returns the number of tasks."""
        self._fill()
        self.busy.set()
        return self._sequence

    def _fill(self) -> None:
        tasks = self._stores.tasks
        missing = QUEUED_PER_AGENT * self._agents - tasks.total(RUN, queue=Queue.TRAIN)
        while missing > 0:
            first, number = self._sequence, min(missing, INSERTED_AT_ONCE)
            tasks.insert(
                [
                    a_task(each, messages=PROMPT, group_size=GROUP_SIZE, created_step=self._step)
                    for each in range(first, first + number)
                ]
            )
            self._sequence += number
            missing -= number
            self._stores.runs.hint(RUN, epoch=self.epoch)

    def _take(self) -> None:
        tasks = self._stores.tasks
        done = sorted(tasks.ids(RUN, queue=Queue.TRAIN, state=TaskState.DONE))
        for first in range(0, len(done), READ_AT_ONCE):
            some = list(tasks.get(done[first : first + READ_AT_ONCE]).values())
            self._stores.rollouts.read([name for task in some for name in task.rollouts])
            tasks.retire([task.id for task in some])

    def _commit(self) -> None:
        self._step += 1
        self._stores.runs.commit_step(
            RUN,
            epoch=self.epoch,
            head_batch=f"b{self._step}",
            latest=a_step(self._step),
            totals=Totals(),
        )
        self._publish()

    def _publish(self) -> None:
        runs = self._stores.runs
        version = runs.reserve_version(RUN, epoch=self.epoch)
        pointer = PolicyPointer(
            version=version,
            epoch=self.epoch,
            step=self._step,
            prefix=f"runs/{RUN}/policies/{version:08d}-{self.epoch}-ab/",
            manifest_sha256="0" * 64,
        )
        runs.publish(RUN, epoch=self.epoch, pointer=pointer)


def main() -> None:
    """Run until killed."""
    given: dict[str, Any] = remote.given()
    counts = command_counts.registered()
    stores = connected(given["uri"])
    trainer = ScriptedTrainer(stores, agents=given["agents"])
    beating = Heartbeat(
        stores,
        run=RUN,
        epoch=trainer.epoch,
        terminated=threading.Event(),
        beat_seconds=2.0 * slowed.slowing(),  # it waits on an event, in real seconds
    )
    with beating:
        remote.answer_in_thread(counts, {"busy": trainer.be_busy})
        trainer.go_on()
