"""The client of SGLang's HTTP server.

Hazards:

- ``/health`` samples a token. During a pause it fails, and then marks the server unhealthy until
  ``/health`` is requested again. So ``/ping`` is used, and ``/health`` only outside of pauses.
- The server closes idle connections after 5 seconds, so this client closes them sooner.
- The server aborts a request within 4 seconds after its connection is dropped. That is how this
  client aborts requests.

Agents of several runs may share a server. Names of adapters begin with the run's id, so that no
agent sees, unloads or names an adapter of another run.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from enum import Enum
from functools import partial
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
from rl_sampler.engine.growth import Progress, read_stream
from rl_sampler.engine.protocol import (
    GenerateRequest,
    Generation,
    ModelCards,
    ModelInfo,
    ParsedCalls,
    ServerInfo,
)

T = TypeVar("T")

KEEPALIVE_SECONDS = 3.0
CONTROL_SECONDS = 10.0
HEALTH_SECONDS = 30.0
GENERATE_SECONDS = 1800.0
MESSAGE_CHARACTERS = 500
OLDEST_VERSION = (0, 5, 21)
"""First SGLang version with spans of versions, ``/ready`` and ``/model_info``."""
FIRST_UNSUPPORTED_VERSION = (0, 6, 0)

GENERATIONS = TypeAdapter(list[Generation])
SERVER_INFO = TypeAdapter(ServerInfo)
MODEL_INFO = TypeAdapter(ModelInfo)
PARSED_CALLS = TypeAdapter(ParsedCalls)
MODEL_CARDS = TypeAdapter(ModelCards)


PAUSE_MODES: dict[Pause, str] = {"Retract": "retract", "InPlace": "in_place", "Abort": "retract"}
"""SGLang's modes. Its own ``abort`` checks only once a second whether all requests have ended, so
no pause is shorter. Retracted requests have left the batch and can be aborted at once."""


class PingResult(Enum):
    """Result of a ``/ping``."""

    ANSWERS = "answers"
    NOT_LISTENING = "absent"
    """No connection: the engine is starting, or ended and will be restarted."""
    UNHEALTHY = "unwell"
    """The server accepts connections but does not answer as a healthy server does."""


def open_session(key: str = "") -> aiohttp.ClientSession:
    """A session for requests to an engine; the caller closes it.

    Args:
        key: that the engine asks for; empty: none.
    """
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_SECONDS)
    return aiohttp.ClientSession(connector=connector, headers=headers)


class Engine:
    """Client of an SGLang server for one run."""

    def __init__(
        self, url: str, *, session: aiohttp.ClientSession, run: str = "", runs: int = 1
    ) -> None:
        """Make a client; no request is sent yet.

        Args:
            url: of the server.
            session: for the requests.
            run: ID of the run; only adapters of this run are seen and named.
            runs: number of runs that share the server; each takes an equal share of its slots.
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

    async def ping(self) -> PingResult:
        """Check whether the server answers, during a pause too."""
        try:
            await self._send("GET", "/ping", doing="pinging", seconds=CONTROL_SECONDS)
        except EngineUnavailableError as error:
            absent = isinstance(error.__cause__, aiohttp.ClientConnectorError)
            return PingResult.NOT_LISTENING if absent else PingResult.UNHEALTHY
        except EngineRefusedError:
            return PingResult.UNHEALTHY
        return PingResult.ANSWERS

    async def check_health(self) -> None:
        """Have the server sample a token; this clears an unhealthy mark left by an earlier probe.

        Hazard: never call this during a pause, see above.

        Raises:
            EngineError: the server could not sample.
        """
        await self._send("GET", "/health", doing="checking its health", seconds=HEALTH_SECONDS)

    async def server_info(self) -> ServerInfo:
        """The server's version and limits, with this run's share of its slots.

        Raises:
            EngineUnsupportedError: this agent does not support the server's version.
        """
        answer = await self._send("GET", "/server_info", doing="asking for its version")
        info = _parsed(SERVER_INFO, answer, "/server_info")
        numbers = tuple(int(number) for number in re.findall(r"\d+", info.version)[:3])
        if not OLDEST_VERSION <= numbers < FIRST_UNSUPPORTED_VERSION:
            oldest, newer = (
                ".".join(map(str, bound)) for bound in (OLDEST_VERSION, FIRST_UNSUPPORTED_VERSION)
            )
            raise EngineUnsupportedError(
                f"the engine is sglang {info.version}, but this agent supports {oldest} up to, not "
                f"including, {newer}: change the engine's image"
            )
        return info.share(self._runs)

    async def weight_version(self) -> str:
        """The label of the weights that are served."""
        answer = await self._send("GET", "/model_info", doing="asking for its weights")
        return _parsed(MODEL_INFO, answer, "/model_info").weight_version

    async def generate(
        self, request: GenerateRequest, *, progress: Progress | None = None
    ) -> list[Generation]:
        """Sample all members in one call; cancelling the call aborts them.

        Args:
            request: what is sampled.
            progress: called with a member's number and its new tokens, as they come.

        Raises:
            EngineProtocolError: the answer is malformed or has another number of members.
        """
        if request.adapter:
            request = replace(request, adapter=self.adapter(request.adapter))
        body, doing = request.to_json(), "sampling"
        if progress is None:
            answer = await self._send(
                "POST", "/generate", doing=doing, body=body, seconds=GENERATE_SECONDS
            )
        else:
            body["stream"] = True
            read = partial(read_stream, members=request.members, progress=progress)
            answer = await self._send(
                "POST", "/generate", doing=doing, body=body, seconds=GENERATE_SECONDS, read=read
            )
        listed = answer if isinstance(answer, list) else [answer]
        members = _parsed(GENERATIONS, listed, "/generate")
        if len(members) != request.members:
            raise EngineProtocolError(f"asked for {request.members} members, got {len(members)}")
        _check_prompt(request, members)
        return members

    async def parse_calls(
        self, text: str, *, tools: list[dict[str, Any]], parser: str
    ) -> ParsedCalls:
        """Parse the tool calls of a response, also of tools that were not offered.

        Args:
            text: the response.
            tools: those that the policy was offered, in the form that chat templates take.
            parser: the engine's name of the parser for the model family.
        """
        body: dict[str, object] = {"text": text, "tools": tools, "tool_call_parser": parser}
        answer = await self._send(
            "POST", "/parse_function_call", doing="parsing tool calls", body=body
        )
        return _parsed(PARSED_CALLS, answer, "/parse_function_call")

    async def pause(self, mode: Pause) -> None:
        """Stop sampling; new requests wait.

        Args:
            mode: running requests are retracted and recomputed after ``resume`` (``Retract``), keep
                their cache (``InPlace``), or end with the tokens that they have (``Abort``).
        """
        await self._send(
            "POST", "/pause_generation", doing="pausing", body={"mode": PAUSE_MODES[mode]}
        )
        if mode == "Abort":
            body: dict[str, object] = {"abort_all": True}
            await self._send("POST", "/abort_request", doing="aborting requests", body=body)

    async def resume(self) -> None:
        """Go on after a pause."""
        await self._send("POST", "/continue_generation", doing="resuming", body={})

    async def release_memory(self, *, seconds: float) -> None:
        """Give back the devices' memory but the context; weights and cache are gone after it.

        Hazard: the server must be paused with requests retracted, or idle; else it ends. It ends,
        too, when memory is given back twice or taken twice.
        """
        await self._occupy("release", doing="giving back its memory", seconds=seconds)

    async def resume_memory(self, *, seconds: float) -> None:
        """Take the memory again. Hazard: its weights are undefined until they are loaded."""
        await self._occupy("resume", doing="taking its memory again", seconds=seconds)

    async def _occupy(self, verb: str, *, doing: str, seconds: float) -> None:
        path = f"/{verb}_memory_occupation"
        await self._send("POST", path, doing=doing, body={}, seconds=seconds)

    async def load(
        self, folder: Path, *, label: str, seconds: float, empty_cache: bool = True
    ) -> None:
        """Load weights. Hazard: weights that were not verified may kill the server.

        Args:
            folder: safetensors in Hugging Face layout.
            label: marks the tokens that these weights sample.
            seconds: time limit.
            empty_cache: drop all cached prefixes. Hazard: while requests run the server refuses
                this, although it does change the weights.
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
        """The adapters of this run that the server holds: folders by label."""
        answer = await self._send("GET", "/v1/models", doing="asking for its adapters")
        cards = _parsed(MODEL_CARDS, answer, "/v1/models").data
        return {
            card.id.removeprefix(self._prefix): card.root
            for card in cards
            if card.parent is not None and card.id.startswith(self._prefix)
        }

    async def load_adapter(self, folder: Path, *, label: str, seconds: float) -> None:
        """Load a verified adapter beside the others; requests go on meanwhile.

        Args:
            folder: in PEFT's layout.
            label: of the policy; the server refuses a label that it holds already.
            seconds: time limit.
        """
        body: dict[str, object] = {"lora_name": self.adapter(label), "lora_path": str(folder)}
        doing = f"loading adapter {label}"
        await self._send("POST", "/load_lora_adapter", doing=doing, body=body, seconds=seconds)

    async def unload_adapter(self, label: str) -> None:
        """Remove an adapter.

        Hazard: the server first waits for the adapter's requests, and meanwhile delays all loads.
        """
        body: dict[str, object] = {"lora_name": self.adapter(label)}
        doing = f"unloading adapter {label}"
        await self._send("POST", "/unload_lora_adapter", doing=doing, body=body)

    def post_completion(
        self, path: str, body: Mapping[str, object]
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """A request to the server's OpenAI-compatible API, whose answer can be streamed.

        Entering the context and reading raise aiohttp's errors. Leaving it aborts the request.
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
        read: Callable[[aiohttp.ClientResponse], Awaitable[Any]] | None = None,
    ) -> Any:
        limit = aiohttp.ClientTimeout(total=seconds, connect=CONTROL_SECONDS)
        try:
            async with self._session.request(
                method, self._url + path, json=body, timeout=limit
            ) as response:
                if read is not None and response.status == 200:
                    return await read(response)
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
            raise EngineProtocolError(f"{path} answered with invalid JSON: {error}") from error


def _check_prompt(request: GenerateRequest, members: list[Generation]) -> None:
    """The engine makes tokens of images; they must be those that are trained."""
    if not request.images:
        return
    for member in members:
        made = member.meta_info.prompt_tokens
        if made != request.prompt_tokens:
            raise EngineProtocolError(
                f"the engine made {made} tokens of a prompt with images, not "
                f"{request.prompt_tokens}: its image processor is not the model's"
            )


def _parsed(adapter: TypeAdapter[T], answer: object, path: str) -> T:
    try:
        return adapter.validate_python(answer)
    except ValidationError as error:
        raise EngineProtocolError(f"{path} answered with unexpected fields: {error}") from error
