"""Brings in what the manifest adds to this sampler, before anybody counts on it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from rl_contracts.documents.task import Task
from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.spec.agent.sandbox import CODE
from rl_contracts.spec.resources import RLJobSpec
from rl_sampler.agents.user import User, Users, users_of
from rl_sampler.completions.directory import Directory
from rl_sampler.engine.problems import Problems
from rl_sampler.sandbox.client import Sandbox
from rl_sampler.sandbox.tool import PythonTool
from rl_sampler.scorers import AsyncScorer, Scorers
from rl_sampler.scorers.code import CodeScorer
from rl_sampler.scorers.judge import judges
from rl_sampler.tools.browse import Browser, browser_of
from rl_sampler.tools.tool import ToolSource
from rl_sampler.user_code.code import user_threads
from rl_sampler.user_code.own import OwnCode, load_own

TOPIC = "user code"


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """What there is now."""

    own: OwnCode
    scorers: Scorers
    users: Users
    browser: Browser | None
    tools: ToolSource | None
    """Beside MCP servers."""
    known: list[str]
    """Kinds of scorers; those of refused code are among them: what is wrong is the refusal."""
    refusals: tuple[Refusal, ...] = ()


def _nobody(task: Task) -> User:
    raise AssertionError("what was refused claims nothing")


async def bring(
    spec: RLJobSpec,
    *,
    directory: Directory,
    sandbox: Sandbox | None,
    problems: Problems,
    stop: asyncio.Event,
) -> Brought | None:
    """Import the user's code, in a thread; None when told to stop before that was done."""
    problems.note(TOPIC, "is being imported")
    work = asyncio.to_thread(load_own, spec, threads=user_threads())
    loading, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait({loading, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not loading.done():
        loading.cancel()
        return None
    theirs: dict[str, AsyncScorer] = {}
    users: Users = _nobody
    browser: Browser | None = None
    refusals: tuple[Refusal, ...] = ()
    try:
        own = loading.result()
        users = users_of(spec.agent, directory)
        browser = browser_of(spec.agent, directory)
        theirs = {**own.scorers, **judges(spec.reward, directory)}
        if sandbox is not None:
            theirs[CODE] = CodeScorer(sandbox)
    except RefusedError as error:
        problems.note(TOPIC, str(error))
        own, refusals = OwnCode(), (error.refusal,)
    else:
        problems.clear(TOPIC)
    scorers = Scorers(theirs)
    known = sorted(
        {*scorers.known, *(scorer.kind for scorer in spec.reward.scorers if scorer.is_own)}
    )
    return Brought(
        own=own,
        scorers=scorers,
        users=users,
        browser=browser,
        tools=PythonTool(sandbox) if sandbox and spec.agent.kind == CODE else own.tools,
        known=known,
        refusals=refusals,
    )
