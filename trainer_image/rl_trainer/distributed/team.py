"""Rank 0 and the ranks that follow it: rank 0 makes the run, all ranks make its computations.

Rank 0 sends a command, every rank carries it out and reports. A rank that exits without a report
closes its connections, and the others notice that.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar, cast

import torch.distributed as dist

from rl_contracts.errors import RLError
from rl_trainer.distributed.rank_commands import Exit, Ping, RankCommand
from rl_trainer.distributed.rank_failure import RankFailure
from rl_trainer.distributed.world import ALONE, World
from rl_trainer.errors import BrokenOffError, TrainingFailedError

T = TypeVar("T")

PING_SECONDS = 2.0
"""Longest time between two commands while rank 0 waits at safe points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How a command went on a rank."""

    failure: RankFailure | None = None
    terminated: bool = False
    """Its pod got SIGTERM."""
    result: object = None
    """What the command returned on a rank above 0."""


@dataclass(slots=True, kw_only=True)
class Team:
    """All ranks, seen from one of them. With a single rank nothing is sent."""

    world: World = ALONE
    terminated: threading.Event = field(default_factory=threading.Event)
    """Set on SIGTERM. Rank 0 stops when any rank's pod got it."""
    clock: Callable[[], float] = time.monotonic
    _last: float = field(default=0.0, init=False)
    _broke_off: bool = field(default=False, init=False)
    """This rank left a computation in the middle: the others wait in it and read no command."""

    def call(self, command: RankCommand, own: Callable[[], T]) -> T:
        """Have every rank carry out a command, rank 0 by ``own``; returns rank 0's result.

        Raises:
            As ``results``.
        """
        return self.results(command, own)[0]

    def results(self, command: RankCommand, own: Callable[[], T]) -> list[T]:
        """Have every rank carry out a command, rank 0 by ``own``; returns the results by rank.

        Raises:
            TrainingFailedError: another rank failed or is gone.
            RLError: what ``own`` raised, or another rank where no other attempt helps.
            BrokenOffError: what ``own`` raised; the others still wait for this rank.
        """
        if self.world.size == 1:
            return [own()]
        with rank_loss_as_failure():
            self._send(command)
            failure: RLError | None = None
            try:
                result = own()
            except RLError as error:
                failure = error
            except BrokenOffError:
                self._broke_off = True
                raise
            reports = self.world.gather(Report(terminated=self.terminated.is_set()))
        self._last = self.clock()
        if any(report.terminated for report in reports):
            self.terminated.set()
        if failure is not None:
            raise failure
        for rank, report in enumerate(reports):
            if report.failure is not None:
                raise report.failure.on(rank)
        return [result, *(cast(T, report.result) for report in reports[1:])]

    def check(self) -> None:
        """Ping the others every ``PING_SECONDS``; raises as ``call``."""
        if self.world.size > 1 and self.clock() - self._last >= PING_SECONDS:
            self.call(Ping(), lambda: None)

    def end(self, code: int) -> None:
        """Have the others exit with ``code``; ranks that are gone already are ignored.

        After a BrokenOffError nothing is sent, because sending would wait for them for an hour.
        They end when the connections of this process close.
        """
        if self.world.size > 1 and not self._broke_off:
            with contextlib.suppress(RuntimeError):
                self._send(Exit(code))

    def receive(self) -> RankCommand:
        """Wait for rank 0's next command.

        Raises:
            RuntimeError: rank 0 is gone.
            TrainingFailedError: what arrived does not come from rank 0.
        """
        command: RankCommand = self.world.receive()
        return command

    def report(self, failure: RankFailure | None = None, *, result: object = None) -> None:
        """Report to rank 0 how a command went here.

        Args:
            failure: why it failed; None: it succeeded.
            result: what it returned, where rank 0 asks for it.
        """
        terminated = self.terminated.is_set()
        self.world.gather(Report(failure=failure, terminated=terminated, result=result))

    def _send(self, command: RankCommand) -> None:
        self.world.send(command)


@contextlib.contextmanager
def rank_loss_as_failure() -> Iterator[None]:
    """Turn the RuntimeError of a broken connection into TrainingFailedError."""
    try:
        yield
    except RuntimeError as error:
        if not is_rank_loss(error):
            raise
        raise TrainingFailedError(
            reason="RankLost",
            message=f"Another process of the trainer is gone: {str(error).splitlines()[0][:300]}",
        ) from error


def is_rank_loss(error: RuntimeError) -> bool:
    """Whether an error says that a connection to another rank broke."""
    text = str(error)
    return isinstance(error, dist.DistError) or "gloo" in text or "onnection" in text
