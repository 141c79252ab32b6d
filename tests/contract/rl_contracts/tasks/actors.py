"""Processes as the life of tasks sees them: their clocks jump and replies to them get lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from pymongo.errors import AutoReconnect

from rl_contracts.documents.batch import Batch
from rl_contracts.documents.task import Cause, Queue, Task, TaskState
from rl_contracts.errors import StoreUnavailableError
from rl_contracts.stores.batches import BatchStore
from rl_contracts.stores.clients.mongo import Mongo
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.objects import Objects
from rl_contracts.stores.rollouts import RolloutStore
from rl_contracts.stores.runs import RunStore
from rl_contracts.stores.tasks import TaskStore

T = TypeVar("T")
FOR_GOOD = 99

State, Claimed, Done, Dead = TaskState, TaskState.CLAIMED, TaskState.DONE, TaskState.DEAD
MOVES = {
    (State.PENDING, Claimed),
    (State.RETRY, Claimed),
    (Claimed, Done),
    (Claimed, State.RETRY),
    (Claimed, Dead),
    (Done, Dead),
    (State.PENDING, Dead),
    (Dead, Done),
}


def check_move(was: Task, task: Task) -> None:
    """What one task may become in one step of whoever it is."""
    moved = (was.state, task.state)
    assert was.attempt <= task.attempt
    assert was.state is task.state or moved in MOVES, f"{task.id} moved {moved}"
    assert not (was.queue is Queue.CONSUMED and task.queue is not Queue.CONSUMED)
    if was.queue is Queue.CONSUMED and moved[0] is not moved[1]:
        assert moved == (Dead, Done), "a retired task was dropped"
    if was.state is not task.state and Done in moved and was.state is not Claimed:
        assert task.queue is Queue.CONSUMED, "a finished or dead task was taken back"


def check_end(task: Task) -> None:
    """A task that no trainer ended is dead for one of two reasons."""
    if task.queue is Queue.CONSUMED or task.state is not Dead or task.cause is Cause.PROMPT:
        return
    assert task.cause is not Cause.STOPPED, "a stopped sampler ended a task"
    assert task.attempt - task.excused == task.max_attempts, "dead before its last attempt"


class UnansweredError(Exception):
    """Stands for patience that ran out after the command had arrived."""


class FaultyMongo(Mongo):
    """A client whose clock jumps and whose replies get lost; every command itself arrives."""

    def __init__(self, settings: StoreSettings) -> None:
        super().__init__(settings, patience_seconds=10.0)
        self.skew = 0.0
        self.lose = 0
        """How many replies to the next command get lost."""
        self.lossy = False
        """Whether one reply to every command gets lost."""
        self.meanwhile: Callable[[], object] | None = None
        """Happens elsewhere before the next claim is taken back."""

    def now(self) -> float:
        return super().now() + self.skew

    def call(self, doing: str, operation: Callable[[], T]) -> T:
        lost, self.lose = self.lose or int(self.lossy), 0
        left = lost
        if self.meanwhile and doing.startswith("taking back"):
            happen, self.meanwhile = self.meanwhile, None
            happen()

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


@dataclass
class Actor:
    """A process: its own connection, and what it believes."""

    name: str
    mongo: FaultyMongo
    objects: Objects
    claims: list[Task] = field(default_factory=list)
    finished: list[tuple[Task, list[str]]] = field(default_factory=list)
    """Claims that it has completed, and with which rollouts."""
    hidden: list[Task] = field(default_factory=list)
    """What the store noted for it, by claims of which it never heard again."""

    def __post_init__(self) -> None:
        self.restart()
        self.rollouts = RolloutStore(self.mongo, self.objects)
        self.runs, self.batches = RunStore(self.mongo), BatchStore(self.mongo, self.objects)

    def restart(self) -> None:
        """Forget what is under way."""
        self.tasks = TaskStore(self.mongo, retry_check_seconds=0)  # no clock in the model
        self.tasks.unchanged_seconds = 0.0
        self.claims, self.hidden = [], []

    def begin(self) -> None:
        """Forget the run before."""
        self.mongo.skew, self.mongo.lose = 0.0, 0
        self.mongo.lossy, self.mongo.meanwhile = False, None
        self.restart()
        self.finished = []


@dataclass
class Learner:
    """A trainer: what it believes of the run."""

    actor: Actor
    epoch: int
    step: int
    head: str | None
    formed: Batch | None = None
    committed: Batch | None = None
