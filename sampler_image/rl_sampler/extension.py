"""What scorers, tools and agents of one's own import; docs/guides/extending.md tells how they look.

A scorer is called with a Response and returns a number in [0, 1]; a tool is a function whose
arguments the policy chooses; an agent is called with a Member and returns why the episode ended.
Scorers and tools may be plain or ``async`` functions, an agent is ``async``.
"""

from __future__ import annotations

from rl_contracts.documents.rollout import StopReason, Turn
from rl_sampler.agents.context import show
from rl_sampler.agents.member import Member
from rl_sampler.scorers.response import Response, ScoringError
from rl_sampler.tools.tool import ToolDownError, ToolError

__all__ = [
    "Member",
    "Response",
    "ScoringError",
    "StopReason",
    "ToolDownError",
    "ToolError",
    "Turn",
    "show",
]
