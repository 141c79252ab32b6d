"""The game of tests/network/openenv.py on the published server: `guessing_server.py PORT KIND`.

KIND is typed (actions are texts) or tools (actions are tool calls).
"""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State

MOST_STEPS, HIGHEST, PARTIAL, FULL = 4, 9, 0.25, 1.0


class Guess(Action):  # type: ignore[misc]
    message: str


class Hint(Observation):  # type: ignore[misc]
    text: str


class Game:
    def __init__(self) -> None:
        self.target = self.steps = 0
        self.episode: str | None = None

    def begin(self, seed: int | None, episode_id: str | None) -> str:
        self.target, self.steps, self.episode = (seed or 0) % (HIGHEST + 1), 0, episode_id
        return f"Guess a number from 0 to {HIGHEST}."

    def guess(self, text: str) -> dict[str, Any]:
        if text == "break":
            raise RuntimeError("the game broke")
        self.steps += 1
        try:
            number = int(text)
        except ValueError:
            number = -10
        if number == self.target:
            return {"text": "Right.", "reward": FULL, "done": True}
        over = self.steps >= MOST_STEPS
        return {
            "text": "Higher." if number < self.target else "Lower.",
            "reward": PARTIAL if abs(number - self.target) == 1 else 0.0,
            "done": over,
            "metadata": {"truncated": True} if over else {},
        }


class Typed(Environment):  # type: ignore[misc]
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.game = Game()

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> Observation:
        return Hint(text=self.game.begin(seed, episode_id))

    def step(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        return Hint(**self.game.guess(action.message))

    @property
    def state(self) -> State:
        return State(episode_id=self.game.episode, step_count=self.game.steps)


class Tools(MCPEnvironment):  # type: ignore[misc]
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        self.game = Game()
        self.last: dict[str, Any] = {}
        mcp = FastMCP("guessing")

        @mcp.tool  # type: ignore[untyped-decorator]
        def guess(number: int) -> str:
            """Guess the number."""
            self.last = self.game.guess(str(number))
            return str(self.last["text"])

        super().__init__(mcp)

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> Observation:
        return Hint(text=self.game.begin(seed, episode_id))

    def _rewarded(self, observation: Observation) -> Observation:
        if isinstance(observation, CallToolObservation) and observation.error is None:
            observation.reward, observation.done = self.last["reward"], self.last["done"]
            observation.metadata = self.last.get("metadata", {})
        return observation

    def step(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        return self._rewarded(super().step(action, timeout_s=timeout_s, **kwargs))

    async def step_async(
        self, action: Any, timeout_s: float | None = None, **kwargs: Any
    ) -> Observation:
        return self._rewarded(await super().step_async(action, timeout_s=timeout_s, **kwargs))

    def _step_impl(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        raise ValueError(f"no action: {type(action).__name__}")

    @property
    def state(self) -> State:
        return State(episode_id=self.game.episode, step_count=self.game.steps)


def main() -> None:
    port, kind = int(sys.argv[1]), sys.argv[2]
    if kind == "tools":
        app = create_fastapi_app(Tools, CallToolAction, CallToolObservation, max_concurrent_envs=8)
    else:
        app = create_fastapi_app(Typed, Guess, Hint, max_concurrent_envs=2)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", ws_ping_interval=0.2)


if __name__ == "__main__":
    main()
