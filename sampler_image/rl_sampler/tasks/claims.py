"""Claims: the tasks that this sampler works on, kept by leases and lost with them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rl_contracts.documents.task import Cause, Queue, Task
from rl_sampler.engine.shared_stores import OUTAGES, SharedStores

logger = logging.getLogger(__name__)

T = TypeVar("T")

LEASE_SECONDS = 30.0
RENEW_SECONDS = 8.0
CHECK_SECONDS = 1.0


class UnusableMemberError(Exception):
    """A sampled member cannot become data; it is sampled again."""


class LostError(Exception):
    """What acts beside the policy has ended; turns that were saved can be continued elsewhere."""


class ProgramLostError(UnusableMemberError, LostError):
    """Others have ended the program: the server that runs it, or whoever killed its process."""


class EpisodeEndedError(Exception):
    """Work on a claim was ended on purpose; the claim has the reason."""


@dataclass(slots=True, eq=False)
class Claim:
    """A task that this sampler holds."""

    task: Task
    renewed: float
    """Monotonic time of the last renewal of the lease."""
    taken: float = field(default_factory=time.monotonic)
    """Monotonic time of the claim."""
    counted_by_slots: bool = False
    """A request was queued for it: from then on the engine's slots count its sequences."""
    kept: dict[int, int] = field(default_factory=dict)
    """By member: step of the policy that sampled the oldest of its kept tokens. Members whose first
    responses come from one call count as the first of them."""
    _sampling: dict[int, list[int]] = field(default_factory=dict)
    """By member: step of the policy of each request that is being sampled."""
    ended: str = ""
    """Why its work was ended on purpose; empty while it was not."""
    cause: Cause = Cause.FAILED
    """Class of that reason."""
    completing: bool = False
    """Its completion is being written: a renewal that fails now does not mean a lost lease."""
    too_long: set[int] = field(default_factory=set)
    """Members whose program got no response, because its first request was too long."""
    lost: bool = False
    """Another sampler may hold the task: no write for this claim counts."""
    _work: set[asyncio.Task[Any]] = field(default_factory=set)

    @property
    def begun(self) -> dict[int, int]:
        """By member: step of the policy that samples or sampled its oldest tokens."""
        steps = {member: [step] for member, step in self.kept.items()}
        for member, sampling in self._sampling.items():
            steps.setdefault(member, []).extend(sampling)
        return {member: min(each) for member, each in steps.items() if each}

    @property
    def sampling_step(self) -> int | None:
        """Step of the policy that sampled its oldest tokens; None while it has none to train."""
        return min(self.begun.values(), default=None)

    @contextmanager
    def sampling(self, step: int, *, member: int) -> Iterator[None]:
        """Count the tokens of a request until the block ends, and then no more unless kept."""
        steps = self._sampling.setdefault(member, [])
        steps.append(step)
        try:
            yield
        finally:
            steps.remove(step)

    def keep_tokens(self, step: int, *, member: int) -> None:
        """Record that a member's tokens, sampled by the policy of this step, are kept."""
        self.kept[member] = min(step, self.kept.get(member, step))

    def end_sampling(self) -> None:
        """Record that all members have ended: no tokens can become too old any more."""
        self.kept.clear()
        self._sampling.clear()

    def stale_step(self, *, oldest_step: int, withhold: bool) -> int | None:
        """The step of tokens that make the claim's work useless; None while it is of use.

        Args:
            oldest_step: the oldest policy step whose tokens can still be trained.
            withhold: it is of use while one member can be trained, or has not begun.
        """
        if self.task.queue is not Queue.TRAIN:
            return None
        if not withhold:
            oldest = self.sampling_step
            return oldest if oldest is not None and oldest < oldest_step else None
        trained = [self.begun.get(member) for member in range(self.task.group_size)]
        steps = [step for step in trained if step is not None]
        if len(steps) < len(trained) or max(steps) >= oldest_step:
            return None
        return max(steps)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do a part of the claim's work; the work is cancelled when the claim is ended.

        Raises:
            EpisodeEndedError: the claim was ended.
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
        """End the claim's work; a dropped request is aborted by the engine."""
        if not self.ended:
            self.ended, self.cause = reason, cause
        for task in self._work:
            task.cancel()

    def mark_lost(self) -> None:
        """End the claim's work because its lease is lost."""
        self.lost = True
        self.end("the lease was lost")


class ClaimBook:
    """All claims of this process."""

    def __init__(self, shared: SharedStores) -> None:
        self._shared = shared
        self._claims: set[Claim] = set()

    def __len__(self) -> int:
        """Number of claims."""
        return len(self._claims)

    def __iter__(self) -> Iterator[Claim]:
        """Iterate over a copy of the claims."""
        return iter(list(self._claims))

    async def take(self, run: str, *, queue: Queue, owner: str, policy_step: int) -> Claim | None:
        """Claim a task; None when the queue has none. Raises as ``SharedStores.call``.

        Args:
            run: whose task.
            queue: of the task.
            owner: this sampler.
            policy_step: training steps of the policy that it serves now.
        """
        now = time.monotonic()
        task = await self._shared.call(
            self._shared.stores.tasks.claim,
            run,
            queue=queue,
            owner=owner,
            lease_seconds=LEASE_SECONDS,
            policy_step=policy_step,
        )
        if task is None:
            return None
        claim = Claim(task=task, renewed=now)
        self._claims.add(claim)
        return claim

    def drop(self, claim: Claim) -> None:
        """Forget a claim whose work is over; its lease is no longer renewed."""
        self._claims.discard(claim)

    def end_stale(self, *, oldest_step: int, withhold: bool = False) -> None:
        """End training claims that can no longer be trained; arguments as ``Claim.stale_step``."""
        for claim in self:
            step = claim.stale_step(oldest_step=oldest_step, withhold=withhold)
            if step is not None:
                claim.end(
                    f"its oldest tokens are of step {step}, but only tokens of step {oldest_step} "
                    "and later can be trained",
                    Cause.EXPIRED,
                )

    async def keep_leases(self) -> None:
        """Renew leases until cancelled; a claim whose lease cannot be renewed is marked lost.

        All are renewed when one is due, so that they are due together from then on.
        """
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            due = time.monotonic() - RENEW_SECONDS
            if any(claim.renewed <= due for claim in self):
                # One that was completed meanwhile would cost a command for each of them.
                await self._renew(
                    [claim for claim in self if claim.renewed <= due or not claim.completing]
                )

    async def _renew(self, claims: Sequence[Claim]) -> None:
        now = time.monotonic()
        try:
            renewed = await self._shared.call(
                self._shared.stores.tasks.renew_all,
                [claim.task for claim in claims],
                lease_seconds=LEASE_SECONDS,
            )
        except OUTAGES:
            return  # reported by SharedStores; the store decides once it is back
        for claim in claims:
            if claim.task.id in renewed:
                claim.renewed = now
            elif claim in self._claims and not claim.completing:
                logger.warning("lost the lease of %s", claim.task.id)
                claim.mark_lost()


async def complete(shared: SharedStores, claim: Claim, rollouts: Sequence[str]) -> bool:
    """Complete a claim's task with these rollouts, through outages.

    Only the store knows the outcome: a renewal fails in the same way for a completed task and for
    one whose lease was taken by another sampler.

    Returns:
        False when the claim no longer holds the task.
    """
    claim.completing = True
    write = shared.stores.tasks.complete
    return await shared.retry(
        lambda: write(claim.task, rollouts=rollouts),
        wanted=lambda: not claim.lost,
        otherwise=False,
    )
