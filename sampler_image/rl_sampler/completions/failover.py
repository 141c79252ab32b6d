"""Endpoints asked in order, with a circuit breaker over all of them.

An endpoint that does not answer rests, longer each time, and the next one is asked. When none of
them answered last, the circuit is open: nobody is asked, whoever asks waits, and nothing new is
claimed. One small request after each rest finds out when one of them is back; then it closes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rl_sampler.completions.endpoint import Messages, Server
from rl_sampler.completions.errors import (
    EndpointDownError,
    EndpointRefusedError,
    NoCompletionError,
    UnreadableError,
)
from rl_sampler.completions.outages import Outages
from rl_sampler.engine.tally import Tally

T = TypeVar("T")

FIRST_REST_SECONDS = 0.5
LONGEST_REST_SECONDS = 30.0
ROUNDS = 5
"""A request that takes the circuit down with it so often is itself at fault."""
PROBE: Messages = ({"role": "user", "content": "Say yes."},)


@dataclass(slots=True)
class _Rest:
    """How an endpoint fares."""

    until: float = 0.0
    """Monotonic time before which it is not asked."""
    seconds: float = 0.0
    """Of the last rest; 0 after an answer."""
    why: str = ""


class Failover:
    """One list of endpoints, for all episodes of this process."""

    def __init__(
        self, name: str, servers: Sequence[Server], *, tally: Tally, outages: Outages
    ) -> None:
        """Prepare.

        Args:
            name: whose list it is, a scorer's kind, SIMULATED_USER or BROWSE_MODEL.
            servers: in the order in which they are asked.
            tally: counts requests and tokens.
            outages: is told when nobody answers.
        """
        self._name, self._tally, self._outages = name, tally, outages
        self._rests = {server: _Rest() for server in servers}
        self._closed = asyncio.Event()
        self._closed.set()
        self._probing: asyncio.Task[None] | None = None

    async def ask(self, messages: Messages, read: Callable[[str], T]) -> T:
        """Ask until somebody answers, through any outage; the caller's claim bounds the wait.

        Args:
            messages: the conversation.
            read: takes a reply's text; raises UnreadableError.

        Raises:
            NoCompletionError: those that answer do not answer what was asked.
        """
        for _ in range(ROUNDS):
            await self._closed.wait()
            complaints: list[str] = []
            for server in self._in_turn():
                if self._rests_now(server) and not complaints:
                    break  # asked early only where those that answer are of no use
                try:
                    return read(await self._complete(server, messages))
                except EndpointDownError:
                    continue
                except (EndpointRefusedError, UnreadableError) as error:
                    complaints.append(str(error))
            if complaints:
                raise NoCompletionError(f"{self._name}: {'; '.join(complaints)}")
        raise NoCompletionError(f"{self._name}: no answer to this request, though to others")

    async def close(self) -> None:
        """Look for nobody any more."""
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.wait({self._probing})

    def _in_turn(self) -> list[Server]:
        return sorted(self._rests, key=self._rests_now)  # stable: as listed, those at rest last

    def _rests_now(self, server: Server) -> bool:
        return self._rests[server].until > time.monotonic()

    async def _complete(self, server: Server, messages: Messages) -> str:
        outcome = "answered"
        try:
            found = await server.complete(messages)
        except EndpointDownError as error:
            outcome = "down"
            self._send_to_rest(server, str(error))
            raise
        except EndpointRefusedError:
            outcome = "refused"
            self._back(server)
            raise
        finally:
            self._tally.completions[(self._name, server.endpoint.model, outcome)] += 1
        self._back(server)
        tokens = self._tally.completion_tokens
        tokens[(self._name, server.endpoint.model, "prompt")] += found.prompt_tokens
        tokens[(self._name, server.endpoint.model, "completion")] += found.completion_tokens
        return found.text

    def _send_to_rest(self, server: Server, why: str) -> None:
        rest, now = self._rests[server], time.monotonic()
        if rest.until > now:
            return  # others found it out at the same time
        rest.seconds = min(2 * rest.seconds or FIRST_REST_SECONDS, LONGEST_REST_SECONDS)
        rest.until, rest.why = now + rest.seconds, why
        # Not whether all rest now: a wait for an answer may be longer than a rest.
        if self._closed.is_set() and all(one.seconds for one in self._rests.values()):
            self._closed.clear()
            self._outages.note(self._name, "; ".join(one.why for one in self._rests.values()))
            self._probing = asyncio.create_task(self._probe(), name=f"probe {self._name}")

    def _back(self, server: Server) -> None:
        self._rests[server] = _Rest()

    async def _probe(self) -> None:
        """Ask the one whose rest is over first, until one answers."""
        while True:
            server, rest = min(self._rests.items(), key=lambda one: one[1].until)
            await asyncio.sleep(max(0.0, rest.until - time.monotonic()))
            try:
                await self._complete(server, PROBE)
            except EndpointDownError:
                continue
            except EndpointRefusedError:
                pass  # it is there
            self._outages.clear(self._name)
            self._closed.set()
            return
