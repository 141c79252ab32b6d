"""The client of SGLang's HTTP server.

Hazards: ``/health`` samples a token, fails during a pause and then marks the server unwell until it
is asked once more, so ``/ping`` is asked, and ``/health`` outside of pauses alone; idle connections
are closed by the server after five seconds, so ours are given up sooner; a request whose connection
is dropped is aborted by the server within four seconds, which is how we abort.

Agents of several runs may share one server. Names of adapters begin with the run, so that none
sees, unloads or names another one's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from pydantic import TypeAdapter, ValidationError

from rl_contracts.spec.storage import Pause
from rl_sampler.engine.errors import (
    EngineProtocolError,
    EngineRefusedError,
    EngineUnavailableError,
    EngineUnsupportedError,
)
from rl_sampler.engine.protocol import (
    FoundCalls,
    GenerateRequest,
    Generation,
    ModelCards,
    ModelInfo,
    ServerInfo,
)

T = TypeVar("T")

KEEPALIVE_SECONDS = 3.0
CONTROL_SECONDS = 10.0
EXAMINE_SECONDS = 30.0
GENERATE_SECONDS = 1800.0
MESSAGE_CHARACTERS = 500
OLDEST = (0, 5, 21)
"""First version with these calls: spans of versions, ``/ready``, ``/model_info``."""
TOO_NEW = (0, 6, 0)

GENERATIONS = TypeAdapter(list[Generation])
SERVER_INFO = TypeAdapter(ServerInfo)
MODEL_INFO = TypeAdapter(ModelInfo)
FOUND_CALLS = TypeAdapter(FoundCalls)
MODEL_CARDS = TypeAdapter(ModelCards)


MODES: dict[Pause, str] = {"Retract": "retract", "InPlace": "in_place", "Abort": "retract"}
"""The server's own ``abort`` looks once in a second whether all have ended, and admits no pause
that is shorter. What was taken back has left the batch, so that it can be aborted at once."""


class Pulse(Enum):
    """What became of a ``/ping``."""

    ANSWERS = "answers"
    ABSENT = "absent"
    """Nobody listens: starting, or gone and about to be restarted."""
    UNWELL = "unwell"
    """Somebody listens and does not answer as a healthy server does."""


def open_session() -> aiohttp.ClientSession:
    """A session for one engine; the caller closes it."""
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_SECONDS)
    return aiohttp.ClientSession(connector=connector)


class Engine:
    """One SGLang server, as one run sees it."""

    def __init__(
        self, url: str, *, session: aiohttp.ClientSession, run: str = "", runs: int = 1
    ) -> None:
        """Nothing is asked yet.

        Args:
            url: of the server.
            session: to ask with.
            run: whose adapters are given to it; only such are seen and named.
            runs: whose agents share the server; each takes an equal share of its slots.
        """
        self._url = url.rstrip("/")
        self._session = session
        self._prefix, self._runs = f"{run}.", runs

    def adapter(self, label: str) -> str:
        """The server's name for an adapter of this run.

        Args:
            label: of the policy; unique in its run.
        """
        return self._prefix + label

    async def ping(self) -> Pulse:
        """Ask for a sign of life; pauses do not matter."""
        try:
            await self._send("GET", "/ping", doing="pinging", seconds=CONTROL_SECONDS)
        except EngineUnavailableError as error:
            absent = isinstance(error.__cause__, aiohttp.ClientConnectorError)
            return Pulse.ABSENT if absent else Pulse.UNWELL
        except EngineRefusedError:
            return Pulse.UNWELL
        return Pulse.ANSWERS

    async def examine(self) -> None:
        """Have the server sample a token: what a probe during a pause marked unwell is well again.

        Raises:
            EngineError: it could not. Never ask during a pause.
        """
        await self._send("GET", "/health", doing="being examined", seconds=EXAMINE_SECONDS)

    async def describe(self) -> ServerInfo:
        """Ask what the server is, and what of it is this run's share.

        Raises:
            EngineUnsupportedError: its version's calls are not known here.
        """
        found = await self._send("GET", "/server_info", doing="asking for its version")
        info = _parsed(SERVER_INFO, found, "/server_info")
        numbers = tuple(int(one) for one in re.findall(r"\d+", info.version)[:3])
        if not OLDEST <= numbers < TOO_NEW:
            raise EngineUnsupportedError(
                f"engine is sglang {info.version}; this agent speaks with "
                f"{'.'.join(map(str, OLDEST))} up to, not including, {'.'.join(map(str, TOO_NEW))}"
            )
        return info.share(self._runs)

    async def weight_version(self) -> str:
        """The label of the weights that are served."""
        found = await self._send("GET", "/model_info", doing="asking for its weights")
        return _parsed(MODEL_INFO, found, "/model_info").weight_version

    async def generate(self, request: GenerateRequest) -> list[Generation]:
        """Sample all members in one call; cancelling it aborts them.

        Raises:
            EngineProtocolError: another number of members came back, or something unreadable.
        """
        if request.adapter:
            request = replace(request, adapter=self.adapter(request.adapter))
        found = await self._send(
            "POST", "/generate", doing="sampling", body=request.to_json(), seconds=GENERATE_SECONDS
        )
        members = _parsed(GENERATIONS, found if isinstance(found, list) else [found], "/generate")
        if len(members) != request.members:
            raise EngineProtocolError(f"asked for {request.members} members, got {len(members)}")
        return members

    async def parse_calls(
        self, text: str, *, tools: list[dict[str, Any]], parser: str
    ) -> FoundCalls:
        """Have the tool calls of a response read.

        Args:
            text: the response.
            tools: offered ones, in the form of chat templates.
            parser: the engine's name for the model family's form.
        """
        body: dict[str, object] = {"text": text, "tools": tools, "tool_call_parser": parser}
        found = await self._send(
            "POST", "/parse_function_call", doing="reading tool calls", body=body
        )
        return _parsed(FOUND_CALLS, found, "/parse_function_call")

    async def pause(self, mode: Pause) -> None:
        """Stop sampling; requests that come now wait.

        Args:
            mode: running requests are taken back and recomputed when resumed (``Retract``), keep
                their cache (``InPlace``), or end with what they have (``Abort``).
        """
        await self._send("POST", "/pause_generation", doing="pausing", body={"mode": MODES[mode]})
        if mode == "Abort":
            body: dict[str, object] = {"abort_all": True}
            await self._send("POST", "/abort_request", doing="aborting requests", body=body)

    async def resume(self) -> None:
        """Go on after a pause."""
        await self._send("POST", "/continue_generation", doing="resuming", body={})

    async def load(
        self, folder: Path, *, label: str, seconds: float, empty_cache: bool = True
    ) -> None:
        """Load weights that were verified; anything else may kill the server.

        Args:
            folder: safetensors in Hugging Face layout.
            label: what tokens sampled from them are marked with.
            seconds: how long it may take.
            empty_cache: forget all prefixes; refused while requests run, though the weights are
                changed.
        """
        body: dict[str, object] = {
            "model_path": str(folder),
            "load_format": "safetensors",
            "weight_version": label,
            "flush_cache": empty_cache,
        }
        doing = f"loading weights {label}"
        await self._send(
            "POST", "/update_weights_from_disk", doing=doing, body=body, seconds=seconds
        )

    async def adapters(self) -> dict[str, str]:
        """Adapters of this run that it holds: folders by label."""
        found = await self._send("GET", "/v1/models", doing="asking for its adapters")
        cards = _parsed(MODEL_CARDS, found, "/v1/models").data
        return {
            card.id.removeprefix(self._prefix): card.root
            for card in cards
            if card.parent is not None and card.id.startswith(self._prefix)
        }

    async def load_adapter(self, folder: Path, *, label: str, seconds: float) -> None:
        """Load a verified adapter beside the others; requests go on meanwhile.

        Args:
            folder: in PEFT's layout.
            label: of the policy; refused where it holds one of that label.
            seconds: how long it may take.
        """
        body: dict[str, object] = {"lora_name": self.adapter(label), "lora_path": str(folder)}
        doing = f"loading adapter {label}"
        await self._send("POST", "/load_lora_adapter", doing=doing, body=body, seconds=seconds)

    async def unload_adapter(self, label: str) -> None:
        """Remove an adapter. It waits for the adapter's requests, and loads wait for it."""
        body: dict[str, object] = {"lora_name": self.adapter(label)}
        doing = f"unloading adapter {label}"
        await self._send("POST", "/unload_lora_adapter", doing=doing, body=body)

    def completing(
        self, path: str, body: Mapping[str, object]
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """A request of OpenAI's API, whose answer is read as it comes.

        Entering and reading raise what aiohttp raises. Dropping it aborts the request.
        """
        limit = aiohttp.ClientTimeout(total=GENERATE_SECONDS, connect=CONTROL_SECONDS)
        return self._session.post(self._url + path, json=body, timeout=limit)

    async def _send(
        self,
        method: str,
        path: str,
        *,
        doing: str,
        body: dict[str, object] | None = None,
        seconds: float = CONTROL_SECONDS,
    ) -> Any:
        limit = aiohttp.ClientTimeout(total=seconds, connect=CONTROL_SECONDS)
        try:
            async with self._session.request(
                method, self._url + path, json=body, timeout=limit
            ) as response:
                text = await response.text()
                if response.status != 200:
                    raise EngineRefusedError(
                        doing=doing, status=response.status, message=text[:MESSAGE_CHARACTERS]
                    )
                return await response.json(content_type=None) if text else None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            cause = str(error) or type(error).__name__
            raise EngineUnavailableError(f"engine did not answer while {doing}: {cause}") from error
        except ValueError as error:
            raise EngineProtocolError(f"{path} answered no JSON: {error}") from error


def _parsed(adapter: TypeAdapter[T], found: object, path: str) -> T:
    try:
        return adapter.validate_python(found)
    except ValidationError as error:
        raise EngineProtocolError(f"{path} answered what sglang never does: {error}") from error
