"""What the life of tasks sees of the store between its steps."""

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
from tests.contract.rl_contracts.actors import Actor, Claimed, Done, Learner
from tests.documents import a_rollout, a_task

GROUP = 2


class Watching:
    """A run, looked at through a client whose replies are never lost."""

    run: ids.RunId
    watcher: Actor
    written: dict[str, Rollout]
    """By id, as each was written first."""

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
            changed = {name for name, one in self.snapshot().items() if one != before[name]}
            assert changed <= ({task.id} if ours else set()), "what was not its own was changed"

    def known_run(self) -> Run:
        run = self.watcher.runs.get(self.run)
        assert run is not None
        return run

    def counts_are_queries(self) -> None:
        open_ones = [one for one in self.snapshot().values() if one.queue is Queue.TRAIN]
        counts = self.watcher.tasks.count(self.run, queue=Queue.TRAIN)
        assert counts == Counter(one.state for one in open_ones)
        assert self.watcher.tasks.total(self.run, queue=Queue.TRAIN) == len(open_ones)

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
