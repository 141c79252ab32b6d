"""The heartbeat: registers this sampler, for the operator and the trainer."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

from rl_contracts.documents.sampler import Sampler, SamplerState
from rl_contracts.errors import Refusal
from rl_sampler.completions.outages import Outages
from rl_sampler.engine.assignment import Assignment
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving
from rl_sampler.engine.shared_stores import OUTAGES, SharedStores
from rl_sampler.policy.relay.peers import relay_key, relay_url

BEAT_SECONDS, IDLE_BEAT_SECONDS = 2.0, 4.0
"""Between two writes of a document that changes, and of one that does not."""
BEATING = {"heartbeat_at", "tokens_per_second"}
"""Fields that change without news."""


class Heartbeat:
    """Registers the sampler and keeps its document fresh."""

    def __init__(
        self,
        assignment: Assignment,
        *,
        shared: SharedStores,
        serving: Serving,
        counters: Counters,
        problems: Problems,
        outages: Outages,
        scorers: Sequence[str],
        refusals: Sequence[Refusal] = (),
    ) -> None:
        self._outages = outages
        self._scorers, self._refusals = list(scorers), list(refusals)
        self._assignment, self._shared = assignment, shared
        self._serving, self._counters, self._problems = serving, counters, problems
        self._registered_at: float | None = None
        self._counted = (time.monotonic(), 0)
        self._written: Sampler | None = None
        self._written_at = 0.0
        self._draining = self._leaving = False
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Write the document until ``leave``, seldom while nothing changes.

        An outage skips writes.
        """
        while not self._leaving:
            started = time.monotonic()
            await self._beat(self._state())
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.1, started + BEAT_SECONDS - time.monotonic())):
                    await self._wake.wait()
        await self._beat(SamplerState.GONE)

    def drain(self) -> None:
        """Report from now on that this sampler claims nothing more."""
        self._draining = True
        self._wake.set()

    def leave(self) -> None:
        """Report that this sampler has drained, and end the heartbeat."""
        self._leaving = True
        self._wake.set()

    def _state(self) -> SamplerState:
        if self._draining:
            return SamplerState.DRAINING
        if self._serving.engine is None:
            return SamplerState.STARTING
        return SamplerState.READY if self._serving.shown else SamplerState.LOADING

    async def _beat(self, state: SamplerState) -> None:
        with contextlib.suppress(*OUTAGES):  # reported by SharedStores
            now = await self._shared.call(self._shared.stores.mongo.now)
            if self._registered_at is None:
                self._registered_at = now
            document = self._document(state, now=now, registered_at=self._registered_at)
            if self._is_news(document):
                await self._shared.call(self._shared.stores.samplers.put, [document])
                self._written, self._written_at = document, time.monotonic()

    def _is_news(self, document: Sampler) -> bool:
        """Whether to write: something changed, or the written heartbeat gets old."""
        written = self._written
        if written is None:
            return True
        # By the own clock: the store's may be set back. The next beat is BEAT_SECONDS later.
        old = time.monotonic() - self._written_at > IDLE_BEAT_SECONDS - BEAT_SECONDS / 2
        return old or _lasting(document) != _lasting(written)

    def _document(self, state: SamplerState, *, now: float, registered_at: float) -> Sampler:
        serving, counters, env = self._serving, self._counters, self._assignment.env
        return Sampler(
            id=self._assignment.sampler,
            run=self._assignment.run,
            pool=env.pool,
            pod=env.pod_name,
            state=state,
            version=serving.shown.version if serving.shown else 0,
            step=serving.shown.step if serving.shown else 0,
            staging_version=serving.staging.version if serving.staging else 0,
            engine=f"sglang {serving.engine.version}" if serving.engine else "",
            relay_url=relay_url(env),
            relay_key=relay_key(self._assignment.sampler),
            scorers=self._scorers,
            refusals=self._refusals,
            unavailable=self._outages.known,
            registered_at=registered_at,
            heartbeat_at=now,
            drained=state is SamplerState.GONE,
            groups_running=counters.groups_running,
            groups_done=counters.groups_done,
            groups_failed=counters.groups_failed,
            tokens_generated=counters.tokens_generated,
            tokens_per_second=self._tokens_per_second(),
            updates=counters.updates,
            update_failures=counters.update_failures,
            pause_seconds_last=counters.pause_seconds_last,
            last_error=str(self._problems),
        )

    def _tokens_per_second(self) -> float:
        """Generated tokens per second since the last call."""
        now, tokens = time.monotonic(), self._counters.tokens_generated
        before, counted = self._counted
        self._counted = (now, tokens)
        return (tokens - counted) / max(now - before, 1e-3)


def _lasting(document: Sampler) -> dict[str, object]:
    return document.model_dump(exclude=BEATING)
