"""From the end of a step to every sampler serving the policy: broadcast_latency with engines.

A real trainer's publisher, MinIO, store, and one and two samplers: an agent and an SGLang on the
CPU each, with 114 million parameters in bfloat16 (228 MB; with --quick 3 layers of 12), as a delta
of 1.5 % changed values. Timed from the snapshot's hand-over until each agent says that its engine
serves the version; agents look for one every 0.3 s. Encode and upload are the publisher's; making
(download, copy, apply), verifying and the pause are each agent's own figures.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.broadcast_latency import Split
from benchmarks.bucket import stepped
from benchmarks.result import Result, is_quick
from benchmarks.samplers import Publisher, World, running_world, scratch, write_large
from benchmarks.update_pause import metric
from rl_contracts.spec.storage import Delta

SAMPLERS = (1, 2)
ROUNDS = 6
MADE = re.compile(r"version (\d+) was made in ([\d.]+) s and verified in ([\d.]+) s")


def main() -> None:
    """Measure and print."""
    quick = is_quick(__doc__)
    result = Result("broadcast_serving")
    for count in SAMPLERS[:1] if quick else SAMPLERS:
        figures = serving(count, layers=3 if quick else 12, rounds=2 if quick else ROUNDS)
        result.figures[f"{count} samplers"] = figures
        print(f"{count} samplers: {figures}", flush=True)
    result.print()


def serving(count: int, *, layers: int, rounds: int) -> dict[str, Any]:
    """Seconds until the last sampler serves, and their split."""
    whole: list[float] = []
    pauses: list[float] = []
    split = Split()
    sections = {"training": {"steps": 1000, "precision": "BF16"}}
    with scratch() as folder:
        tensors = write_large(folder / "model", dtype="bfloat16", layers=layers)
        with running_world(
            folder, folder / "model", dtype="bfloat16", samplers=count, sections=sections
        ) as world:
            publisher = Publisher(world.script, Delta(anchor_every=1000))
            for number in range(rounds + 1):
                tensors = stepped(tensors, number)
                with split.measuring():
                    started = time.perf_counter()
                    version = publisher.publish(tensors).version
                    for pod in world.pods:
                        pod.wait_version(version)
                    whole.append(time.perf_counter() - started)
                pauses += [
                    metric(pod.get("/metrics")[1], "update_pause_last_seconds")
                    for pod in world.pods
                ]
            made = steps_of(world, after=1)
    # The first version of an epoch is full: it is left out.
    return {
        **told("seconds", whole[1:]),
        **{name: round(statistics.median(one[1:]), 3) for name, one in split.times.items()},
        **told("make_seconds", [make for make, _ in made]),
        **told("verify_seconds", [verify for _, verify in made]),
        **told("pause_seconds", pauses[count:]),
    }


def steps_of(world: World, *, after: int) -> list[tuple[float, float]]:
    """Seconds that agents took to make and to verify each version after this one."""
    found = [one for pod in world.pods for one in MADE.findall(pod.log())]
    return [(float(make), float(verify)) for version, make, verify in found if int(version) > after]


def told(name: str, values: Sequence[float]) -> dict[str, float]:
    """Median and maximum."""
    return {
        f"{name}_median": round(statistics.median(values), 3),
        f"{name}_max": round(max(values), 3),
    }


if __name__ == "__main__":
    main()
