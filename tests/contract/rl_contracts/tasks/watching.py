"""What the life of tasks sees of the store between its steps, and what must hold there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rl_contracts import ids
from rl_contracts.documents.rollout import Rollout, VersionSpan
from rl_contracts.documents.run import Run
from rl_contracts.documents.task import Queue, Task
from rl_contracts.errors import StoreUnavailableError
from tests.contract.rl_contracts.tasks.actors import (
    Actor,
    Claimed,
    Done,
    Learner,
    check_end,
    check_move,
)
from tests.samples.documents import a_rollout, a_task

GROUP = 2


class Watching:
    """A run, looked at through a client whose replies are never lost."""

    run: ids.RunId
    watcher: Actor
    written: dict[str, Rollout]
    """By id, as each was written first."""
    promised: dict[str, tuple[int, list[str]]]
    """Attempt and rollouts of each task that was ever seen finished."""
    before: dict[str, Task]
    """As the last look saw them."""
    head: str | None
    """Of the lineage, as the last look saw it."""

    def task(self, sequence: int, attempts: int) -> Task:
        name = ids.task_id(self.run, "train", sequence)
        return a_task(sequence, id=name, run=self.run, group_size=GROUP, max_attempts=attempts)

    def a_member(self, task: Task, member: int, *, step: int) -> Rollout:
        """A member of this attempt; what an attempt has written it does not write differently."""
        span = VersionSpan(version=1, step=step, start=2, end=4)
        made = a_rollout(task, member, sampler=task.owner, spans=[span])
        return self.written.setdefault(made.id, made)

    def finished(self, trainer: Learner) -> list[Task]:
        try:
            return trainer.actor.tasks.find(self.run, queue=Queue.TRAIN, state=Done)
        except StoreUnavailableError:
            return []

    def is_ours(self, task: Task) -> bool:
        """Whether a claim still stands in the store."""
        held = self.snapshot()[task.id]
        return (held.state, held.owner, held.attempt) == (Claimed, task.owner, task.attempt)

    @contextmanager
    def changing(self, task: Task, *, ours: bool) -> Iterator[None]:
        """A worker's command, which may change this task alone, and only while it is its own."""
        before = self.snapshot()
        try:
            yield
        finally:
            changed = {name for name, task in self.snapshot().items() if task != before[name]}
            assert changed <= ({task.id} if ours else set()), "what was not its own was changed"

    def known_run(self) -> Run:
        run = self.watcher.runs.get(self.run)
        assert run is not None
        return run

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
        done = [task for task in self.before.values() if task.state is Done]
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
            promised = [rollout for task in batch.tasks for rollout in self.promised[task][1]]
            assert [member.rollout for member in batch.members] == promised

    def counts_are_queries(self) -> None:
        open_ones = [task for task in self.snapshot().values() if task.queue is Queue.TRAIN]
        counts = self.watcher.tasks.count(self.run, queue=Queue.TRAIN)
        assert counts == Counter(task.state for task in open_ones)
        assert self.watcher.tasks.total(self.run, queue=Queue.TRAIN) == len(open_ones)

    def snapshot(self) -> dict[str, Task]:
        documents = self.watcher.mongo.collection("tasks").find({"run": self.run})
        return {document["_id"]: Task.from_mongo(document) for document in documents}

    def quietly(self, command: Callable[[], Any]) -> bool:
        """Send it; False where its sender will never know what became of it."""
        try:
            command()
        except StoreUnavailableError:
            return False
        return True
