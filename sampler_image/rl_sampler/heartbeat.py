"""The heartbeat: what the operator and the trainer know of this sampler."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

from rl_contracts.documents.sampler import Sampler, SamplerState
from rl_contracts.errors import Refusal
from rl_sampler.completions.outages import Outages
from rl_sampler.engine.assignment import Assignment
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving
from rl_sampler.engine.shared_stores import OUTAGES, SharedState
from rl_sampler.engine.tally import Tally
from rl_sampler.policy.relay.pool import relay_url

BEAT_SECONDS = 2.0


class Heartbeat:
    """Registers the sampler and keeps its document fresh."""

    def __init__(
        self,
        assignment: Assignment,
        *,
        shared: SharedState,
        serving: Serving,
        tally: Tally,
        problems: Problems,
        outages: Outages,
        scorers: Sequence[str],
        refusals: Sequence[Refusal] = (),
    ) -> None:
        self._outages = outages
        self._known, self._refusals = list(scorers), list(refusals)
        self._assignment, self._shared = assignment, shared
        self._serving, self._tally, self._problems = serving, tally, problems
        self._registered_at: float | None = None
        self._counted = (time.monotonic(), 0)
        self._draining = self._leaving = False
        self._hurry = asyncio.Event()

    async def run(self) -> None:
        """Beat until told to leave; an outage skips beats."""
        while not self._leaving:
            started = time.monotonic()
            await self._beat(self._state())
            self._hurry.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.1, started + BEAT_SECONDS - time.monotonic())):
                    await self._hurry.wait()
        await self._beat(SamplerState.GONE)

    def drain(self) -> None:
        """Tell that nothing more is claimed."""
        self._draining = True
        self._hurry.set()

    def leave(self) -> None:
        """Tell that this sampler has ended by draining, and end."""
        self._leaving = True
        self._hurry.set()

    def _state(self) -> SamplerState:
        if self._draining:
            return SamplerState.DRAINING
        if self._serving.engine is None:
            return SamplerState.STARTING
        return SamplerState.READY if self._serving.policy else SamplerState.LOADING

    async def _beat(self, state: SamplerState) -> None:
        with contextlib.suppress(*OUTAGES):  # told by SharedState
            now = await self._shared.ask(self._shared.stores.mongo.now)
            if self._registered_at is None:
                self._registered_at = now
            document = self._document(state, now=now, registered_at=self._registered_at)
            await self._shared.ask(self._shared.stores.samplers.put, [document])

    def _document(self, state: SamplerState, *, now: float, registered_at: float) -> Sampler:
        serving, tally, env = self._serving, self._tally, self._assignment.env
        return Sampler(
            id=self._assignment.sampler,
            run=self._assignment.run,
            pool=env.pool,
            pod=env.pod_name,
            state=state,
            version=serving.policy.version if serving.policy else 0,
            step=serving.policy.step if serving.policy else 0,
            staging_version=serving.staging.version if serving.staging else 0,
            engine=f"sglang {serving.engine.version}" if serving.engine else "",
            relay_url=relay_url(env),
            scorers=self._known,
            refusals=self._refusals,
            unavailable=self._outages.known,
            registered_at=registered_at,
            heartbeat_at=now,
            drained=state is SamplerState.GONE,
            groups_running=tally.groups_running,
            groups_done=tally.groups_done,
            groups_failed=tally.groups_failed,
            tokens_generated=tally.tokens_generated,
            tokens_per_second=self._speed(),
            updates=tally.updates,
            update_failures=tally.update_failures,
            pause_seconds_last=tally.pause_seconds_last,
            last_error=str(self._problems),
        )

    def _speed(self) -> float:
        """Tokens per second since the beat before."""
        now, tokens = time.monotonic(), self._tally.tokens_generated
        before, counted = self._counted
        self._counted = (now, tokens)
        return (tokens - counted) / max(now - before, 1e-3)
