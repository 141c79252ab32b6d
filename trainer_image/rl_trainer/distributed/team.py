"""Rank 0 and the ranks that follow it: one makes the run, all make its computations.

Rank 0 sends an order, every rank carries it out, and each reports. Whoever ends without a report
closes its connections, by which the others know.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import torch.distributed as dist

from rl_contracts.errors import RLError
from rl_trainer.distributed.rank_commands import Exit, Ping, RankCommand
from rl_trainer.distributed.world import ALONE, World
from rl_trainer.errors import TrainingFailedError

T = TypeVar("T")

PING_SECONDS = 2.0
"""Between two orders at most, while rank 0 waits at safe points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How an order went on a rank."""

    error: str = ""
    terminated: bool = False
    """Its pod was told to stop."""


@dataclass(slots=True, kw_only=True)
class Team:
    """All ranks, seen from one of them; nothing is sent where there is one alone."""

    world: World = ALONE
    terminated: threading.Event = field(default_factory=threading.Event)
    """Rank 0 stops when any pod was told to."""
    clock: Callable[[], float] = time.monotonic
    _last: float = field(default=0.0, init=False)

    def call(self, command: RankCommand, own: Callable[[], T]) -> T:
        """Have every rank carry out an order, this one (rank 0) by ``own``; returns its result.

        Raises:
            TrainingFailedError: another rank failed or is gone.
            RLError: what ``own`` raised.
        """
        if self.world.size == 1:
            return own()
        with rank_loss_as_failure():
            self._send(command)
            failure: RLError | None = None
            try:
                result = own()
            except RLError as error:
                failure = error
            reports = self.world.gather(Report(terminated=self.terminated.is_set()))
        self._last = self.clock()
        if any(report.terminated for report in reports):
            self.terminated.set()
        if failure is not None:
            raise failure
        for rank, report in enumerate(reports):
            if report.error:
                raise TrainingFailedError(
                    reason="RankFailed", message=f"Rank {rank} of the trainer: {report.error}"
                )
        return result

    def check(self) -> None:
        """See that the others are there, now and then; raises what ``call`` raises."""
        if self.world.size > 1 and self.clock() - self._last >= PING_SECONDS:
            self.call(Ping(), lambda: None)

    def end(self, code: int) -> None:
        """Have the others exit with ``code``; those that are gone already do not matter."""
        if self.world.size > 1:
            with contextlib.suppress(RuntimeError):
                self._send(Exit(code))

    def receive(self) -> RankCommand:
        """The next order of rank 0, for another rank; RuntimeError when rank 0 is gone."""
        received: list[RankCommand | None] = [None]
        dist.broadcast_object_list(received, src=0)
        assert received[0] is not None
        return received[0]

    def report(self, error: str = "") -> None:
        """Tell rank 0 how an order went here."""
        self.world.gather(Report(error=error, terminated=self.terminated.is_set()))

    def _send(self, command: RankCommand) -> None:
        dist.broadcast_object_list([command], src=0)


@contextlib.contextmanager
def rank_loss_as_failure() -> Iterator[None]:
    """Turn what a broken connection raises into TrainingFailedError."""
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
