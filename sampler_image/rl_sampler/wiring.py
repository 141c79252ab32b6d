"""Builds the parts of an agent."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from rl_contracts.documents.sampler import ENVIRONMENT_SERVER, PROGRAM_PODS
from rl_contracts.errors import RefusedError
from rl_contracts.spec.agent.environment import HEADERS_FOLDER
from rl_sampler.agents import AGENTS
from rl_sampler.agents import Agent as Act
from rl_sampler.agents.chat import Chats
from rl_sampler.agents.prompt import PromptError, Prompts, load_prompts
from rl_sampler.code.client import CodeContainer
from rl_sampler.completions.outages import Outages
from rl_sampler.engine.assignment import Assignment
from rl_sampler.engine.client import Engine
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.health import EngineHealth
from rl_sampler.engine.images import RunImages
from rl_sampler.engine.listening import url_of
from rl_sampler.engine.passthrough import Passthrough
from rl_sampler.engine.probes import Probes
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving
from rl_sampler.engine.shared_stores import SharedStores
from rl_sampler.engine.slots import Slots
from rl_sampler.engine.turns import Turns
from rl_sampler.engine.watch import EngineWatch
from rl_sampler.engine.weights import WeightsFolder
from rl_sampler.environments.agent import EnvironmentAgent
from rl_sampler.environments.copies import at_address, at_url
from rl_sampler.environments.server import EnvironmentServer
from rl_sampler.episodes.claimer import Claimer
from rl_sampler.episodes.episode import EpisodeRunner
from rl_sampler.episodes.requested import RequestedEpisodes
from rl_sampler.episodes.rollout_runner import RolloutRunner
from rl_sampler.gateway.server import gateway_host_of
from rl_sampler.gateway.sessions import Sessions
from rl_sampler.heartbeat import Heartbeat
from rl_sampler.metrics import agent_registry
from rl_sampler.reaper import Reaper
from rl_sampler.tasks.claims import ClaimBook
from rl_sampler.tools.images import ToolImages, tool_images
from rl_sampler.tools.toolbox import Toolbox
from rl_sampler.tools.waiting import WaitingToolbox
from rl_sampler.user_code.components import Components
from rl_sampler.user_code.played import RunTests
from rl_sampler.user_code.program_agent import ProgramAgent
from rl_sampler.user_code.program_pods import ProgramPods, ProgramServers


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """State that the agent's asyncio tasks share, and factories of its parts."""

    assignment: Assignment
    shared: SharedStores
    engine: Engine
    health: EngineHealth
    serving: Serving
    counters: Counters
    problems: Problems
    outages: Outages
    weights: WeightsFolder
    code: CodeContainer | None
    """None where the pod has no container ``code``."""
    programs: ProgramPods | None
    """None where programs run in the container ``code``, or there are none."""
    sessions: Sessions
    """Of programs."""
    requested: RequestedEpisodes
    environments: aiohttp.ClientSession
    """For requests to the server of ``agent.environment``; follows no redirects."""

    def watch(self) -> EngineWatch:
        """The watch of the engine."""
        return EngineWatch(
            self.engine, health=self.health, serving=self.serving, problems=self.problems
        )

    def heartbeat(self, components: Components) -> Heartbeat:
        """The heartbeat."""
        return Heartbeat(
            self.assignment,
            shared=self.shared,
            serving=self.serving,
            counters=self.counters,
            problems=self.problems,
            outages=self.outages,
            scorers=components.known,
            refusals=components.refusals,
        )

    def turns(self) -> Turns | None:
        """Turns with the trainer of this pod; None where the engine's devices are its own."""
        if self.assignment.env.turns_folder is None:
            return None
        return Turns(
            self.assignment.env.turns_folder,
            engine=self.engine,
            health=self.health,
            serving=self.serving,
            problems=self.problems,
        )

    def reaper(self) -> Reaper:
        """The reaper of expired claims."""
        return Reaper(self.assignment, shared=self.shared, serving=self.serving)

    def for_people(self) -> web.Application:
        """The API of the served policy, and episodes on request."""
        passthrough = Passthrough(self.engine, serving=self.serving, problems=self.problems)
        application = passthrough.application()
        self.requested.add_to(application)
        return application

    def probes(self) -> Probes:
        """The probes for the kubelet."""
        return Probes(
            serving=self.serving,
            health=self.health,
            problems=self.problems,
            registry=agent_registry(
                serving=self.serving, counters=self.counters, problems=self.problems
            ),
            shares_engine=self.assignment.env.engine_runs > 1,
        )


@dataclass(frozen=True, slots=True)
class Claiming:
    """The claimer of tasks, and what it needs to run."""

    claimer: Claimer
    book: ClaimBook
    runner: EpisodeRunner
    toolbox: WaitingToolbox


async def claiming_of(agent: Agent, components: Components, watch: EngineWatch) -> Claiming | None:
    """The claimer; None where no claim could succeed: then the sampler only registers."""
    if components.refusals:
        return None
    unknown = components.scorers.unknown(agent.assignment.spec.reward)
    if unknown:
        # The operator refuses the job, because this sampler does not register these scorers.
        agent.problems.note("scorers", f"this sampler does not have {', '.join(unknown)}")
        return None
    try:
        section = agent.assignment.spec.agent
        prompts = await asyncio.to_thread(
            load_prompts,
            agent.weights.base,
            section.chat_template_arguments or {},
            template=section.chat_template,
        )
        images = _images(agent)
        of_tools = _tool_images(agent, prompts, images)
    except PromptError as error:
        agent.problems.note("tokenizer", str(error))
        return None
    except RefusedError as error:
        agent.problems.note("images", str(error))
        return None
    slots, environment = Slots(), _environment(agent)
    toolbox = _toolbox(agent, components, environment, of_tools)
    book = ClaimBook(agent.shared)
    runner = _runner(
        agent,
        components,
        watch,
        act=components.user_code.agent or _act(agent, prompts, environment),
        prompts=prompts,
        toolbox=toolbox,
        slots=slots,
        images=images,
    )
    claimer = Claimer(
        agent.assignment,
        shared=agent.shared,
        book=book,
        runner=runner,
        serving=agent.serving,
        slots=slots,
        counters=agent.counters,
        outages=agent.outages,
    )
    return Claiming(claimer, book, runner, toolbox)


def _images(agent: Agent) -> RunImages | None:
    """The run's images; None where the manifest shows none."""
    if agent.assignment.spec.data.images is None:
        return None
    return RunImages(shared=agent.shared, run=agent.assignment.run)


def _tool_images(agent: Agent, prompts: Prompts, images: RunImages | None) -> ToolImages | None:
    """What takes images of tools; None where the policy is shown none. Raises RefusedError."""
    limits = agent.assignment.spec.data.images
    if limits is None or images is None or prompts.placeholders is None:
        return None
    processor = _processor(agent.weights.base)
    return tool_images(limits, processor, side=prompts.placeholders.side, images=images)


def _processor(model: Path) -> dict[str, Any]:
    """The ``preprocessor_config.json`` of a model; empty where it has none that can be read."""
    try:
        content = json.loads((model / "preprocessor_config.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _environment(agent: Agent) -> EnvironmentServer | None:
    section = agent.assignment.spec.agent
    environment = section.environment
    if environment is None:
        return None
    return EnvironmentServer(
        environment,
        servers=at_url(environment.url)
        if environment.url is not None
        else at_address(agent.assignment.env.environments),
        http=agent.environments,
        headers=agent.assignment.env.endpoint_secrets_folder / HEADERS_FOLDER,
        longest=section.result_characters,
        counters=agent.counters,
        problems=agent.problems,
    )


def _act(agent: Agent, prompts: Prompts, environment: EnvironmentServer | None) -> Act:
    spec = agent.assignment.spec
    program = spec.agent.program
    if environment is not None:
        return EnvironmentAgent(server=environment)
    if program is None:
        return AGENTS[spec.agent.kind]
    runs = agent.programs or agent.code
    assert runs is not None
    return ProgramAgent(
        spec=spec,
        program=program,
        chats=Chats(prompts),
        sessions=agent.sessions,
        code=runs,
        url=url_of(gateway_host_of(agent.assignment), agent.assignment.env.gateway_port),
        tests=RunTests(shared=agent.shared, run=agent.assignment.run),
    )


def _toolbox(
    agent: Agent,
    components: Components,
    environment: EnvironmentServer | None,
    images: ToolImages | None,
) -> WaitingToolbox:
    spec = agent.assignment.spec
    if environment is not None:
        return WaitingToolbox(environment, outages=agent.outages, kind=ENVIRONMENT_SERVER)
    if agent.programs is not None:
        servers = ProgramServers(agent.programs, counters=agent.counters)
        return WaitingToolbox(servers, outages=agent.outages, kind=PROGRAM_PODS)
    tools = Toolbox(
        spec.agent.mcp_servers,
        secrets=agent.assignment.env.tool_secrets_folder,
        longest=spec.agent.result_characters,
        counters=agent.counters,
        code=agent.code,
        own=components.tools,
        final={tool.name: tool.answer_argument for tool in spec.agent.final_tools},
        browser=components.browser,
        images=images,
    )
    return WaitingToolbox(tools, outages=agent.outages)


def _runner(
    agent: Agent,
    components: Components,
    watch: EngineWatch,
    *,
    act: Act,
    prompts: Prompts,
    toolbox: WaitingToolbox,
    slots: Slots,
    images: RunImages | None,
) -> EpisodeRunner:
    spec = agent.assignment.spec
    rollout_runner = RolloutRunner(
        spec=spec,
        act=act,
        scorers=components.scorers,
        serving=agent.serving,
        counters=agent.counters,
        traces=components.traces,
    )
    return EpisodeRunner(
        spec=spec,
        engine=agent.engine,
        watch=watch,
        chats=Chats(prompts),
        stop_tokens=prompts.stop_tokens,
        toolbox=toolbox,
        rollout_runner=rollout_runner,
        users=components.users,
        shared=agent.shared,
        serving=agent.serving,
        slots=slots,
        counters=agent.counters,
        problems=agent.problems,
        images=images,
    )
