"""What the bucket sends per version to 1, 8 and 32 subscribers, without engines.

Agents' stagers alone, eight at a time, against a real MinIO; a policy of 8 MB, in full and as a
delta in which 1.5 % of the weights changed, and a joiner three versions after an anchor. There is
no relay between samplers: everything comes from the bucket.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.bucket import policy, running_bucket, stepped
from benchmarks.result import Result, is_quick
from rl_contracts.spec.storage import Delta
from rl_contracts.stores.objects import Objects
from tests.contract.policy_broadcast.world import Line, Subscriber

SUBSCRIBERS = (1, 8, 32)
AT_A_TIME = 8
SIZE = 8 * 10**6


def main() -> None:
    """Measure and print."""
    subscribers = SUBSCRIBERS[:2] if is_quick(__doc__) else SUBSCRIBERS
    result = Result("broadcast_egress")
    with running_bucket() as bench:
        for count in subscribers:
            figures = egress(bench.objects, bench.folder / f"{count}", count)
            result.figures[f"{count} subscribers"] = figures
            print(f"{count} subscribers: {figures}", flush=True)
    result.print()


def egress(objects: Objects, folder: Path, count: int) -> dict[str, Any]:
    """Megabytes that the bucket sends for one version, all subscribers together."""
    line = Line(objects, remember=False, delta=Delta(anchor_every=100), epoch=count)
    tensors = policy(SIZE)
    homes = [Subscriber.make(folder / str(one), objects, tensors) for one in range(count)]
    figures = {}
    for label in ("full", "delta", "delta", "delta"):
        pointer = line.publish(tensors)
        before = [sum(one.received) for one in homes]
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            jobs = [
                pool.submit(one.stage, pointer, keep=list(one.weights.policies.glob("0*-ab")))
                for one in homes
            ]
        for job in jobs:
            job.result()
        sent = sum(sum(one.received) for one in homes) - sum(before)
        figures[f"{label}_mb"] = round(sent / 1e6, 3)
        tensors = stepped(tensors, line.version)
    joiner = Subscriber.make(folder / "joiner", objects, tensors)
    joiner.stage(line.pointers[line.version])
    figures["joiner_mb"] = round(sum(joiner.received) / 1e6, 3)
    shutil.rmtree(folder)
    return figures


if __name__ == "__main__":
    main()
