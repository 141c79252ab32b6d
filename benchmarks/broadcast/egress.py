"""What the bucket sends per version to 1, 8 and 32 subscribers, with and without a relay.

Agents' stagers alone, without engines, against a real MinIO; a policy of 8 MB, in full and as a
delta in which 1.5 % of the weights changed, and a joiner three versions after an anchor. Megabytes
of files; manifests come on top. All subscribers, their relays and MinIO share one machine.
"""

from __future__ import annotations

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.support.bucket import policy, running_bucket, stepped
from benchmarks.support.result import Result, is_quick
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.spec.storage import Delta
from rl_contracts.stores.objects import Objects
from rl_sampler.policy.relay.client import PeerTimeouts
from tests.contract.policy_broadcast.relaying import running_pool
from tests.contract.policy_broadcast.world import Line, Subscriber

SUBSCRIBERS = (1, 8, 32)
AT_A_TIME = 8
SIZE = 8 * 10**6


def main() -> None:
    """Measure and print."""
    subscribers = SUBSCRIBERS[:2] if is_quick(__doc__) else SUBSCRIBERS
    result = Result("broadcast.egress")
    with running_bucket() as bench:
        for count in subscribers:
            for relay in (False, True):
                folder = bench.folder / f"{count}-{relay}"
                figures = egress(bench.objects, folder, count, relay=relay)
                name = f"{count} subscribers, {'with' if relay else 'without'} relay"
                result.figures[name] = figures
                print(f"{name}: {figures}", flush=True)
    most = [
        result.figures[f"{subscribers[-1]} subscribers, with relay"][f"{kind}_mb"]
        / result.figures["1 subscribers, without relay"][f"{kind}_mb"]
        for kind in ("full", "delta")
    ]
    what = f"egress to {subscribers[-1]} that relay, of that to one"
    result.at_most(what, max(most), 1.25)
    result.print()


def egress(objects: Objects, folder: Path, count: int, *, relay: bool) -> dict[str, Any]:
    """Bytes that the bucket sends to all subscribers for a version, and the time it takes."""
    epoch = 2 * count + relay
    line = Line(objects, remember=False, delta=Delta(anchor_every=100), epoch=epoch)
    tensors, figures = policy(SIZE), {}
    members = count if relay else 0
    with running_pool(objects, folder, tensors, count=members, timeouts=PeerTimeouts()) as pool:
        homes = pool.members or [
            Subscriber.make(folder / str(index), objects, tensors) for index in range(count)
        ]
        for label in ("full", "delta", "delta", "delta"):
            pointer = line.publish(tensors)
            before, started = sum(sum(home.received) for home in homes), time.perf_counter()
            if relay:
                pool.stage(pointer)
            else:
                stage(homes, pointer)
            figures[f"{label}_seconds"] = round(time.perf_counter() - started, 2)
            sent = sum(sum(home.received) for home in homes) - before
            figures[f"{label}_mb"] = round(sent / 1e6, 3)
            tensors = stepped(tensors, line.version)
        joiner = (
            pool.join(registered=False)
            if relay
            else Subscriber.make(folder / "joiner", objects, tensors)
        )
        joiner.stage(line.pointers[line.version])
        figures["joiner_mb"] = round(sum(joiner.received) / 1e6, 3)
        if relay:
            figures["fallbacks"] = sum(relay.traffic.fallbacks for relay in pool.relays)
    shutil.rmtree(folder)
    return figures


def stage(homes: list[Subscriber], pointer: PolicyPointer) -> None:
    """Everyone stages a version; a few at a time."""
    with ThreadPoolExecutor(AT_A_TIME) as threads:
        jobs = [
            threads.submit(home.stage, pointer, keep=list(home.weights.policies.glob("0*-ab")))
            for home in homes
        ]
    for job in jobs:
        job.result()


if __name__ == "__main__":
    main()
