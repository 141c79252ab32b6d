"""Many agents in one process: their real code, with a pace in the place of engine and download.

Each has a client of the document store of its own, as in a pod.
"""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from benchmarks.sampler.protocol import command_counts, remote, slowed
from benchmarks.sampler.protocol.paces import (
    SLOTS,
    PacedEngine,
    PacedRollouts,
    PacedRunner,
    PacedStager,
)
from benchmarks.sampler.protocol.stores import connected, settings_of
from rl_contracts import env
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.objects import Objects
from rl_sampler import serve
from rl_sampler.completions.outages import Outages
from rl_sampler.engine.assignment import Assignment, load_assignment
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.health import EngineHealth
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.protocol import ServerInfo
from rl_sampler.engine.serving import Serving
from rl_sampler.engine.shared_stores import SharedStores
from rl_sampler.engine.slots import Slots
from rl_sampler.episodes.claimer import Claimer
from rl_sampler.episodes.requested import RequestedEpisodes
from rl_sampler.gateway.sessions import Sessions
from rl_sampler.policy.follow import PolicyFollower
from rl_sampler.program import STORE_CONNECTIONS
from rl_sampler.run_watch import RunWatch
from rl_sampler.tasks.claims import ClaimBook
from rl_sampler.wiring import Agent, Claiming
from tests.samples.manifests import a_job

THREADS = 256
START_SECONDS = 4.0
"""Agents start within this time, not all at once."""


def assignment_of(number: int, folder: Path, *, relay: bool) -> Assignment:
    """What the pod of an agent has."""
    spec = folder / "rljob.json"
    if not spec.exists():
        spec.write_text(json.dumps(a_job()["spec"]))
    weights = folder / f"weights-{number}"
    weights.mkdir()
    relayed = {env.RELAY_PORT: "7001", env.POD_IP: "10.0.0.1"} if relay else {}
    return load_assignment(
        {
            env.NAMESPACE: "ns",
            env.JOB: "job",
            env.RUN: "run1",
            env.POOL: "main",
            env.POD_NAME: f"fleet-main-{number:05d}",
            env.POD_UID: f"00000000-0000-0000-0000-{number:012d}",
            env.SPEC_FILE: str(spec),
            env.STORES_FOLDER: str(folder),
            env.WEIGHTS_FOLDER: str(weights),
            env.ENGINE_URL: "http://127.0.0.1:1",
            env.LISTEN_PORT: "7000",
            env.DRAIN_SECONDS: "25",
            env.TOOL_SECRETS_FOLDER: str(folder),
            env.ENDPOINT_SECRETS_FOLDER: str(folder),
            **relayed,
        }
    )


def assignments_of(given: dict[str, Any]) -> list[Assignment]:
    """What the pods of this process's agents have."""
    folder = Path(given["folder"])
    folder.mkdir(parents=True)
    numbers = range(given["first"], given["end"])
    return [assignment_of(number, folder, relay=given["relay"]) for number in numbers]


async def live(assignment: Assignment, stores: Stores, *, after: float) -> None:
    """One agent's loops, as in ``serve``, but for the watch of its engine."""
    await asyncio.sleep(after)
    problems, counters = Problems(), Counters()
    serving = Serving(
        engine=ServerInfo(version="0.5", max_running_requests=SLOTS, max_req_input_len=4096)
    )
    agent = Agent(
        assignment=assignment,
        shared=SharedStores(stores, problems=problems),
        engine=cast(Any, PacedEngine()),
        health=EngineHealth(startup_seconds=60, now=0.0),
        serving=serving,
        counters=counters,
        problems=problems,
        outages=Outages(serving=serving, problems=problems),
        weights=assignment.weights,
        code=None,
        programs=None,
        sessions=Sessions(),
        requested=RequestedEpisodes(assignment, problems=problems),
        environments=cast(Any, None),
    )
    components = cast(Any, SimpleNamespace(known=["ExactMatch"], refusals=[]))
    claiming, follower = _claiming(agent), _follower(agent)
    watch = RunWatch(agent.shared, run=assignment.run, serving=serving, problems=problems)
    async with asyncio.TaskGroup() as group:
        group.create_task(agent.heartbeat(components).run())
        group.create_task(watch.run())
        group.create_task(agent.reaper().run())
        group.create_task(follower.run())
        await serve._claim(claiming, agent, group=group, stop=asyncio.Event())


def _follower(agent: Agent) -> PolicyFollower:
    return PolicyFollower(
        engine=agent.engine,
        health=agent.health,
        stager=cast(Any, PacedStager(agent)),
        weights=agent.weights,
        serving=agent.serving,
        counters=agent.counters,
        problems=agent.problems,
        sync=agent.assignment.spec.weight_sync,
    )


def _claiming(agent: Agent) -> Claiming:
    book, slots, nothing = ClaimBook(agent.shared), Slots(), cast(Any, None)
    runner = PacedRunner(
        spec=agent.assignment.spec,
        engine=nothing,
        watch=nothing,
        chats=nothing,
        stop_tokens=(),
        toolbox=nothing,
        rollout_runner=cast(Any, PacedRollouts(agent.serving)),
        users=nothing,
        shared=agent.shared,
        serving=agent.serving,
        slots=slots,
        counters=agent.counters,
        problems=agent.problems,
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
    return Claiming(claimer, book, runner, nothing)


async def run(given: dict[str, Any]) -> None:
    """Run all agents of this process until it is killed."""
    counts = command_counts.registered()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
    objects = Objects(settings_of(given["uri"]))
    assignments = assignments_of(given)
    remote.answer_in_thread(counts, {})
    async with asyncio.TaskGroup() as group:
        for index, assignment in enumerate(assignments):
            after = START_SECONDS * index / len(assignments)
            stores = connected(given["uri"], objects, connections=STORE_CONNECTIONS)
            group.create_task(live(assignment, stores, after=after))


def main() -> None:
    """Run in slowed time."""
    with asyncio.Runner(loop_factory=slowed.new_loop) as runner:
        runner.run(run(remote.given()))
