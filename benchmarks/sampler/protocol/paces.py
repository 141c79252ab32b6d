"""What stands in for engine, download and sampling: a pace."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from rl_contracts.documents.arrays import pack_float32, pack_int32
from rl_contracts.documents.rollout import Rollout, VersionSpan
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.documents.task import Task
from rl_sampler.engine.serving import Serving
from rl_sampler.engine.weights import Staged
from rl_sampler.episodes.episode import EpisodeRunner
from rl_sampler.policy.relay.peers import PARENTS, parents
from rl_sampler.policy.relay.wiring import relay_of
from rl_sampler.tasks.claims import Claim
from rl_sampler.wiring import Agent
from tests.samples.documents import a_rollout

GROUP_SECONDS = 24.0
"""From a claim to its data; eight groups of four at a time: one every three seconds."""
SLOTS, GROUP_SIZE = 32, 4
TOKENS = 512


class PacedEngine:
    """Takes any policy at once."""

    def __init__(self) -> None:
        self._label = ""

    async def pause(self, mode: str) -> None:
        """Do nothing."""

    async def resume(self) -> None:
        """Do nothing."""

    async def load(self, folder: Path, *, label: str, seconds: float, empty_cache: bool) -> None:
        """Note the label."""
        self._label = label

    async def weight_version(self) -> str:
        """The label of the last load."""
        return self._label


@dataclass
class PacedStager:
    """Reads the registry of peers as a stager does, and downloads nothing."""

    agent: Agent

    def stage(self, pointer: PolicyPointer, **_: Any) -> Staged:
        """As ``Stager.stage``."""
        relay = relay_of(self.agent.assignment, self.agent.shared.stores)
        if relay is not None:
            above = parents(relay._key, relay._registry, level=1)
            assert len(above) <= PARENTS
            relay._registry.has(self.agent.assignment.sampler)
        return Staged(pointer=pointer, folder=self.agent.weights.of_policy(pointer))


@dataclass
class PacedRollouts:
    """Makes rollouts after a while, as ``RolloutRunner`` does with an engine."""

    serving: Serving

    def check_scorers(self, task: Task) -> None:
        """Accept all."""

    def oldest_step(self) -> int:
        """Accept all."""
        return 0

    async def run_together(self, group: Any, missing: list[int]) -> list[Rollout]:
        """Rollouts of the policy that is served."""
        claim = cast(Claim, group.claim)
        await claim.run(asyncio.sleep(GROUP_SECONDS))
        policy = self.serving.policy
        assert policy is not None
        span = VersionSpan(version=policy.version, step=policy.step, start=2, end=TOKENS)
        return [
            a_rollout(
                claim.task,
                member,
                tokens=pack_int32([7] * TOKENS),
                mask=b"\0\0" + b"\1" * (TOKENS - 2),
                logprobs=pack_float32([-1.0] * TOKENS),
                spans=[span],
            )
            for member in missing
        ]


class PacedRunner(EpisodeRunner):
    """Writes and completes tasks as the real runner does, and samples nothing."""

    async def _group(self, claim: Claim) -> Any:
        return SimpleNamespace(claim=claim)
