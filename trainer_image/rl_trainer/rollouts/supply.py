"""The train queue beside training: prompts handed out, finished groups read ahead.

A thread does what the document store is asked for, so that the trainer finds groups in memory when
it forms a batch. What is read ahead is no more than what is handed out, and nothing is decided here
that depends on time: how old a group is, is looked at when its batch is formed.
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
from rl_trainer.context.waiting import look_seconds
from rl_trainer.data.stream import TrainStream
from rl_trainer.rollouts.intake import Intake, News, told

DEAD_SECONDS = 0.25
"""Dead tasks are rare, and looked for so often, or at once after some were found."""
COUNT_SECONDS = 5.0
"""A full queue is counted again after so long: a former trainer's last write may be late."""
WAIT_SECONDS = 0.5
"""Longest wait for news before the trainer looks whether it was told to stop."""


class Supply:
    """Keeps samplers supplied with prompts and reads what they finish, on a thread of its own.

    The trainer's own thread calls all methods. Prompts are handed out when it asks and for as long
    as it waits: after a step not before its policy is on its way, and where many groups are lost
    no more are tried than the trainer hears of.
    """

    def __init__(self, job: Job, stream: TrainStream, *, limits: Limits) -> None:
        """See the class.

        Args:
            job: whose queue.
            stream: where prompts come from.
            limits: of usable rollouts.
        """
        self._job, self._stream = job, stream
        self.intake = Intake(job, limits=limits, freed=self._changes_queue)
        self._per_step = job.spec.training.prompts_per_step
        self._changed = threading.Condition()
        self._news = News()
        self._asked, self._answered = 0, 0
        """The last question, and the last one that was there before a whole look began."""
        self._looks = 0
        self._awaited, self._ended = False, False
        self._missing = self._per_step
        """Groups that the step lacks that is waited for, or else the next one."""
        self._admitting = threading.Lock()
        self._progress: Progress | None = None
        """None while no prompts may be handed out."""
        self._known: set[str] = set()
        """Finished tasks that were read."""
        self._room = False
        """Prompts may be wanted: the queue was not found full since we put tasks into it or out of
        it."""
        self._count_from = -math.inf
        """When it is counted in any case."""
        self._dead_from = -math.inf
        """When dead tasks are looked for next."""
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="supply")
        self._thread: Future[None] | None = None

    def ask(self, progress: Progress, *, known: Collection[str] = ()) -> None:
        """Ask for the next step's groups; the first question begins the thread.

        Args:
            progress: the lineage; its ``next_sequence`` is moved on with each prompt.
            known: tasks that are to be passed over, at the first question.
        """
        with self._admitting:
            self._progress = progress
        with self._changed:
            self._asked += 1
            self._awaited = True
            self._changed.notify_all()
        if self._thread is None:
            self._known.update(known)
            self._thread = self._executor.submit(self._work)

    def take(self) -> News:
        """What was found and not taken yet."""
        with self._changed:
            found, self._news = self._news, News()
            return found

    @property
    def answered(self) -> bool:
        """Whether everything that was finished when ``ask`` was called has been told."""
        with self._changed:
            return self._answered == self._asked and not self._news.groups

    def wait(self, *, missing: int | None = None) -> None:
        """Wait for news, or for a look without any, a short time; raises what ended the thread.

        Args:
            missing: groups that the step lacks, where that is not as many as were not told.
        """
        with self._changed:
            looks = self._looks
            self._missing = self._missing if missing is None else missing
            self._changed.wait_for(
                lambda: self._news.groups or self._news.losses or self._looks != looks,
                timeout=WAIT_SECONDS,
            )
        self.check()

    def served(self, *, ahead: int = 0) -> None:
        """The step has its groups, and the next one so many: look less often."""
        with self._changed:
            self._awaited = False
            self._missing = self._per_step - ahead

    def hold(self) -> None:
        """Hand out no prompts until the next question."""
        with self._admitting:
            self._progress = None

    def check(self) -> None:
        """Raise what ended the thread."""
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
                    asked, awaited = self._asked, self._awaited
                    new = asked != self._answered
                    counts = self._room or self._job.clock() >= self._count_from
                    admits = new or (awaited and counts)
                    self._room = self._room and not admits
                if admits:
                    self._admit()
                self._look()
                if new or self._job.clock() >= self._dead_from:
                    self._bury()
                with self._changed:
                    self._answered = asked
                    self._looks += 1
                    self._changed.notify_all()
                    self._rest()
        finally:
            with self._changed:
                self._looks += 1
                self._changed.notify_all()

    def _rest(self) -> None:
        """Until the next look is due; the lock is held."""
        seconds = look_seconds(self._per_step, missing=self._missing, awaited=self._awaited)
        self._changed.wait_for(
            lambda: self._ended or self._asked != self._answered, timeout=seconds
        )

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
        if new < room:
            # Some may have been there before, and trained: an attempt hands out again what the one
            # before it did, from its last batch on.
            self._changes_queue()

    def _look(self) -> None:
        """Read newly finished tasks, and tell of them."""
        tasks, run = self._job.stores.tasks, self._job.run
        done = tasks.ids(run, queue=Queue.TRAIN, state=TaskState.DONE)
        self._known &= done
        found = tasks.get(done - self._known).values()
        new = sorted(
            (one for one in found if (one.queue, one.state) == (Queue.TRAIN, TaskState.DONE)),
            key=lambda one: one.sequence,
        )
        for first in range(0, len(new), self._per_step):
            some = new[first : first + self._per_step]
            self._tell(self.intake.judged(some))
            self._known |= {one.id for one in some}

    def _bury(self) -> None:
        """Take dead tasks out of the queue, and tell of them."""
        tasks = self._job.stores.tasks
        dead = tasks.find(self._job.run, queue=Queue.TRAIN, state=TaskState.DEAD)
        tasks.bury([task.id for task in dead])
        self._dead_from = self._job.clock() + (0.0 if dead else DEAD_SECONDS)
        if dead:
            self._changes_queue()
        for task in dead:
            self._tell(News(losses=[told(task, task.cause or Cause.FAILED, task.reason)]))

    def _changes_queue(self) -> None:
        """Have it counted at the next look."""
        with self._changed:
            self._room = True

    def _tell(self, news: News) -> None:
        with self._changed:
            self._news.add(news)
            self._missing -= len(news.groups)
            self._changed.notify_all()
