"""Collects what the manifest adds to this sampler: user code, judges, users and tools."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from rl_contracts.documents.task import Task
from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.spec.agent.agents import Agent
from rl_contracts.spec.agent.sandbox import CODE
from rl_contracts.spec.agent.search import TOKEN_FOLDER as SEARCH_FOLDER
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.reward import MATH
from rl_contracts.tracing import Traced, Untraced, tracing_of
from rl_sampler.agents.user import User, Users, users_of
from rl_sampler.code.client import CodeContainer
from rl_sampler.completions.failover import TOKEN_FILE, Failovers
from rl_sampler.engine.problems import Problems
from rl_sampler.sandbox.client import Sandbox
from rl_sampler.sandbox.tool import PythonTool
from rl_sampler.scorers import AsyncScorer, Scorers
from rl_sampler.scorers.code import CodeScorer
from rl_sampler.scorers.judge import judges
from rl_sampler.scorers.mathematics import MathScorer
from rl_sampler.tools.answer import AnswerTool
from rl_sampler.tools.browse import Browser, browser_of
from rl_sampler.tools.calculator import CalculatorTool
from rl_sampler.tools.search import SearchTool
from rl_sampler.tools.tool import ToolSource
from rl_sampler.user_code.remote import TOPIC, UserCode, user_code_of

SERVICE = "rl-sampler"
"""Name of this program in traces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """All that the manifest adds."""

    user_code: UserCode
    scorers: Scorers
    users: Users
    browser: Browser | None
    tools: Mapping[str, ToolSource]
    """The user's functions and built-in tools, by names that no MCP server can have."""
    known: list[str]
    """Kinds of scorers to register, with those of refused code: only the refusal names these."""
    traces: Traced = field(default_factory=Untraced)
    refusals: tuple[Refusal, ...] = ()


async def _user_code(spec: RLJobSpec, code: CodeContainer | None, problems: Problems) -> UserCode:
    if not spec.runs_user_code:
        return UserCode()
    assert code is not None
    return await user_code_of(spec, code, problems)


def _tools(
    agent: Agent, user_code: UserCode, sandbox: Sandbox | None, failovers: Failovers
) -> dict[str, ToolSource]:
    sources: dict[str, ToolSource] = {}
    if user_code.tools is not None:
        sources["Own"] = user_code.tools
    if "Answer" in agent.built_in_tools:
        sources["Answer"] = AnswerTool()
    if "Calculator" in agent.built_in_tools:
        sources["Calculator"] = CalculatorTool()
    if sandbox is not None and (agent.kind == CODE or "Python" in agent.built_in_tools):
        sources["Python"] = PythonTool(sandbox)
    if agent.search is not None:
        token = failovers.secrets / SEARCH_FOLDER / TOKEN_FILE
        sources["Search"] = SearchTool(agent.search, session=failovers.session, token_file=token)
    return sources


def _no_user(task: Task) -> User:
    raise AssertionError("a sampler with a refusal must not claim tasks")


async def load_components(
    spec: RLJobSpec,
    *,
    failovers: Failovers,
    sandbox: Sandbox | None,
    code: CodeContainer | None,
    problems: Problems,
    stop: asyncio.Event,
    about: Mapping[str, str] | None = None,
) -> Components | None:
    """Load the manifest's components; the container ``code`` imports the user's code.

    Args:
        spec: the manifest.
        failovers: makes the lists of endpoints.
        sandbox: runs programs; None where the manifest runs none.
        code: runs the user's code, programs of MCP servers and Math; None where there are none.
        problems: records that the import is running, or why it failed.
        stop: ends the wait for the import.
        about: attributes of all spans of traces.

    Returns:
        The components, with refusals where something cannot be used; None where ``stop`` was set
        before the import finished.
    """
    problems.note(TOPIC, "is being imported")
    work = _user_code(spec, code, problems)
    loading, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait({loading, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not loading.done():
        loading.cancel()
        return None
    added: dict[str, AsyncScorer] = {}
    users: Users = _no_user
    browser: Browser | None = None
    traces: Traced = Untraced()
    refusals: tuple[Refusal, ...] = ()
    try:
        user_code = loading.result()
        users = users_of(spec.agent, failovers)
        browser = browser_of(spec.agent, failovers)
        added = {**user_code.scorers, **judges(spec.reward, failovers)}
        if sandbox is not None:
            added[CODE] = CodeScorer(sandbox)
        if code is not None:
            added[MATH] = MathScorer(code)
        section = spec.training.tracking.traces
        traces = tracing_of(section, service=SERVICE, about=about or {}, clients=True)
    except RefusedError as error:
        problems.note(TOPIC, str(error))
        user_code, refusals = UserCode(), (error.refusal,)
    else:
        problems.clear(TOPIC)
    scorers = Scorers(added)
    known = sorted(
        {*scorers.known, *(scorer.kind for scorer in spec.reward.scorers if scorer.is_own)}
    )
    return Components(
        user_code=user_code,
        scorers=scorers,
        users=users,
        browser=browser,
        tools=_tools(spec.agent, user_code, sandbox, failovers),
        known=known,
        traces=traces,
        refusals=refusals,
    )
