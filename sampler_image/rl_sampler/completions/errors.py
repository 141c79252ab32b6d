"""Errors of language models behind an API."""

from __future__ import annotations

from rl_contracts.errors import RLError


class EndpointDownError(RLError):
    """The endpoint does not answer or denies access; the request is not at fault.

    The message is the same at each attempt, since a condition of the job shows it.
    """


class EndpointRefusedError(RLError):
    """The endpoint answers, but refuses this request or does not answer it."""

    def __init__(self, message: str, *, reason: str = "") -> None:
        """Note why; ``reason`` is the endpoint's own words, without its URL."""
        super().__init__(message)
        self.reason = reason or message


class UnreadableError(RLError):
    """A reply lacks what the request asked for, such as a score."""


class NoCompletionError(RLError):
    """No endpoint that answers gives a usable reply: an infrastructure error, never a reward."""
