"""Follows the published policy: stages it while the engine serves, then loads it.

The engine keeps the previous policy where that fails.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from rl_contracts.disk import DiskFullError
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.errors import (
    AccessDeniedError,
    CommandRefusedError,
    IntegrityError,
    ObjectMissingError,
    StoreUnavailableError,
)
from rl_contracts.spec.storage import WeightSync
from rl_contracts.turns import Turn
from rl_sampler.engine.client import Engine
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.errors import EngineError
from rl_sampler.engine.health import EngineHealth
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving, label_of
from rl_sampler.engine.weights import Staged, WeightsFolder
from rl_sampler.policy.adapters import Adapters
from rl_sampler.policy.backoff import Backoff
from rl_sampler.policy.commit import RolledBackError, WeightsUnknownError, commit
from rl_sampler.policy.fetch import StagingCancelledError
from rl_sampler.policy.stage import Stager

logger = logging.getLogger(__name__)

TICK_SECONDS = 1.0
SAME_NUMBER = (
    "is the version of another policy that this engine has served, from before a store was restored"
    " from a backup; the next version is loaded. If none is published, delete this pod"
)
BUCKET_ERRORS = (AccessDeniedError, CommandRefusedError, StoreUnavailableError)
STAGING_ERRORS = (
    AccessDeniedError,
    CommandRefusedError,
    DiskFullError,
    IntegrityError,
    ObjectMissingError,
    StagingCancelledError,
    StoreUnavailableError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingJob:
    """A policy that is being staged in a thread."""

    pointer: PolicyPointer
    task: asyncio.Task[Staged]
    cancelled: threading.Event
    """Tells the thread that the result is no longer wanted."""
    deadline: float
    """Monotonic time."""


class PolicyFollower:
    """Keeps the engine at the newest published policy."""

    def __init__(
        self,
        *,
        engine: Engine,
        health: EngineHealth,
        stager: Stager,
        weights: WeightsFolder,
        serving: Serving,
        counters: Counters,
        problems: Problems,
        sync: WeightSync,
    ) -> None:
        """Make a follower; ``run`` starts it.

        Args:
            engine: loads the policies.
            health: gets the request to restart an engine whose weights are unknown.
            stager: downloads and verifies policies.
            weights: the folder of staged policies.
            serving: kept up to date.
            counters: count updates.
            problems: records failures.
            sync: the manifest's ``weightSync``.
        """
        self._engine, self._health, self._stager = engine, health, stager
        self._weights, self._serving = weights, serving
        self._counters, self._problems = counters, problems
        self._timeout, self._pause = sync.timeout_seconds, sync.pause
        self._adapters = Adapters(engine) if serving.adapters else None
        self._backoff = Backoff()
        self._served: Staged | None = None
        self._previous: Path | None = None
        self._job: StagingJob | None = None

    async def run(self) -> None:
        """Follow until cancelled."""
        await self._restore()
        try:
            while True:
                seen = self._serving.changes
                await self._step()
                await self._serving.wait_change(since=seen, seconds=TICK_SECONDS)
        finally:
            if self._job is not None:
                self._job.cancelled.set()

    async def _restore(self) -> None:
        """Use the policy that an earlier process or the init container staged, if it is intact."""
        pointer = self._weights.linked_policy()
        if pointer is None:
            return
        try:
            self._served = await asyncio.to_thread(self._stager.restage, pointer)
        except IntegrityError as error:
            self._problems.note("policy", str(error))
            self._weights.unlink_policy()

    async def _step(self) -> None:
        self._begin_staging()
        staged = self._collect_staged()
        if not self._may_load:
            return
        if staged is not None and self._is_wanted(staged):
            await self._load(staged)
        elif (
            self._serving.policy is None
            and self._served is not None
            and self._is_due(self._served)
            and self._is_wanted(self._served)
        ):
            await self._load(self._served)
        if self._adapters is not None and self._serving.policy is not None:
            await self._unload()

    @property
    def _may_load(self) -> bool:
        """Whether the engine is up and has the devices, with its memory."""
        serving = self._serving
        return (
            serving.engine is not None
            and serving.turn is Turn.SAMPLE
            and not self._health.must_restart
        )

    def _is_wanted(self, staged: Staged) -> bool:
        """Whether a policy may be loaded now: between two turns only what the trainer waits for."""
        serving = self._serving
        return not serving.between_turns or staged.pointer.version >= serving.wanted

    def _is_due(self, staged: Staged) -> bool:
        return self._backoff.due(staged.pointer.version, now=time.monotonic())

    def _begin_staging(self) -> None:
        wanted, now = self._serving.published, time.monotonic()
        if (
            wanted is None
            or self._job is not None
            or not self._backoff.due(wanted.version, now=now)
        ):
            return
        if self._served is not None and self._served.pointer == wanted:
            return
        keep = [
            folder for folder in (self._served and self._served.folder, self._previous) if folder
        ]
        cancelled = threading.Event()
        stage = asyncio.to_thread(self._stager.stage, wanted, keep=keep, cancelled=cancelled)
        task = asyncio.create_task(stage, name=f"stage version {wanted.version}")
        task.add_done_callback(lambda _: self._serving.changed())
        self._job = StagingJob(
            pointer=wanted, task=task, cancelled=cancelled, deadline=now + self._timeout
        )
        self._serving.staging = wanted

    def _collect_staged(self) -> Staged | None:
        """The staged policy once it is ready and the engine is up; a failure starts a backoff."""
        job = self._job
        if job is None:
            return None
        doing = f"staging version {job.pointer.version}"
        if not job.task.done():
            if time.monotonic() > job.deadline:
                self._end_job(job)
                limit = f"weightSync.timeoutSeconds = {self._timeout:.0f}"
                self._failed(job.pointer, f"{doing} took longer than {limit}")
            return None
        if not self._may_load and job.task.exception() is None:
            return None
        self._end_job(job)
        try:
            staged = job.task.result()
        except STAGING_ERRORS as error:
            if isinstance(error, BUCKET_ERRORS):
                self._problems.note("bucket", str(error))
            self._failed(job.pointer, f"{doing}: {error}")
            return None
        self._problems.clear("bucket")
        return staged

    def _end_job(self, job: StagingJob) -> None:
        job.cancelled.set()
        self._job, self._serving.staging = None, None

    async def _load(self, new: Staged) -> None:
        label = label_of(new.pointer)
        if self._serving.known.get(label, new.pointer) != new.pointer:
            # Running requests may still get tokens under this label: it would name two policies.
            self._failed(new.pointer, f"{label} {SAME_NUMBER}")
        elif self._adapters is None:
            await self._commit(new)
        else:
            await self._load_adapter(self._adapters, new)

    async def _load_adapter(self, adapters: Adapters, new: Staged) -> None:
        """Load an adapter beside the served adapter, which stays served where the load fails."""
        try:
            await adapters.load(new, seconds=self._timeout)
        except EngineError as error:
            self._failed(new.pointer, f"loading version {new.pointer.version}: {error}")
            return
        self._serving.known[label_of(new.pointer)] = new.pointer
        self._serving.commits += 1
        self._loaded(new, 0.0)
        self._serving.changed()

    async def _unload(self) -> None:
        """Unload adapters that are neither served nor used by a request."""
        assert self._adapters is not None
        assert self._serving.policy is not None
        wanted = {label_of(self._serving.policy), *self._serving.in_use}
        try:
            await self._adapters.unload(but=wanted)
        except EngineError as error:
            # The adapter only takes up memory; the next step tries again.
            self._problems.note("adapters", str(error))
        else:
            self._problems.clear("adapters")

    async def _commit(self, new: Staged) -> None:
        serving, old = self._serving, self._served if self._serving.policy else None
        again = old if old != new else None
        serving.committing = True
        serving.commits += 1
        # From here until the check the engine may sample under either label.
        serving.known[label_of(new.pointer)] = new.pointer
        try:
            paused = await commit(
                self._engine, new, old=again, seconds=self._timeout, pause=self._pause
            )
        except RolledBackError as error:
            self._failed(new.pointer, f"loading version {new.pointer.version}: {error}")
        except WeightsUnknownError as error:
            serving.policy = None
            self._health.request_restart(str(error))
            self._failed(new.pointer, f"loading version {new.pointer.version}: {error}")
        except EngineError as error:
            serving.policy = None
            self._failed(new.pointer, f"loading version {new.pointer.version}: {error}")
        else:
            self._loaded(new, paused)
        finally:
            serving.committing = False
            serving.changed()

    def _loaded(self, new: Staged, paused: float) -> None:
        if self._served is not None and self._served.folder != new.folder:
            self._previous = self._served.folder
        self._served = new
        self._serving.policy, self._serving.resting = new.pointer, None
        self._serving.between_turns = False
        if self._pause == "InPlace":
            self._serving.cache_key = f"{label_of(new.pointer)}.{self._serving.commits}"
        self._weights.link_policy(new.folder)
        self._health.clear_restart_request()
        self._backoff.succeeded(new.pointer.version)
        self._counters.updated(
            pause_seconds=paused, staged_seconds=new.seconds, size_bytes=new.size_bytes
        )
        self._problems.clear("policy")
        logger.info(
            "serving version %d of %.2f GB, staged in %.2f s, paused for %.0f ms",
            new.pointer.version,
            new.size_bytes / 1e9,
            new.seconds,
            1000 * paused,
        )

    def _failed(self, pointer: PolicyPointer, message: str) -> None:
        self._counters.update_failures += 1
        self._backoff.failed(pointer.version, now=time.monotonic())
        self._problems.note("policy", message)
