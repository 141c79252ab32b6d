"""How the engine fails. None of these is ever a reward."""

from __future__ import annotations

from rl_contracts.errors import RLError


class EngineError(RLError):
    """Base of all failures of the engine."""


class EngineUnavailableError(EngineError):
    """The engine did not answer: not up yet, gone, or too slow."""


class EngineRefusedError(EngineError):
    """The engine answered with an error. An update may have been applied all the same."""

    def __init__(self, *, doing: str, status: int, message: str) -> None:
        super().__init__(f"engine answered {status} while {doing}: {message}")
        self.status = status


class EngineProtocolError(EngineError):
    """The engine's answer is not what its version promises; nothing in it is data."""


class EngineUnsupportedError(EngineError):
    """The engine is of a version whose calls are not known here."""
