"""What the container ``code`` answers: calls of the user's code, and mathematical comparisons."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_contracts.errors import Refusal, RefusedError, RLError
from rl_sampler.code.math_checker import CompareError, MathChecker
from rl_sampler.code.wire import failure

if TYPE_CHECKING:
    from rl_contracts.spec.resources import RLJobSpec
    from rl_sampler.user_code.load import LoadedCode

Request = Mapping[str, Any]
Answer = dict[str, Any]
Ask = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class Hosted:
    """The user's code, imported with the first call that needs it, and the comparer of answers."""

    def __init__(self, spec_file: Path) -> None:
        """Answer calls for the manifest in ``spec_file``."""
        self._spec_file = spec_file
        self._checker = MathChecker()
        self._comparing = ThreadPoolExecutor(1, thread_name_prefix="compare")
        self._import = asyncio.Lock()
        self._loaded: LoadedCode | None = None
        self._refusal: Refusal | None = None
        self._calls: dict[str, Callable[[Request, Ask], Awaitable[Answer]]] = {
            "describe": self._describe,
            "score": self._score,
            "tool": self._tool,
            "act": self._act,
            "compare": self._compare,
            "run": self._run,
        }

    def close(self) -> None:
        """End the process that compares."""
        self._checker.close()

    async def answer(self, request: Request, ask: Ask) -> Answer:
        """Make a call.

        Args:
            request: of the agent; ``call`` names the call.
            ask: sends it a question, and returns the answer.
        """
        call = self._calls[request["call"]]
        try:
            return await call(request, ask)
        except RLError as error:
            return _failed(error)

    def spec(self) -> RLJobSpec:
        """The manifest."""
        # Takes a second, and Math alone needs none of it.
        from rl_contracts.spec.resources import RLJobSpec

        return RLJobSpec.model_validate_json(self._spec_file.read_bytes())

    async def _code(self) -> LoadedCode:
        """The user's code; raises RefusedError where it cannot be used."""
        async with self._import:
            if self._loaded is None and self._refusal is None:
                try:
                    self._loaded = await asyncio.to_thread(self._load)
                except RefusedError as error:
                    self._refusal = error.refusal
        if self._loaded is None:
            assert self._refusal is not None
            raise RefusedError(self._refusal)
        return self._loaded

    def _load(self) -> LoadedCode:
        from rl_sampler.user_code.call import user_threads
        from rl_sampler.user_code.load import load_user_code

        return load_user_code(self.spec(), threads=user_threads())

    async def _describe(self, request: Request, ask: Ask) -> Answer:
        try:
            code = await self._code()
        except RefusedError as error:
            return {"refusal": asdict(error.refusal)}
        return {"tools": code.tools.described() if code.tools else []}

    async def _score(self, request: Request, ask: Ask) -> Answer:
        from rl_sampler.scorers.response import Response

        code = await self._code()
        # The agent may be of a newer release, which sends fields that are not known here.
        known = {known.name for known in fields(Response)} & request["response"].keys()
        response = Response(**{name: request["response"][name] for name in known})
        return {"value": await code.scorers[request["scorer"]](response)}

    async def _tool(self, request: Request, ask: Ask) -> Answer:
        code = await self._code()
        assert code.tools is not None
        result = await code.tools.call(request["tool"], request["arguments"])
        return {"text": result.text, "failed": result.failed}

    async def _act(self, request: Request, ask: Ask) -> Answer:
        from rl_sampler.user_code.member import Member

        code = await self._code()
        assert code.agent is not None
        return {"reason": await code.agent(Member(ask, request))}

    async def _run(self, request: Request, ask: Ask) -> Answer:
        from rl_sampler.user_code.programs.process import run_program

        return await run_program(
            request["program"], task=request["task"], environment=request["environment"]
        )

    async def _compare(self, request: Request, ask: Ask) -> Answer:
        same = await asyncio.get_running_loop().run_in_executor(
            self._comparing,
            lambda: self._checker.same(
                request["reference"], request["answer"], seconds=request["seconds"]
            ),
        )
        return {"same": same}


def _failed(error: RLError) -> Answer:
    if isinstance(error, CompareError):
        return failure("down", str(error))
    from rl_sampler.scorers.response import ScoringError
    from rl_sampler.tools.tool import ToolDownError
    from rl_sampler.user_code.call import NoThreadError, UserCodeTimeoutError

    if isinstance(error, UserCodeTimeoutError):
        return failure("time", str(error))
    down = isinstance(error, ScoringError | ToolDownError | NoThreadError)
    return failure("down" if down else "user", str(error))
