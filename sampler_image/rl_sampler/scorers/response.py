"""The input of scorers, and their error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rl_contracts.errors import RLError


class ScoringError(RLError):
    """A scorer failed: an infrastructure error, so the member is sampled again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A response to score."""

    text: str
    """Decoded, without the token that ended the turn."""
    answer: str | None
    """The answer that the answer schema reads in ``text``; None where there is none."""
    reference: str
    """The answer of the dataset's record; empty where it has none."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the record that ``columns.fields`` names; only those that the record has."""
    messages: Sequence[Mapping[str, str]] = ()
    """``role`` and ``content`` of all messages of the last context, with this response."""
    opened: Sequence[int] = ()
    """Indexes of the messages that begin inside of ``<think>``; empty in the container ``code``."""
    tokens: int = 0
    """Number of tokens generated for this text, with the token that ended the turn."""
    max_tokens: int = 1
    """The manifest's ``maxTokensPerTurn``."""
    cut_off: bool = False
    """The response reached its token limit, so its end is missing."""
    thinking: bool = False
    """The prompt ended with ``<think>``, so the response begins inside of it."""
    earned: float | None = None
    """The sum of the rewards of the environment's steps; None where there is no environment."""
    submitted: str | None = None
    """The answer that the policy gave a final tool; None where it is read in ``text``."""
    reported: float | None = None
    """The reward in [0, 1] that the program of the episode posted; None where it posted none."""
