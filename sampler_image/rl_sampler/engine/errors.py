"""Errors of the engine: infrastructure errors, never rewards."""

from __future__ import annotations

from rl_contracts.errors import RLError


class EngineError(RLError):
    """Base of all failures of the engine."""


class EngineUnavailableError(EngineError):
    """The engine did not answer: it is starting, it ended, or it is too slow."""


class EngineRefusedError(EngineError):
    """The engine answered with an error. Hazard: an update may have been applied all the same."""

    def __init__(self, *, doing: str, status: int, message: str) -> None:
        super().__init__(f"engine answered {status} while {doing}: {message}")
        self.status = status


class EngineProtocolError(EngineError):
    """The engine's answer is malformed for its version; nothing in it may become data."""


class EngineUnsupportedError(EngineError):
    """This agent does not support the engine's version."""
