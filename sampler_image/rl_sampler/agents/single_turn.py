"""One response is the whole episode."""

from __future__ import annotations

from rl_contracts.documents.rollout import StopReason
from rl_sampler.agents.member import Member


async def single_turn(member: Member) -> StopReason:
    """The first response stands."""
    return member.turns[-1].stop_reason
