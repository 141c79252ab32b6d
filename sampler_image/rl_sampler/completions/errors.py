"""How a language model's server fails."""

from __future__ import annotations

from rl_contracts.errors import RLError


class EndpointDownError(RLError):
    """It does not answer, or lets nobody in: nothing that was asked is at fault.

    The message stays the same from one attempt to the next, for it is shown in a condition.
    """


class EndpointRefusedError(RLError):
    """It answers, but not what it was asked."""


class UnreadableError(RLError):
    """A reply does not say what it was asked for."""


class NoCompletionError(RLError):
    """Those that answer do not answer what was asked: an infrastructure error, never a reward."""
