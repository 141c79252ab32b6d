"""The open sessions of an agent: a program is known by its session's key."""

from __future__ import annotations

from rl_sampler.gateway.asked import RefusedRequestError
from rl_sampler.gateway.session import Session


class Sessions:
    """The sessions of this agent, by key."""

    def __init__(self) -> None:
        self._by_key: dict[str, Session] = {}

    def open(self, session: Session) -> None:
        """Accept a session's key."""
        self._by_key[session.key] = session

    def close(self, session: Session) -> None:
        """Make a session's key void."""
        self._by_key.pop(session.key, None)

    def of(self, key: str) -> Session:
        """The session of a key; raises RefusedRequestError."""
        session = self._by_key.get(key)
        if session is None:
            raise RefusedRequestError(
                "the API key is of no session: keys are void once their program has ended",
                status=401,
                code="invalid_api_key",
            )
        return session
