"""The claimer: claims as many tasks as this sampler can work on, evaluation first."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence

from rl_contracts.documents.task import Cause, Queue, Task
from rl_contracts.staleness import oldest_trainable_step
from rl_contracts.turns import Turn
from rl_sampler.completions.outages import Outages
from rl_sampler.engine.assignment import Assignment
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.serving import Serving
from rl_sampler.engine.shared_stores import OUTAGES, SharedStores
from rl_sampler.engine.slots import Slots
from rl_sampler.episodes.episode import EpisodeRunner
from rl_sampler.tasks.claims import LEASE_SECONDS, Claim, ClaimBook

logger = logging.getLogger(__name__)

FIRST_IDLE_SECONDS = 0.05
MAX_IDLE_SECONDS = 10.0
"""Empty queues are polled so seldom: the run document announces new tasks. Only a task that another
sampler handed back is not announced."""
EVALUATION_SECONDS = 5.0
"""How long an empty evaluation queue is not polled again unless tasks are announced."""
CLOSED_SECONDS = 1.0
HAND_BACK_SECONDS = 3.0
"""How long a stopping sampler tries to hand a claim back; then its lease runs out."""
STOPPED = "the sampler was stopped"


def open_queues(serving: Serving, *, max_staleness: int) -> list[Queue]:
    """Queues whose tasks could become data now, in the order to poll them.

    Args:
        serving: what is served, and the run as it was last read.
        max_staleness: the manifest's ``algorithm.offPolicy.maxStaleness``.
    """
    run, policy = serving.run, serving.policy
    if run is None or run.outcome is not None or policy is None or serving.engine is None:
        return []
    if policy == serving.disowned or serving.turn is not Turn.SAMPLE:
        return []
    queues = []
    if run.policy == policy:
        queues.append(Queue.EVALUATION)
    if policy.step >= oldest_trainable_step(run.step, max_staleness=max_staleness):
        queues.append(Queue.TRAIN)
    return queues


def _announcement(serving: Serving) -> object:
    """Changes whenever a trainer has put tasks into a queue."""
    run = serving.run
    return None if run is None else (run.epoch, run.handed_out, run.policy)


def has_room(claims: Iterable[Claim], *, demand: int, slots: int) -> bool:
    """Whether another group may be claimed: the engine has free slots, or no group waits for them.

    At most one group waits, so that freed slots are used at once; more waiting groups would be
    kept from other samplers.

    Args:
        claims: those that are worked on.
        demand: sequences that the engine decodes or that wait for it.
        slots: sequences that the engine decodes concurrently.
    """
    not_queued = sum(claim.task.num_members for claim in claims if not claim.counted_by_slots)
    return demand + not_queued <= slots


class Claimer:
    """Claims tasks and starts an episode for each."""

    def __init__(
        self,
        assignment: Assignment,
        *,
        shared: SharedStores,
        book: ClaimBook,
        runner: EpisodeRunner,
        serving: Serving,
        slots: Slots,
        counters: Counters,
        outages: Outages,
    ) -> None:
        self._outages, self._slots = outages, slots
        self._assignment, self._shared, self._book = assignment, shared, book
        self._runner, self._serving, self._counters = runner, serving, counters
        self._stopping = False
        self._freed = asyncio.Event()
        slots.when_freed = self._freed.set
        self._idle_seconds = FIRST_IDLE_SECONDS
        self._evaluation_from = 0.0
        self._announced: object = None
        """What the run announced when the evaluation queue was last empty."""
        self._episodes: dict[asyncio.Task[None], Claim] = {}

    async def run(self, group: asyncio.TaskGroup) -> None:
        """Claim until ``stop`` is called; episodes then go on in ``group``."""
        await self._release_leftovers()
        seen = self._serving.changes
        while not self._stopping:
            if self._is_full():
                self._freed.clear()
                await self._freed.wait()
                continue
            if self._serving.changes != seen:
                self._idle_seconds = FIRST_IDLE_SECONDS
            seen, queues = self._serving.changes, self._queues()
            if not queues:
                await self._serving.wait_change(since=seen, seconds=CLOSED_SECONDS)
                continue
            claim = await self._take(queues)
            if claim is not None:
                self._idle_seconds = FIRST_IDLE_SECONDS
                self._start_episode(claim, group)
                continue
            # The run watch ends this wait when tasks were handed out.
            await self._serving.wait_change(since=seen, seconds=self._idle_seconds)
            self._idle_seconds = min(2 * self._idle_seconds, MAX_IDLE_SECONDS)

    def stop(self) -> None:
        """Claim nothing more."""
        self._stopping = True
        self._freed.set()
        self._serving.changed()

    async def drain(self, *, seconds: float) -> None:
        """Let running episodes finish for so many seconds, then hand the others back."""
        await asyncio.gather(self._finish(seconds=seconds), self._return_unanswered())
        unfinished = dict(self._episodes)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        await asyncio.gather(
            *(
                self._runner.hand_back(
                    claim,
                    STOPPED,
                    cause=Cause.STOPPED,
                    seconds=HAND_BACK_SECONDS,
                )
                for claim in unfinished.values()
            )
        )

    async def _finish(self, *, seconds: float) -> None:
        if self._episodes:
            await asyncio.wait(list(self._episodes), timeout=seconds)

    def end_stale(self) -> None:
        """End episodes whose oldest tokens can no longer be trained."""
        run = self._serving.run
        if run is not None:
            oldest = oldest_trainable_step(run.step, max_staleness=self._max_staleness)
            withhold = self._assignment.spec.algorithm.off_policy.withholds
            self._book.end_stale(oldest_step=oldest, withhold=withhold)

    def _is_full(self) -> bool:
        running, info = self._episodes, self._serving.engine
        if len(running) >= self._assignment.template.max_concurrent_groups:
            return True
        return info is not None and not has_room(
            running.values(), demand=self._slots.demand, slots=info.max_running_requests
        )

    def _queues(self) -> list[Queue]:
        if self._outages:
            return []  # episodes that cannot be scored now would only become stale
        queues = open_queues(self._serving, max_staleness=self._max_staleness)
        known = self._announced == _announcement(self._serving)
        if known and time.monotonic() < self._evaluation_from and Queue.TRAIN in queues:
            return [Queue.TRAIN]
        return queues

    async def _take(self, queues: Sequence[Queue]) -> Claim | None:
        announced, policy = _announcement(self._serving), self._serving.policy
        for queue in queues:
            try:
                claim = await self._book.take(
                    self._assignment.run,
                    queue=queue,
                    owner=self._assignment.sampler,
                    policy_step=policy.step if policy else -1,
                )
            except OUTAGES:
                await asyncio.sleep(CLOSED_SECONDS)
                return None
            if claim is not None:
                return claim
            if queue is Queue.EVALUATION:
                self._evaluation_from = time.monotonic() + EVALUATION_SECONDS
                self._announced = announced
        return None

    def _start_episode(self, claim: Claim, group: asyncio.TaskGroup) -> None:
        episode = group.create_task(self._runner.run(claim), name=f"episode {claim.task.id}")
        self._episodes[episode] = claim
        self._counters.groups_running = len(self._episodes)
        episode.add_done_callback(self._on_episode_end)

    def _on_episode_end(self, episode: asyncio.Task[None]) -> None:
        self._book.drop(self._episodes.pop(episode))
        self._counters.groups_running = len(self._episodes)
        self._freed.set()
        self._serving.changed()  # its task may be in the queue again

    async def _release_leftovers(self) -> None:
        """Hand back the claims of an earlier process of this pod."""
        tasks, run = self._shared.stores.tasks, self._assignment.run

        def release() -> int:
            released = 0
            for task in tasks.claimed(run, owner=self._assignment.sampler):
                released += tasks.hand_back(task, reason="the agent was restarted")
            return released

        released = await self._shared.retry(release, wanted=lambda: not self._stopping, otherwise=0)
        if released:
            logger.info("handed back %d claims of an earlier process", released)

    async def _return_unanswered(self) -> None:
        """Hand back tasks claimed for this sampler by a request whose answer was lost."""
        tasks, until = self._shared.stores.tasks, time.monotonic() + HAND_BACK_SECONDS
        run, owner = self._assignment.run, self._assignment.sampler
        left: list[Task] = []

        def release() -> None:
            for queue in tasks.unanswered(run, owner=owner):
                task = tasks.recover(run, queue=queue, owner=owner, lease_seconds=LEASE_SECONDS)
                left.extend([] if task is None else [task])
            while left:
                tasks.hand_back(left[-1], reason=STOPPED, cause=Cause.STOPPED)
                left.pop()

        if tasks.unanswered(run, owner=owner):
            await self._shared.retry(
                release, wanted=lambda: time.monotonic() < until, otherwise=None
            )

    @property
    def _max_staleness(self) -> int:
        return self._assignment.spec.algorithm.off_policy.max_staleness
