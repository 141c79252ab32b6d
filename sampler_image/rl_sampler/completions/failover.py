"""Lists of endpoints with failover, and a circuit breaker for each list.

An endpoint that does not answer backs off, longer each time, and the next endpoint is asked. When
the last request to every endpoint failed, the circuit opens: callers wait, no endpoint is asked,
and nothing new is claimed. After each backoff a small probe is sent; the first answer closes the
circuit.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import aiohttp

from rl_contracts.spec.agent.endpoints import Completions, token_folder
from rl_sampler.completions.endpoint import Messages, Server
from rl_sampler.completions.errors import (
    EndpointDownError,
    EndpointRefusedError,
    NoCompletionError,
    UnreadableError,
)
from rl_sampler.completions.outages import Outages
from rl_sampler.engine.counters import Counters

T = TypeVar("T")

FIRST_BACKOFF_SECONDS = 0.5
MAX_BACKOFF_SECONDS = 30.0
ROUNDS = 5
"""A request that opens the circuit so often is itself at fault."""
PROBE: Messages = ({"role": "user", "content": "Say yes."},)
TOKEN_FILE = "token"


@dataclass(slots=True)
class _Backoff:
    """When an endpoint may be asked again."""

    until: float = 0.0
    """Monotonic time before which the endpoint is not asked."""
    seconds: float = 0.0
    """Length of the last backoff; 0 after an answer."""
    why: str = ""


class Failover:
    """A list of endpoints, shared by all episodes of this process."""

    def __init__(
        self, name: str, servers: Sequence[Server], *, counters: Counters, outages: Outages
    ) -> None:
        """Start with the circuit closed.

        Args:
            name: of the list: a scorer's kind, SIMULATED_USER or BROWSE_MODEL.
            servers: in the order in which they are asked.
            counters: count requests and tokens.
            outages: records when no endpoint answers.
        """
        self._name, self._counters, self._outages = name, counters, outages
        self._backoffs = {server: _Backoff() for server in servers}
        self._closed = asyncio.Event()
        self._closed.set()
        self._probing: asyncio.Task[None] | None = None

    async def ask(self, messages: Messages, read: Callable[[str], T]) -> T:
        """Ask until an endpoint answers, through any outage; the caller's claim bounds the wait.

        Args:
            messages: the conversation.
            read: parses a reply's text; raises UnreadableError.

        Returns:
            What ``read`` returned.

        Raises:
            NoCompletionError: no endpoint that answers gives a usable reply.
        """
        for _ in range(ROUNDS):
            await self._closed.wait()
            complaints: list[str] = []
            for server in self._in_order():
                if self._backs_off(server) and not complaints:
                    break  # asked before its backoff ends only where the others' replies are bad
                try:
                    return read(await self._complete(server, messages))
                except EndpointDownError:
                    continue
                except (EndpointRefusedError, UnreadableError) as error:
                    complaints.append(str(error))
            if complaints:
                raise NoCompletionError(f"{self._name}: {'; '.join(complaints)}")
        raise NoCompletionError(
            f"{self._name}: no endpoint answered this request, but they answer others"
        )

    async def close(self) -> None:
        """Stop probing."""
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.wait({self._probing})

    def _in_order(self) -> list[Server]:
        return sorted(self._backoffs, key=self._backs_off)  # stable: as listed, backing off last

    def _backs_off(self, server: Server) -> bool:
        return self._backoffs[server].until > time.monotonic()

    async def _complete(self, server: Server, messages: Messages) -> str:
        outcome = "answered"
        try:
            completion = await server.complete(messages)
        except EndpointDownError as error:
            outcome = "down"
            self._back_off(server, str(error))
            raise
        except EndpointRefusedError:
            outcome = "refused"
            self._mark_up(server)
            raise
        finally:
            self._counters.completions[(self._name, server.endpoint.model, outcome)] += 1
        self._mark_up(server)
        tokens = self._counters.completion_tokens
        tokens[(self._name, server.endpoint.model, "prompt")] += completion.prompt_tokens
        tokens[(self._name, server.endpoint.model, "completion")] += completion.completion_tokens
        return completion.text

    def _back_off(self, server: Server, why: str) -> None:
        backoff, now = self._backoffs[server], time.monotonic()
        if backoff.until > now:
            return  # a concurrent request recorded the failure already
        backoff.seconds = min(2 * backoff.seconds or FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)
        backoff.until, backoff.why = now + backoff.seconds, why
        backoffs = self._backoffs.values()
        # Not whether all back off now: a wait for an answer may be longer than a backoff.
        if self._closed.is_set() and all(backoff.seconds for backoff in backoffs):
            self._closed.clear()
            self._outages.note(self._name, "; ".join(backoff.why for backoff in backoffs))
            self._probing = asyncio.create_task(self._probe(), name=f"probe {self._name}")

    def _mark_up(self, server: Server) -> None:
        self._backoffs[server] = _Backoff()

    async def _probe(self) -> None:
        """Send a probe to the endpoint whose backoff ends first, until an endpoint answers."""
        while True:
            server, backoff = min(self._backoffs.items(), key=lambda item: item[1].until)
            await asyncio.sleep(max(0.0, backoff.until - time.monotonic()))
            try:
                await self._complete(server, PROBE)
            except EndpointDownError:
                continue
            except EndpointRefusedError:
                pass  # it answers
            self._outages.clear(self._name)
            self._closed.set()
            return


@dataclass(frozen=True, slots=True, kw_only=True)
class Failovers:
    """Makes the lists of endpoints of a manifest, and closes them."""

    session: aiohttp.ClientSession
    secrets: Path
    """Folder with the endpoints' tokens."""
    counters: Counters
    outages: Outages
    _made: list[Failover] = field(default_factory=list)

    def make(
        self, name: str, options: Completions, *, seconds: float, place: tuple[object, ...]
    ) -> Failover:
        """Make a list of endpoints.

        Args:
            name: of the list, see ``Failover``.
            options: the section of the manifest.
            seconds: longest wait for a reply.
            place: names the folders of the tokens, see ``token_folder``.
        """
        servers = [
            Server(
                endpoint=endpoint,
                options=options,
                seconds=seconds,
                token_file=self.secrets / token_folder(*place, index) / TOKEN_FILE,
                session=self.session,
            )
            for index, endpoint in enumerate(options.endpoints)
        ]
        made = Failover(name, servers, counters=self.counters, outages=self.outages)
        self._made.append(made)
        return made

    async def close(self) -> None:
        """Stop the probes of all lists."""
        for failover in self._made:
            await failover.close()
