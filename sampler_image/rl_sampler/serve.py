"""The agent's main program: registers, follows the policy, claims tasks; drains on SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import signal
from concurrent.futures import ThreadPoolExecutor

from rl_contracts.stores.connect import Stores
from rl_sampler.code.client import code_container_of
from rl_sampler.completions.failover import Failovers
from rl_sampler.completions.guard import open_outside
from rl_sampler.completions.outages import Outages
from rl_sampler.engine.assignment import Assignment
from rl_sampler.engine.client import open_session
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.health import EngineHealth
from rl_sampler.engine.key import read_key
from rl_sampler.engine.listening import listening
from rl_sampler.engine.passthrough import serving_people
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving
from rl_sampler.engine.shared_stores import SharedStores
from rl_sampler.engine.turn_server import serving_turns
from rl_sampler.engine.watch import EngineWatch
from rl_sampler.episodes.claimer import Claimer
from rl_sampler.episodes.requested import RequestedEpisodes
from rl_sampler.gateway.server import gateway_host_of, gateway_port_of, serving_gateway
from rl_sampler.gateway.sessions import Sessions
from rl_sampler.policy.follow import PolicyFollower
from rl_sampler.policy.relay.wiring import relay_listening, relay_of
from rl_sampler.policy.stage import Stager
from rl_sampler.policy.verify import run_signature
from rl_sampler.run_watch import RunWatch
from rl_sampler.sandbox.client import sandbox_of
from rl_sampler.user_code.components import Components, load_components
from rl_sampler.user_code.program_pod import purpose
from rl_sampler.user_code.program_pods import program_pods_of
from rl_sampler.wiring import Agent, Claiming, claiming_of

logger = logging.getLogger(__name__)

SPARE_THREADS = 12
STALENESS_SECONDS = 5.0


async def serve(assignment: Assignment, *, stores: Stores) -> None:
    """Serve the run until SIGTERM or SIGINT, then drain."""
    loop = asyncio.get_running_loop()
    threads = assignment.template.max_concurrent_groups + SPARE_THREADS
    loop.set_default_executor(ThreadPoolExecutor(max_workers=threads))
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    problems = Problems()
    startup = assignment.template.engine.startup_seconds
    serving, counters = Serving(adapters=assignment.weights.adapters), Counters()
    key = read_key(assignment.env.engine_key_folder)
    async with (
        open_session(key) as session,
        open_outside() as outside,
        open_outside(redirects=False) as environments,
    ):
        agent = Agent(
            assignment=assignment,
            shared=SharedStores(stores, problems=problems),
            engine=assignment.engine(session),
            health=EngineHealth(startup_seconds=startup, now=loop.time()),
            serving=serving,
            counters=counters,
            problems=problems,
            outages=Outages(serving=serving, problems=problems),
            weights=assignment.weights,
            code=code_container_of(assignment, counters=counters),
            programs=program_pods_of(
                assignment,
                key=stores.objects.shared_token(purpose(assignment.run)),
                counters=counters,
            ),
            sessions=Sessions(),
            requested=RequestedEpisodes(assignment, problems=problems),
            environments=environments,
        )
        failovers = Failovers(
            session=outside,
            secrets=assignment.env.endpoint_secrets_folder,
            counters=counters,
            outages=agent.outages,
        )
        application = agent.probes().application()
        async with (
            listening(application, port=assignment.env.listen_port),
            relay_listening(assignment, stores),
            serving_people(agent.for_people(), port=assignment.env.chat_port),
            serving_gateway(
                agent.sessions,
                port=gateway_port_of(assignment),
                host=gateway_host_of(assignment),
            ),
            serving_turns(agent.turns(), assignment.env.turns_folder),
        ):
            components = await load_components(
                assignment.spec,
                failovers=failovers,
                sandbox=sandbox_of(assignment),
                code=agent.code,
                problems=problems,
                stop=stop,
                about=assignment.about,
            )
            if components is not None:
                try:
                    await _live(agent, components, stop)
                finally:
                    await asyncio.to_thread(components.traces.close)
        await failovers.close()
    logger.info("drained")


async def _live(agent: Agent, components: Components, stop: asyncio.Event) -> None:
    heartbeat, watch = agent.heartbeat(components), agent.watch()
    run_watch = RunWatch(
        agent.shared,
        run=agent.assignment.run,
        serving=agent.serving,
        problems=agent.problems,
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(heartbeat.run(), name="heartbeat")
        background = [
            group.create_task(watch.run(), name="engine watch"),
            group.create_task(run_watch.run(), name="run watch"),
            group.create_task(agent.reaper().run(), name="reaper"),
        ]
        working = group.create_task(_work(agent, components, watch, stop=stop), name="work")
        await stop.wait()
        heartbeat.drain()
        await working
        for task in background:
            task.cancel()
        heartbeat.leave()


async def _work(
    agent: Agent, components: Components, watch: EngineWatch, *, stop: asyncio.Event
) -> None:
    """Follow the policy and claim tasks until ``stop`` is set, then drain."""
    spec = agent.assignment.spec
    follower = PolicyFollower(
        engine=agent.engine,
        health=agent.health,
        stager=Stager(
            agent.shared.stores.objects,
            weights=agent.weights,
            signature=await asyncio.to_thread(run_signature, agent.weights.base, spec),
            relay=relay_of(agent.assignment, agent.shared.stores),
        ),
        weights=agent.weights,
        serving=agent.serving,
        counters=agent.counters,
        problems=agent.problems,
        sync=spec.weight_sync,
    )
    async with asyncio.TaskGroup() as group:
        following = group.create_task(follower.run(), name="policy follower")
        claiming = await claiming_of(agent, components, watch)
        if claiming is None:
            await stop.wait()
        else:
            await _claim(claiming, agent, group=group, stop=stop)
        following.cancel()


async def _claim(
    claiming: Claiming, agent: Agent, *, group: asyncio.TaskGroup, stop: asyncio.Event
) -> None:
    claimer = claiming.claimer
    agent.requested.begin(claiming.runner)
    running = group.create_task(claimer.run(group), name="claimer")
    beside = [
        group.create_task(claiming.book.keep_leases(), name="leases"),
        group.create_task(_end_stale(claimer, agent.serving), name="staleness"),
    ]
    await stop.wait()
    agent.requested.stop()
    claimer.stop()
    await running
    await claimer.drain(seconds=agent.assignment.env.drain_seconds)
    for task in beside:
        task.cancel()
    await claiming.toolbox.close()


async def _end_stale(claimer: Claimer, serving: Serving) -> None:
    while True:
        seen = serving.changes
        claimer.end_stale()
        await serving.wait_change(since=seen, seconds=STALENESS_SECONDS)
