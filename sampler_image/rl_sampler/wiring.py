"""The parts of an agent, put together."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from rl_sampler.agents import AGENTS
from rl_sampler.agents.chat import Chats
from rl_sampler.agents.prompt import PromptError, Prompts, load_prompts
from rl_sampler.completions.outages import Outages
from rl_sampler.engine.assignment import Assignment
from rl_sampler.engine.client import Engine
from rl_sampler.engine.health import EngineHealth
from rl_sampler.engine.passthrough import Passthrough
from rl_sampler.engine.probes import Probes
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving
from rl_sampler.engine.shared_stores import SharedState
from rl_sampler.engine.slots import Slots
from rl_sampler.engine.tally import Tally
from rl_sampler.engine.watch import EngineWatch
from rl_sampler.engine.weights import WeightsFolder
from rl_sampler.episodes.claimer import Claimer
from rl_sampler.episodes.episode import EpisodeRunner
from rl_sampler.episodes.rollout_runner import Player
from rl_sampler.heartbeat import Heartbeat
from rl_sampler.metrics import agent_registry
from rl_sampler.reaper import Reaper
from rl_sampler.tasks.claims import ClaimBook
from rl_sampler.tools.patience import PatientToolbox
from rl_sampler.tools.toolbox import Toolbox
from rl_sampler.user_code.bring import Brought


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """State that the agent's tasks share."""

    assignment: Assignment
    shared: SharedState
    engine: Engine
    health: EngineHealth
    serving: Serving
    tally: Tally
    problems: Problems
    outages: Outages
    weights: WeightsFolder

    def watch(self) -> EngineWatch:
        """Whoever watches the engine."""
        return EngineWatch(
            self.engine, health=self.health, serving=self.serving, problems=self.problems
        )

    def heartbeat(self, brought: Brought) -> Heartbeat:
        """Whoever tells of this sampler."""
        return Heartbeat(
            self.assignment,
            shared=self.shared,
            serving=self.serving,
            tally=self.tally,
            problems=self.problems,
            outages=self.outages,
            scorers=brought.known,
            refusals=brought.refusals,
        )

    def reaper(self) -> Reaper:
        """Whoever takes back what dead samplers hold while no trainer does."""
        return Reaper(self.assignment, shared=self.shared, serving=self.serving)

    def passthrough(self) -> Passthrough:
        """Whoever answers people."""
        return Passthrough(self.engine, serving=self.serving, problems=self.problems)

    def probes(self) -> Probes:
        """Whoever answers the kubelet."""
        return Probes(
            serving=self.serving,
            health=self.health,
            problems=self.problems,
            registry=agent_registry(serving=self.serving, tally=self.tally, problems=self.problems),
            shares_engine=self.assignment.env.engine_runs > 1,
        )


@dataclass(frozen=True, slots=True)
class Claiming:
    """Whoever takes tasks, and whoever keeps them."""

    claimer: Claimer
    book: ClaimBook
    toolbox: PatientToolbox


async def claiming_of(agent: Agent, brought: Brought, watch: EngineWatch) -> Claiming | None:
    """None where no claim could end well: then only the registration is of use."""
    if brought.refusals:
        return None
    unknown = brought.scorers.unknown(agent.assignment.spec.reward)
    if unknown:
        # The operator refuses the job by the scorers that this sampler registers.
        agent.problems.note("scorers", f"this sampler does not know {', '.join(unknown)}")
        return None
    try:
        prompts = await asyncio.to_thread(load_prompts, agent.weights.base)
    except PromptError as error:
        agent.problems.note("tokenizer", str(error))
        return None
    slots, toolbox = Slots(), _toolbox(agent, brought)
    book = ClaimBook(agent.shared)
    claimer = Claimer(
        agent.assignment,
        shared=agent.shared,
        book=book,
        runner=_runner(agent, brought, watch, prompts=prompts, toolbox=toolbox, slots=slots),
        serving=agent.serving,
        slots=slots,
        tally=agent.tally,
        outages=agent.outages,
    )
    return Claiming(claimer, book, toolbox)


def _toolbox(agent: Agent, brought: Brought) -> PatientToolbox:
    spec = agent.assignment.spec
    tools = Toolbox(
        spec.agent.mcp_servers,
        secrets=agent.assignment.env.tool_secrets_folder,
        longest=spec.agent.result_characters,
        tally=agent.tally,
        own=brought.tools,
        browser=brought.browser,
    )
    return PatientToolbox(tools, outages=agent.outages)


def _runner(
    agent: Agent,
    brought: Brought,
    watch: EngineWatch,
    *,
    prompts: Prompts,
    toolbox: PatientToolbox,
    slots: Slots,
) -> EpisodeRunner:
    spec = agent.assignment.spec
    player = Player(
        spec=spec,
        act=brought.own.agent or AGENTS[spec.agent.kind],
        scorers=brought.scorers,
        serving=agent.serving,
        tally=agent.tally,
    )
    return EpisodeRunner(
        spec=spec,
        engine=agent.engine,
        watch=watch,
        chats=Chats(prompts),
        stop_tokens=prompts.stop_tokens,
        toolbox=toolbox,
        player=player,
        users=brought.users,
        shared=agent.shared,
        serving=agent.serving,
        slots=slots,
        tally=agent.tally,
        problems=agent.problems,
    )
