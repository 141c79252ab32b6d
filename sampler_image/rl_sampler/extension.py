"""The types that a user's scorers, tools and agents import; see docs/guides/extending.md.

A scorer takes a Response and returns a number in [0, 1]. A tool is a function whose arguments the
policy chooses. An agent takes a Member and returns why the episode ended. Scorers and tools may be
plain or ``async`` functions; agents must be ``async``. All of them run in the container ``code``.
"""

from __future__ import annotations

from rl_contracts.documents.rollout import StopReason, Turn
from rl_sampler.scorers.response import Response, ScoringError
from rl_sampler.tools.tool import ToolDownError, ToolError
from rl_sampler.user_code.member import Member, show

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
