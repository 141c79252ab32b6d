"""One sampler, sixteen, one again under load: until they serve, what is lost, what is wasted.

The agents are the real ones, each a process that stages, registers, claims, samples, scores and
drains as in its pod, on a real store and bucket. Their engines are stand-ins of a given pace
(``lab/paced_engine.py``), for sixteen engines do not fit this machine, and the nodes
of kwok run none. What Kubernetes adds, from ``/scale`` to the start of a container, is not measured
here: ``operator.scale`` has the operator's share, and images and nodes decide the rest.
"""

from __future__ import annotations

import signal
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.operator.lab.paced_engine import PacedEngine, listening
from benchmarks.support.result import Result, is_quick
from benchmarks.support.samplers import scratch
from rl_contracts.documents.sampler import SamplerState
from rl_contracts.documents.task import TaskState
from rl_contracts.stores.connect import Stores
from tests.contract.rl_sampler.pods import Pod, new_pod, start_run
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.contract.rl_sampler.tiny_model import write_model
from tests.servers import free_port, running_minio, running_store, settings_of
from tests.waiting import until

MANY, QUICK_MANY = 16, 4
GROUP, AT_ONCE, TOKENS, PACE = 4, 4, 64, 20.0
"""Members of a group, groups of a sampler at a time, tokens of an episode, tokens per second."""
STEADY_SECONDS = 10.0
"""That all serve before they are to go."""
SERVING = "serves version 1"


@dataclass
class World:
    """Stores, a run, and pods with an engine each."""

    script: ScriptedTrainer
    pods: list[Pod]
    engines: list[PacedEngine]
    tasks: list[str] = field(default_factory=list)

    def load(self, groups: int) -> None:
        """Insert so many groups."""
        self.tasks += self.script.insert(groups, group_size=GROUP)

    def waiting(self) -> int:
        """Groups that nobody has claimed."""
        states = self.script.states(self.tasks).values()
        return sum(state == TaskState.PENDING for state in states)

    def done(self) -> int:
        """Groups that are complete."""
        return sum(state == TaskState.DONE for state in self.script.states(self.tasks).values())


def main() -> None:
    """Measure and print."""
    many = QUICK_MANY if is_quick(__doc__) else MANY
    result = Result("operator.elastic")
    with scratch() as folder, running_world(folder, many) as world:
        first, *others = world.pods
        world.load(2 * AT_ONCE)
        start(first)
        until(lambda: world.done() >= AT_ONCE, what="the first groups of one sampler")
        result.figures["samplers"] = many
        result.figures["groups_per_second_of_one"] = throughput(world)
        grow(result, world, others)
        result.figures["groups_per_second_of_all"] = throughput(world)
        shrink(result, world, others)
        end(result, world)
    result.print()


@contextmanager
def running_world(folder: Path, many: int) -> Iterator[World]:
    """Stores, stand-in engines, and pods whose agents do not run yet."""
    with ExitStack() as stack:
        for name in ("store", "minio"):
            (folder / name).mkdir()
        write_model(folder / "model")
        mongo = stack.enter_context(running_store(folder / "store"))
        settings = settings_of(mongo, stack.enter_context(running_minio(folder / "minio")))
        stores = stack.enter_context(closing(Stores.connect(settings, patience_seconds=60)))
        stores.mongo.ensure_indexes()
        stores.objects.make_bucket()
        script = start_run(stores, folder / "model")
        script.publish(seed=1)
        engines = [PacedEngine(port=free_port(), tokens_per_second=PACE) for _ in range(many)]
        stack.enter_context(listening(engines))
        pods = [
            new_pod(
                folder / f"pod-{number}",
                engine_url=engine.url,
                settings=settings,
                stores=stores,
                sections=sections(),
            )
            for number, engine in enumerate(engines)
        ]
        for pod in pods:
            stack.callback(kill, pod)
        yield World(script, pods, engines)


def sections() -> dict[str, Any]:
    """Of the job."""
    template = {"autoscaling": {"minReplicas": 1}, "maxConcurrentGroups": AT_ONCE}
    sampling = {"maxTokensPerTurn": TOKENS, "maxContextTokens": 2 * TOKENS}
    return {
        "agent": {"sampling": sampling},
        "samplers": [{"name": "main", "template": template}],
    }


def start(pod: Pod) -> float:
    """Bring a pod up as the kubelet does; seconds until it serves the published policy."""
    began = time.monotonic()
    staged = pod.stage()
    if staged.returncode != 0:
        raise RuntimeError(f"{pod.folder.name} is not staged: {staged.stderr.decode()[-2000:]}")
    pod.serve()
    until(lambda: pod.get("/ready")[1].startswith(SERVING), what=f"{pod.folder.name} to serve")
    return time.monotonic() - began


def kill(pod: Pod) -> None:
    """End what is left of it."""
    if pod.process is not None:
        pod.signal(signal.SIGKILL)


def keep_loaded(world: World) -> None:
    """There is always more to claim than all samplers can take."""
    if world.waiting() < 2 * AT_ONCE * len(world.pods):
        world.load(4 * AT_ONCE * len(world.pods))


def throughput(world: World) -> float:
    """Groups per second for a while."""
    keep_loaded(world)
    before, began = world.done(), time.monotonic()
    while time.monotonic() - began < STEADY_SECONDS:
        time.sleep(1)
        keep_loaded(world)
    return round((world.done() - before) / (time.monotonic() - began), 2)


def grow(result: Result, world: World, others: list[Pod]) -> None:
    """Start all others at once."""
    keep_loaded(world)
    with ThreadPoolExecutor(len(others)) as kubelets:
        seconds = sorted(kubelets.map(start, others))
    result.figures["until_serving_s"] = {
        "first": round(seconds[0], 2),
        "median": round(statistics.median(seconds), 2),
        "last": round(seconds[-1], 2),
    }
    began = time.monotonic()
    for pod in others:
        pod.wait_document(lambda sampler: sampler.groups_running > 0, what="a claim")
    result.figures["all_have_claimed_s"] = round(time.monotonic() - began + seconds[-1], 2)
    print(result.figures, flush=True)


def shrink(result: Result, world: World, others: list[Pod]) -> None:
    """End all others at once, in the middle of their work."""
    done, began = world.done(), time.monotonic()
    with ThreadPoolExecutor(len(others)) as kubelets:
        statuses = list(kubelets.map(lambda pod: pod.signal(signal.SIGTERM), others))
    result.figures["until_drained_s"] = round(time.monotonic() - began, 2)
    result.figures["groups_finished_meanwhile"] = world.done() - done
    drained = [
        sampler for sampler in map(Pod.document, others) if sampler is not None and sampler.drained
    ]
    gone = [sampler for sampler in drained if sampler.state == SamplerState.GONE]
    result.at_most("samplers that did not end in order", len(others) - len(gone), 0)
    result.at_most("agents that ended with an error", sum(map(bool, statuses)), 0)


def end(result: Result, world: World) -> None:
    """Let a sampler do a little more, and count its tokens."""
    claimed = [
        name
        for name, state in world.script.states(world.tasks).items()
        if state != TaskState.PENDING
    ]
    until(lambda: world.script.all_done(claimed), what="all groups that were begun")
    world.pods[0].signal(signal.SIGTERM)
    tasks = world.script.stores.tasks.get(claimed)
    lost = sum(GROUP - len(task.rollouts) for task in tasks.values())
    again = sum(task.attempt > 1 for task in tasks.values())
    kept = sum(rollout.mask.count(1) for rollout in world.script.chosen(sorted(done_of(world))))
    sampled = sum(engine.sampled for engine in world.engines)
    result.figures |= {
        "groups_done": world.done(),
        "groups_begun_again": again,
        "tokens_sampled": sampled,
        "tokens_kept": kept,
    }
    result.at_most("rollouts lost", lost, 0)
    result.figures["tokens_wasted_share"] = round(1 - kept / sampled, 4)


def done_of(world: World) -> list[str]:
    """The groups that are complete."""
    states = world.script.states(world.tasks)
    return [name for name, state in states.items() if state == TaskState.DONE]


if __name__ == "__main__":
    main()
