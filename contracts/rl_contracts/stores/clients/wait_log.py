"""Logs that a program waits for a store that does not answer."""

from __future__ import annotations

import logging

from tenacity import RetryCallState

log = logging.getLogger(__name__)

QUIET_SECONDS = 5.0
"""A shorter wait is not logged; a longer wait is logged at this age, then at doubling intervals."""


class WaitLog:
    """``before_sleep`` hook of tenacity for a call: logs store, command, cause and time limit."""

    def __init__(self, store: str, doing: str, *, patience_seconds: float) -> None:
        self._store, self._doing, self._patience = store, doing, patience_seconds
        self._next = QUIET_SECONDS

    def __call__(self, state: RetryCallState) -> None:
        """Log a line if the interval is over."""
        waited = state.seconds_since_start or 0.0
        if waited < self._next or state.outcome is None:
            return
        self._next = 2 * waited
        log.warning(
            "waiting for the %s while %s, for %.0f s of at most %.0f s: %s",
            self._store,
            self._doing,
            waited,
            self._patience,
            str(state.outcome.exception())[:200],
        )
