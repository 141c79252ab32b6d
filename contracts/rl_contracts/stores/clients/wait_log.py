"""What a program says while a store does not answer: nobody waits in silence."""

from __future__ import annotations

import logging

from tenacity import RetryCallState

log = logging.getLogger(__name__)

QUIET_SECONDS = 5.0
"""A shorter hiccup is not worth a line; a longer one gets a line this often, then more rarely."""


class WaitLog:
    """Tenacity's ``before_sleep`` of one call: names store, command, cause and patience."""

    def __init__(self, store: str, doing: str, *, patience_seconds: float) -> None:
        self._store, self._doing, self._patience = store, doing, patience_seconds
        self._next = QUIET_SECONDS

    def __call__(self, state: RetryCallState) -> None:
        """Say it when it is time."""
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
