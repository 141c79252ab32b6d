"""The train queue beside training: hands out prompts and reads finished groups ahead.

A thread makes all requests to the document store, so that the trainer has groups in memory when it
forms a batch. It never reads ahead more than it handed out. It decides nothing that depends on
time: the staleness of a group is checked when its batch is formed.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor

from rl_contracts.documents.task import Cause, Queue, TaskState
from rl_trainer.algorithm.groups import Limits
from rl_trainer.algorithm.prompt_budget import admissible
from rl_trainer.context.job import Job, Progress
from rl_trainer.context.waiting import poll_interval
from rl_trainer.data.stream import TrainStream
from rl_trainer.distributed.share import ShareReader
from rl_trainer.rollouts.intake import Intake, QueueUpdate, log_lost

DEAD_SECONDS = 0.25
"""Between searches for dead tasks, which are rare; after a hit the next search follows at once."""
COUNT_SECONDS = 5.0
"""A full queue is counted again after this long: an earlier trainer's last write may be late."""
WAIT_SECONDS = 0.5
"""Longest wait for an update before the trainer checks whether it must stop."""


class Supply:
    """Keeps samplers supplied with prompts and reads what they finish, on a thread of its own.

    The trainer's main thread calls all methods. Prompts are handed out from ``request`` on and
    while the trainer waits. So none are handed out after a step before its policy is being
    published, and where many groups are lost, no more are tried than the trainer knows of.

    Args:
        job: whose queue.
        stream: where prompts come from.
        limits: of usable rollouts.
        reader: where this process reads the rollouts that it trains.
    """

    def __init__(
        self, job: Job, stream: TrainStream, *, limits: Limits, reader: ShareReader
    ) -> None:
        self._job, self._stream = job, stream
        self.intake = Intake(job, limits=limits, reader=reader, freed=self._recount)
        self._per_step = job.spec.training.prompts_per_step
        self._changed = threading.Condition()
        self._update = QueueUpdate()
        self._requested, self._met = 0, 0
        """Number of the last request, and of the last one made before a complete poll started."""
        self._polls = 0
        self._awaited, self._ended = False, False
        self._missing = self._per_step
        """Groups that the awaited step still lacks, or the next step while none is awaited."""
        self._admitting = threading.Lock()
        self._progress: Progress | None = None
        """None while no prompts may be handed out."""
        self._read_ids: set[str] = set()
        """Ids of finished tasks that were read already."""
        self._room = False
        """The queue may have room: it was not seen full since tasks entered or left it."""
        self._count_from = -math.inf
        """When the queue is counted in any case."""
        self._dead_from = -math.inf
        """When dead tasks are searched for next."""
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="supply")
        self._thread: Future[None] | None = None

    def request(self, progress: Progress, *, known: Collection[str] = ()) -> None:
        """Request the next step's groups; the first request starts the thread.

        Args:
            progress: the lineage; its ``next_sequence`` is moved on with each prompt.
            known: ids of tasks to skip; used by the first request.
        """
        with self._admitting:
            self._progress = progress
        with self._changed:
            self._requested += 1
            self._awaited = True
            self._changed.notify_all()
        if self._thread is None:
            self._read_ids.update(known)
            self._thread = self._executor.submit(self._work)

    def take(self) -> QueueUpdate:
        """The update since the last call."""
        with self._changed:
            update, self._update = self._update, QueueUpdate()
            return update

    @property
    def caught_up(self) -> bool:
        """Whether all groups that had finished at the last ``request`` were read and taken."""
        with self._changed:
            return self._met == self._requested and not self._update.groups

    def wait(self, *, missing: int | None = None) -> None:
        """Wait for an update or the end of a poll, at most ``WAIT_SECONDS``.

        Raises the error that ended the thread.

        Args:
            missing: groups that the step still lacks, where that differs from the thread's count.
        """
        with self._changed:
            polls = self._polls
            self._missing = self._missing if missing is None else missing
            self._changed.wait_for(
                lambda: self._update.groups or self._update.lost or self._polls != polls,
                timeout=WAIT_SECONDS,
            )
        self.check()

    def served(self, *, ahead: int = 0) -> None:
        """The step has its groups, and the next step already has ``ahead``: poll less often."""
        with self._changed:
            self._awaited = False
            self._missing = self._per_step - ahead

    def pause(self) -> None:
        """Hand out no prompts until the next request."""
        with self._admitting:
            self._progress = None

    def check(self) -> None:
        """Raise the error that ended the thread, if any."""
        if self._thread is not None and self._thread.done():
            self._thread.result()

    def close(self, *, wait: bool) -> None:
        """End the thread; without waiting where a store may not answer."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._executor.shutdown(wait=wait, cancel_futures=True)

    def _work(self) -> None:
        try:
            while True:
                with self._changed:
                    if self._ended:
                        return
                    requested, awaited = self._requested, self._awaited
                    new = requested != self._met
                    counts = self._room or self._job.clock() >= self._count_from
                    admits = new or (awaited and counts)
                    self._room = self._room and not admits
                if admits:
                    self._admit()
                self._poll()
                if new or self._job.clock() >= self._dead_from:
                    self._bury_dead()
                with self._changed:
                    self._met = requested
                    self._polls += 1
                    self._changed.notify_all()
                    self._wait_for_poll()
        finally:
            with self._changed:
                self._polls += 1
                self._changed.notify_all()

    def _wait_for_poll(self) -> None:
        """Wait until the next poll is due; the caller holds the lock."""
        seconds = poll_interval(self._per_step, missing=self._missing, awaited=self._awaited)
        self._changed.wait_for(lambda: self._ended or self._requested != self._met, timeout=seconds)

    def _admit(self) -> None:
        with self._admitting:
            progress = self._progress
            if progress is None:
                return
            room = admissible(
                outstanding=self._job.stores.tasks.total(self._job.run, queue=Queue.TRAIN),
                prompts_per_step=self._per_step,
                max_staleness=self._job.spec.algorithm.off_policy.max_staleness,
                steps_left=self._job.spec.training.total_steps - progress.step,
            )
            self._count_from = self._job.clock() + COUNT_SECONDS
            first = progress.next_sequence
            new = self._job.stores.tasks.insert(
                [self._stream.task(first + offset, step=progress.step) for offset in range(room)]
            )
            progress.next_sequence += room
            if room > 0:
                self._job.stores.runs.hint(self._job.run, epoch=self._job.epoch)
        if new < room:
            # Some may have been in the queue before, and trained: an attempt hands out again what
            # the attempt before it did, from its last batch on.
            self._recount()

    def _poll(self) -> None:
        """Read newly finished tasks and deliver their groups."""
        tasks, run = self._job.stores.tasks, self._job.run
        done = tasks.ids(run, queue=Queue.TRAIN, state=TaskState.DONE)
        self._read_ids &= done
        fetched = tasks.get(done - self._read_ids).values()
        new = sorted(
            (task for task in fetched if (task.queue, task.state) == (Queue.TRAIN, TaskState.DONE)),
            key=lambda task: task.sequence,
        )
        for first in range(0, len(new), self._per_step):
            some = new[first : first + self._per_step]
            self._deliver(self.intake.judge(some))
            self._read_ids |= {task.id for task in some}

    def _bury_dead(self) -> None:
        """Take dead tasks out of the queue and deliver them as lost groups."""
        tasks = self._job.stores.tasks
        dead = tasks.find(self._job.run, queue=Queue.TRAIN, state=TaskState.DEAD)
        tasks.bury([task.id for task in dead])
        self._dead_from = self._job.clock() + (0.0 if dead else DEAD_SECONDS)
        if dead:
            self._recount()
        for task in dead:
            self._deliver(
                QueueUpdate(lost=[log_lost(task, task.cause or Cause.FAILED, task.reason)])
            )

    def _recount(self) -> None:
        """Have the queue counted at the next poll."""
        with self._changed:
            self._room = True

    def _deliver(self, update: QueueUpdate) -> None:
        with self._changed:
            self._update.add(update)
            self._missing -= len(update.groups)
            self._changed.notify_all()
