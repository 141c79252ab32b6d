"""The agent's side of the user's code."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import pytest

from rl_contracts.spec.resources import RLJobSpec
from rl_sampler.code.client import CodeContainer
from rl_sampler.code.math_checker import CompareError
from rl_sampler.code.replies import Compared, DescribedTool, Scored
from rl_sampler.engine.problems import Problems
from rl_sampler.scorers.mathematics import MathScorer
from rl_sampler.scorers.response import Response, ScoringError
from rl_sampler.tools.tool import ToolDownError
from rl_sampler.user_code import call, hosted
from rl_sampler.user_code.call import UserThreads
from rl_sampler.user_code.remote import RemoteTools, UserCode, user_code_of
from tests.code_container import in_thread
from tests.samples.manifests import a_job
from tests.waiting import HUNG_SECONDS


class Noting(Problems):
    """Says when there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.noted = asyncio.Event()

    def note(self, topic: str, message: str) -> None:
        super().note(topic, message)
        self.noted.set()


async def test_a_container_that_cannot_read_the_manifest_says_so(tmp_path: Path) -> None:
    """Such as one whose image was derived from an older release."""
    spec, problems = a_job()["spec"], Noting()
    with in_thread(tmp_path, spec | {"ofTheNextRelease": 1}) as code:
        waiting = asyncio.create_task(user_code_of(RLJobSpec.model_validate(spec), code, problems))
        async with asyncio.timeout(HUNG_SECONDS):
            await problems.noted.wait()
        waiting.cancel()
    assert "cannot be imported: ValidationError" in str(problems)
    assert "ofTheNextRelease" in str(problems)


MINE = {"scorers": [{"kind": "Mine", "entryPoint": "theirs:length"}]}
SEES = {"scorers": [{"kind": "Mine", "entryPoint": "theirs:sees_openings"}]}


async def test_a_container_ignores_fields_of_a_response_that_it_does_not_know(
    tmp_path: Path,
) -> None:
    """Such as one whose image was derived from an older release."""
    sent = asdict(Response(text="abc", answer=None, reference="")) | {"ofTheNextRelease": 1}
    with in_thread(tmp_path, a_job(reward=MINE)["spec"]) as code:
        request = {"call": "score", "scorer": "Mine", "response": sent}
        assert await code.ask(request, Scored, seconds=HUNG_SECONDS) == Scored(value=0.3)


async def test_what_only_scorers_of_the_agent_use_is_not_sent(
    loaded: Callable[..., UserCode],
) -> None:
    response = Response(text="", answer=None, reference="", opened=(1,))
    assert await loaded(reward=SEES).scorers["Mine"](response) == 0.0


def searching(**fields: Any) -> dict[str, Any]:
    section = {"entryPoint": "theirs:search", "options": {"index": "wiki"}, **fields}
    return {"kind": "ToolLoop", "tools": [section]}


async def test_a_tool_that_gets_no_thread_is_down_and_the_policy_is_shown_nothing(
    loaded: Callable[..., UserCode], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls that took too long have all threads."""
    ended = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(ended.wait, HUNG_SECONDS)
        threads = UserThreads(pool=pool, slots=asyncio.Semaphore(1))
        monkeypatch.setattr(call, "user_threads", lambda: threads)
        tools = loaded(agent=searching(timeoutSeconds=1)).tools
        assert tools is not None
        try:
            with pytest.raises(ToolDownError, match="did not begin within 1 s"):
                await tools.call("search", {"query": "a"})
        finally:
            ended.set()


class Ends:
    """In the place of the process that compares."""

    def same(self, *answers: str, seconds: float) -> bool:
        raise CompareError("the process that compares mathematical answers ended with -9")

    def close(self) -> None: ...


async def test_a_comparison_that_fails_is_no_fault_of_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosted, "MathChecker", Ends)
    response = Response(text="", answer="1/2", reference="0.5")
    with (
        in_thread(tmp_path, a_job()["spec"]) as code,
        pytest.raises(ScoringError, match="ended with -9"),
    ):
        await MathScorer(code)(response)


class Silent:
    """In the place of a container that does not answer."""

    name = CodeContainer.name

    async def ask(self, request: dict[str, Any], model: object, *, seconds: float) -> Compared:
        raise TimeoutError


async def test_a_tool_whose_container_gives_no_answer_is_down() -> None:
    described = DescribedTool(name="search", description="", parameters={}, seconds=1)
    tools = RemoteTools([described], cast(CodeContainer, Silent()))
    with pytest.raises(ToolDownError, match="search: the container `code` gave no answer in 611 s"):
        await tools.call("search", {"query": "a"})


async def test_a_comparison_that_takes_too_long_is_no_fault_of_the_answer() -> None:
    scorer = MathScorer(cast(CodeContainer, Silent()))
    with pytest.raises(ScoringError, match="could not be compared"):
        await scorer(Response(text="", answer="1/2", reference="0.5"))
