"""What a scorer sees, and how it fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rl_contracts.errors import RLError


class ScoringError(RLError):
    """A scorer could not judge: an infrastructure error, so the member is sampled again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One response to be judged."""

    text: str
    """Decoded, without the token that ended the turn."""
    answer: str | None
    """What the answer schema takes from it; None where there is no answer."""
    reference: str
    """The dataset's answer."""
    messages: Sequence[Mapping[str, str]] = ()
    """``role`` and ``content`` of all of the conversation as it stood last, this text among it."""
    tokens: int = 0
    """Generated for this text, the one that ended the turn among them."""
    most_tokens: int = 1
    """The manifest's ``maxTokensPerTurn``."""
