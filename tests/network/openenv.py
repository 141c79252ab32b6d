"""A small server that speaks OpenEnv's protocol: a game of guesses, and faults on demand.

``tests/chaos`` compares its answers with those of the published package.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import WSMsgType, web

from tests.waiting import HUNG_SECONDS

MOST_STEPS = 4
LOWEST, HIGHEST = 0, 9
PARTIAL, FULL = 0.25, 1.0
TOOL = {
    "name": "guess",
    "description": "Guess the number.",
    "input_schema": {
        "additionalProperties": False,
        "properties": {"number": {"type": "integer"}},
        "required": ["number"],
        "type": "object",
    },
}


@dataclass(slots=True)
class Game:
    """Guess a number; a guess beside it earns ``PARTIAL``."""

    target: int = 0
    steps: int = 0
    episode: str | None = None

    def reset(self, *, seed: int | None = None, episode_id: str | None = None) -> dict[str, Any]:
        self.target, self.steps, self.episode = (seed or 0) % (HIGHEST + 1), 0, episode_id
        return observation(f"Guess a number from {LOWEST} to {HIGHEST}.")

    def guess(self, text: str) -> dict[str, Any]:
        self.steps += 1
        try:
            number = int(text)
        except ValueError:
            number = -10
        if number == self.target:
            return observation("Right.", reward=FULL, done=True)
        reward = PARTIAL if abs(number - self.target) == 1 else 0.0
        over = self.steps >= MOST_STEPS
        hint = "Higher." if number < self.target else "Lower."
        return observation(hint, reward=reward, done=over, truncated=over)


def observation(
    text: str, *, reward: float | None = None, done: bool = False, truncated: bool = False
) -> dict[str, Any]:
    """An observation's data, as OpenEnv's server writes it."""
    metadata = {"truncated": True} if truncated else {}
    data = {"observation": {"metadata": metadata, "text": text}, "reward": reward, "done": done}
    return data | ({"metadata": metadata} if metadata else {})


@dataclass(slots=True)
class SmallServer:
    """Answers sessions, each with a game of its own."""

    faults: list[str] = field(default_factory=list)
    """What the next steps do instead: hang, die, last (answer, then die), fail, nan, garbage,
    twice, other, long, swapped (another answer); an empty one does nothing else. Steps of all
    sessions count, in the order in which they come."""
    faults_at: dict[int, list[str]] = field(default_factory=dict)
    """By the number of a step in its own session, from 1: what the first sessions that come to it
    do instead, one each, in whatever order sessions run."""
    reset_faults: list[str] = field(default_factory=list)
    """What the next resets do instead: busy, refused, hang, die; an empty one does nothing else."""
    state_faults: list[str] = field(default_factory=list)
    """What the next requests for the state do instead: hang."""
    states: int = 0
    """Requests for the state."""
    refusals: int = 0
    """Sessions that are refused because the server has no room."""
    room: int | None = None
    """Sessions at the same time; None: any number."""
    refused: int = 0
    """Sessions that were refused."""
    tools: bool = False
    """The game is played by a tool of the environment's own."""
    ponged: asyncio.Event | None = None
    """Set when a client has answered the ping that follows each reset; None: no pings."""
    health: int = 200
    described: str = ""
    """Description of the schema of actions."""
    moved_to: str = ""
    """Where requests are redirected to; empty: nowhere."""
    sessions: int = 0
    opened: int = 0
    closed: int = 0
    """Sessions that said ``close``."""
    resets: list[dict[str, Any]] = field(default_factory=list)
    actions: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_get("/ws", self._session)
        application.router.add_get("/health", self._health)
        application.router.add_get("/schema", self._schema)
        return application

    async def _health(self, request: web.Request) -> web.Response:
        self.headers.append(dict(request.headers))
        if self.moved_to:
            raise web.HTTPTemporaryRedirect(f"{self.moved_to}{request.path}")
        return web.json_response({"status": "healthy"}, status=self.health)

    async def _schema(self, request: web.Request) -> web.Response:
        fields = {"metadata": {"type": "object"}, "message": {"type": "string"}}
        action = {"properties": fields, "required": ["message"], "type": "object", "title": "A"}
        action |= {"description": self.described} if self.described else {}
        return web.json_response({"action": action, "observation": {}, "state": {}})

    async def _session(self, request: web.Request) -> web.WebSocketResponse:
        if self.moved_to:
            raise web.HTTPTemporaryRedirect(f"{self.moved_to}{request.path}")
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)
        self.headers.append(dict(request.headers))
        if self.refusals or self.sessions == self.room:
            self.refusals, self.refused = max(self.refusals - 1, 0), self.refused + 1
            await _error(socket, "CAPACITY_REACHED", "at capacity")
            await socket.close()
            return socket
        self.sessions += 1
        self.opened += 1
        try:
            await self._play(socket, Game())
        finally:
            self.sessions -= 1
        return socket

    async def _play(self, socket: web.WebSocketResponse, game: Game) -> None:
        async for message in socket:
            if message.type is WSMsgType.PONG:
                assert self.ponged is not None
                self.ponged.set()
                continue
            asked = json.loads(message.data)
            if asked["type"] == "close":
                self.closed += 1
                return
            handler = {"reset": self._reset, "state": self._state}.get(asked["type"], self._step)
            if not await handler(socket, game, asked.get("data", {})):
                return

    async def _reset(
        self, socket: web.WebSocketResponse, game: Game, arguments: dict[str, Any]
    ) -> bool:
        """Whether the session goes on."""
        self.resets.append(arguments)
        fault = self.reset_faults.pop(0) if self.reset_faults else ""
        if fault in ("hang", "die"):
            return await self._fault(socket, fault)
        if fault == "busy":
            await _error(socket, "CAPACITY_REACHED", "at capacity")
            return False
        if fault == "refused":
            await _error(socket, "VALIDATION_ERROR", "Invalid message", errors=[])
            return True
        known = {key: arguments.get(key) for key in ("seed", "episode_id")}
        await _say(socket, "observation", game.reset(**known))
        if self.ponged is not None:
            await socket.ping()
        return True

    async def _state(self, socket: web.WebSocketResponse, game: Game, _: dict[str, Any]) -> bool:
        """Whether the session goes on."""
        self.states += 1
        if self.state_faults:
            return await self._fault(socket, self.state_faults.pop(0))
        await _say(socket, "state", {"episode_id": game.episode, "step_count": game.steps})
        return True

    async def _step(
        self, socket: web.WebSocketResponse, game: Game, action: dict[str, Any]
    ) -> bool:
        """Whether the session goes on."""
        if self.tools and action == {"type": "list_tools"}:
            listed = {"observation": {"metadata": {}, "tools": [TOOL]}, "reward": None}
            await _say(socket, "observation", {**listed, "done": False})
            return True
        errors = self._errors(action)
        if errors:
            await _error(socket, "VALIDATION_ERROR", "Invalid message", errors=errors)
            return True
        self.actions.append(action)
        faults = self.faults or self.faults_at.get(game.steps + 1)
        fault = faults.pop(0) if faults else ""
        if fault and fault != "last":
            return await self._fault(socket, fault)
        if self.tools:
            await _say(socket, "observation", self._tool(game, action))
        else:
            await _say(socket, "observation", game.guess(action["message"]))
        return fault != "last"

    def _tool(self, game: Game, action: dict[str, Any]) -> dict[str, Any]:
        name = action["tool_name"]
        if name != "guess":
            data = observation("")
            error = {"error_type": "tool_not_found", "message": f"Unknown tool: {name!r}"}
            tool = {"tool_name": name, "result": None, "error": error, "metadata": {}}
            return data | {"observation": tool}
        data = game.guess(str(action["arguments"].get("number")))
        text = data["observation"]["text"]
        result = {"content": [{"type": "text", "text": text}], "is_error": False}
        tool = {"tool_name": name, "result": result, "error": None, "metadata": {}}
        return data | {"observation": tool}

    def _errors(self, action: dict[str, Any]) -> list[dict[str, Any]]:
        known = {"type", "tool_name", "arguments"} if self.tools else {"message"}
        needed = known - {"metadata"}
        missing = [("missing", "Field required", name) for name in sorted(needed - set(action))]
        extra = [
            ("extra_forbidden", "Extra inputs are not permitted", name)
            for name in sorted(set(action) - known - {"metadata"})
        ]
        if "message" in action and not isinstance(action["message"], str):
            extra.append(("string_type", "Input should be a valid string", "message"))
        return [{"type": kind, "loc": [name], "msg": msg} for kind, msg, name in missing + extra]

    async def _fault(self, socket: web.WebSocketResponse, fault: str) -> bool:
        good = observation("Lower.", reward=0.0)
        if fault == "hang":
            await asyncio.sleep(3600)
        elif fault == "swapped":
            await _say(socket, "observation", observation("Swapped.", reward=0.0))
        elif fault == "die":
            await socket.close()
            return False
        elif fault == "fail":
            await _error(socket, "EXECUTION_ERROR", "the game broke")
        elif fault == "nan":
            await socket.send_str(
                json.dumps({"type": "observation", "data": good | {"reward": float("nan")}})
            )
        elif fault == "garbage":
            await socket.send_str("[" * 100_000)
        elif fault == "other":
            await _say(socket, "state", {})
        elif fault == "long":
            error = {"error_type": "execution_error", "message": "\ud800" + "n" * 500}
            tool = {"tool_name": "guess", "result": None, "error": error, "metadata": {}}
            await _say(socket, "observation", good | {"observation": tool})
        elif fault == "slow":
            error = {"error_type": "timeout", "message": "Tool 'guess' timed out"}
            tool = {"tool_name": "guess", "result": None, "error": error, "metadata": {}}
            await _say(socket, "observation", good | {"observation": tool})
        else:
            assert fault == "twice"
            await _say(socket, "observation", good)
            await _say(socket, "observation", good)
        return True


async def _say(socket: web.WebSocketResponse, kind: str, data: dict[str, Any]) -> None:
    await socket.send_str(json.dumps({"type": kind, "data": data}))


async def _error(socket: web.WebSocketResponse, code: str, message: str, **more: Any) -> None:
    await _say(socket, "error", {"message": message, "code": code, **more})


@contextlib.asynccontextmanager
async def serving(server: SmallServer, *, port: int = 0) -> AsyncIterator[str]:
    """The URL of a running server."""
    runner = web.AppRunner(server.application(), handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    assert runner.addresses
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@contextlib.contextmanager
def served_in_a_thread(server: SmallServer) -> Iterator[str]:
    """The URL of a server that runs beside a test that is not async."""
    loop = asyncio.new_event_loop()
    ready, stop = threading.Event(), asyncio.Event()
    urls: list[str] = []

    async def serve() -> None:
        async with serving(server) as url:
            urls.append(url)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), name="openenv")
    thread.start()
    try:
        assert ready.wait(timeout=HUNG_SECONDS)
        yield urls[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(timeout=HUNG_SECONDS)
        loop.close()
