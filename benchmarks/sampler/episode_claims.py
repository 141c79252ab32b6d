"""How long an episode waits for a pod of its own: ``agent.program.runsIn: EpisodePod``.

Twenty pods stand ready, as processes with the real server. The agent's client claims them: from the
start of the call until the pod is its own. It is given the addresses of all pods, used ones too, as
the name service has them until a probe has failed. Pods are replaced between rounds. All claims of
a round are of one agent, or each of an agent of its own, which knows nothing of the others' claims.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from functools import partial
from pathlib import Path

from benchmarks.support.result import Result, is_quick
from benchmarks.support.samplers import scratch
from rl_contracts.ids import RunId
from rl_sampler.engine.counters import Counters
from rl_sampler.user_code import program_pods
from rl_sampler.user_code.program_pod import purpose
from tests.kube.episode_pods import SETTINGS, EpisodePods
from tests.servers import free_port
from tests.waiting import until

RUN = RunId("run")
PODS, BAR_SECONDS = 20, 0.5
CASES = ((1, 1), (10, 1), (10, 10), (20, 1), (20, 20))
"""Claims at once, and agents that make them."""
ROUNDS = {1: 20, 10: 12, 20: 6}
"""By claims at once; so many that a 99th percentile is one of them."""


def main() -> None:
    """Measure and print."""
    quick = is_quick(__doc__)
    result = Result("sampler.episode_claims")
    with scratch() as folder:
        for at_once, agents in CASES:
            rounds = 1 if quick else ROUNDS[at_once]
            place = folder / f"{at_once}-{agents}"
            seconds = claims(place, at_once=at_once, agents=agents, rounds=rounds)
            name = f"{at_once} at once of {agents} agents"
            slowest = percentile(seconds, 0.99)
            result.figures[name] = {
                "claims": len(seconds),
                "median_ms": round(1000 * statistics.median(seconds), 1),
                "p99_ms": round(1000 * slowest, 1),
            }
            result.at_most(f"99th percentile of a claim, {name}, seconds", slowest, BAR_SECONDS)
    result.print()


def claims(folder: Path, *, at_once: int, agents: int, rounds: int) -> list[float]:
    """Seconds of each claim, in rounds of so many at a time."""
    pods = EpisodePods(folder, run=RUN, settings=SETTINGS, port=free_port())
    measured: list[float] = []
    with pods.serving(PODS):
        for number in range(1, rounds + 1):
            measured += asyncio.run(claimed(pods, at_once, agents=agents))
            until(partial(fresh, pods, replaced=number * at_once), what="new pods")
    return measured


def fresh(pods: EpisodePods, *, replaced: int) -> bool:
    """Whether all used pods were replaced, and all pods are ready."""
    return pods.replaced == replaced and all(pod.ready for pod in pods.pods)


class Client(program_pods.EpisodePods):
    """The client of an agent, with a name service that knows these pods."""

    def __init__(self, pods: EpisodePods) -> None:
        """Claim any of these pods."""
        key = SETTINGS.shared_token(purpose(RUN))
        super().__init__("127.0.0.1:1", key=key, counters=Counters())
        self._pods = pods

    async def _look_up(self) -> list[program_pods.Place]:
        return [("127.0.0.1", pod.port) for pod in self._pods.pods]


async def claimed(pods: EpisodePods, at_once: int, *, agents: int) -> list[float]:
    """Claim so many pods at the same time; seconds that each took."""
    enough = asyncio.Barrier(at_once)
    clients = [Client(pods) for _ in range(agents)]
    claims = (claim(clients[number % agents], enough) for number in range(at_once))
    return list(await asyncio.gather(*claims))


async def claim(client: Client, enough: asyncio.Barrier) -> float:
    """Claim a pod, and keep it until all have theirs."""
    began = time.monotonic()
    async with client.call({"call": "ping"}):
        seconds = time.monotonic() - began
        await enough.wait()
    return seconds


def percentile(values: list[float], share: float) -> float:
    """The smallest value that so large a share of all does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


if __name__ == "__main__":
    main()
