"""Claims: which tasks this sampler works on, kept by leases, lost when a lease is."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rl_contracts.documents.task import Cause, Queue, Task
from rl_sampler.engine.shared_stores import OUTAGES, SharedState

logger = logging.getLogger(__name__)

T = TypeVar("T")

LEASE_SECONDS = 30.0
RENEW_SECONDS = 8.0
CHECK_SECONDS = 1.0


class EpisodeEndedError(Exception):
    """The engine's work on a claim was ended on purpose; the claim says why."""


@dataclass(slots=True, eq=False)
class Claim:
    """One task that is ours for the moment."""

    task: Task
    renewed: float
    """Monotonic time of the last renewal."""
    taken: float = field(default_factory=time.monotonic)
    """Monotonic time of the claim."""
    asked: bool = False
    """The engine was asked for it: from then on it counts by the slots that it takes."""
    begun_step: int | None = None
    """Step of the policy that its first tokens are of; None while none are needed."""
    ended: str = ""
    """Why its work was ended on purpose."""
    cause: Cause = Cause.FAILED
    """The same as a class."""
    kept: bool = False
    """Tokens were sampled for it that stay."""
    ends: bool = False
    """Its completion is being written: that its lease is over is no news then."""
    lost: bool = False
    """Somebody else may have it: nothing that we write for it counts."""
    _work: set[asyncio.Task[Any]] = field(default_factory=set)

    def begin(self, step: int) -> None:
        """Tokens are sampled now; those of the first call are the oldest."""
        if self.begun_step is None:
            self.begun_step = step

    def drop(self) -> None:
        """What was sampled last is thrown away; where it was all, nothing is begun any more."""
        if not self.kept:
            self.begun_step = None

    async def attend(self, work: Coroutine[Any, Any, T]) -> T:
        """Do a part of its work, which ends when the claim is ended.

        Raises:
            EpisodeEndedError: it was.
        """
        if self.ended:
            work.close()
            raise EpisodeEndedError(self.ended)
        task = asyncio.create_task(work)
        self._work.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if self.ended and task.cancelled():
                raise EpisodeEndedError(self.ended) from None
            raise
        finally:
            self._work.discard(task)

    def end(self, reason: str, cause: Cause = Cause.FAILED) -> None:
        """End work on it; dropping a request aborts it in the engine."""
        if not self.ended:
            self.ended, self.cause = reason, cause
        for task in self._work:
            task.cancel()

    def lose(self) -> None:
        """Its lease is gone."""
        self.lost = True
        self.end("the lease was lost")


class ClaimBook:
    """All claims of this process."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._claims: set[Claim] = set()

    def __len__(self) -> int:
        """Claims being worked on."""
        return len(self._claims)

    def __iter__(self) -> Iterator[Claim]:
        """The claims, as they are now."""
        return iter(list(self._claims))

    async def take(self, run: str, *, queue: Queue, owner: str) -> Claim | None:
        """Claim a task; None when there is none. Raises as SharedState.ask."""
        now = time.monotonic()
        task = await self._shared.ask(
            self._shared.stores.tasks.claim,
            run,
            queue=queue,
            owner=owner,
            lease_seconds=LEASE_SECONDS,
        )
        if task is None:
            return None
        claim = Claim(task=task, renewed=now)
        self._claims.add(claim)
        return claim

    def drop(self, claim: Claim) -> None:
        """Work on a claim is over."""
        self._claims.discard(claim)

    def end_stale(self, *, oldest_step: int) -> None:
        """End training episodes whose first tokens can no longer be trained."""
        for claim in self:
            begun = claim.begun_step
            if claim.task.queue is Queue.TRAIN and begun is not None and begun < oldest_step:
                claim.end(
                    f"its oldest tokens are of step {begun}, only {oldest_step} and later train",
                    Cause.EXPIRED,
                )

    async def keep_leases(self) -> None:
        """Renew leases until cancelled; a claim that is not ours any more is lost."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            due = time.monotonic() - RENEW_SECONDS
            await asyncio.gather(*(self._renew(one) for one in self if one.renewed <= due))

    async def _renew(self, claim: Claim) -> None:
        now = time.monotonic()
        try:
            ours = await self._shared.ask(
                self._shared.stores.tasks.renew, claim.task, lease_seconds=LEASE_SECONDS
            )
        except OUTAGES:
            return  # told by SharedState; the store decides when it is back
        if ours:
            claim.renewed = now
        elif claim in self._claims and not claim.ends:
            logger.warning("lost the lease of %s", claim.task.id)
            claim.lose()


async def complete(shared: SharedState, claim: Claim, rollouts: Sequence[str]) -> bool:
    """Make a claim's rollouts data, through outages; False when it is not ours.

    The store alone knows: a renewal that meets a task which is done says the same as one whose
    lease was taken by somebody else.
    """
    claim.ends = True
    write = shared.stores.tasks.complete
    return await shared.insist(
        lambda: write(claim.task, rollouts=rollouts),
        wanted=lambda: not claim.lost,
        otherwise=False,
    )
