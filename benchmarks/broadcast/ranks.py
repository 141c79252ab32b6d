"""What publishing takes of each rank's memory where several train, and how long they hold still.

Ranks over gloo on one machine, a model of 114 million parameters divided among them (FSDP2, and
with four of them on fsdp 2 × tp 2) and
published in bfloat16 (229 MB; with --quick 3 layers of 12) to a real MinIO: in full, then twice
as a delta of about 1.5 % changed values. Megabytes are of the tensors that the rank itself
publishes, and of resident memory at its highest above that before the first snapshot.
"""

from __future__ import annotations

import gc
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.support.bucket import CHANGED, running_bucket
from benchmarks.support.result import Result, is_quick
from benchmarks.support.samplers import write_large
from rl_contracts.spec.parallelism import MeshSizes
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.objects import Objects
from rl_trainer.distributed.channel import ShardResponder
from rl_trainer.distributed.world import World
from rl_trainer.model import loading, weights
from rl_trainer.model.parallel import sharding
from rl_trainer.model.parallel.on_mesh import divided
from rl_trainer.model.policy import Policy
from rl_trainer.publish.policy_shards import PolicyShards
from tests.contract.policy_broadcast.world import Line
from tests.contract.rl_trainer.distributed import ranks

MESHES = (MeshSizes(fsdp=2), MeshSizes(fsdp=4), MeshSizes(fsdp=2, tp=2))
VERSIONS = 3
STATUS, PEAK = Path("/proc/self/status"), Path("/proc/self/clear_refs")
Figures = dict[str, float]


def main() -> None:
    """Measure and print."""
    layers = 3 if is_quick(__doc__) else 12
    result = Result("broadcast.ranks")
    with running_bucket() as bench, tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "model"
        folder.mkdir()
        write_large(folder, dtype="bfloat16", layers=layers)
        for epoch, sizes in enumerate(MESHES, start=1):
            scratch = Path(name) / str(epoch)
            scratch.mkdir()
            work = partial(publish, bench.objects._settings.to_mapping(), epoch)
            outcomes = ranks.together(work, mesh=sizes, folder=folder, scratch=scratch)
            result.figures[str(sizes)] = [figures_of(outcome) for outcome in outcomes]
            print(f"{sizes}: {result.figures[str(sizes)]}", flush=True)
    result.print()


def publish(settings: dict[str, str], epoch: int, world: World, folder: Path) -> list[Figures]:
    """Publish some versions together; this rank's figures of each."""
    policy = divided(loading.load(folder, precision="BF16", uri="s3://m/m", divided=True), world)
    gc.collect()
    objects = Objects(StoreSettings.from_mapping(settings))
    line = Line(objects, world=world, remember=False, epoch=epoch)
    shards = line.shards if world.leads else PolicyShards(objects, ThreadPoolExecutor(1))
    responder = ShardResponder(world, shards, written="policy")
    if not world.leads:
        responder.begin()
    figures, before = [], megabytes("VmRSS")
    for number in range(1, VERSIONS + 1):
        change(policy, seed=number)
        world.gather("changed")
        PEAK.write_text("5")
        started = time.perf_counter()
        own = weights.own_tensors(policy, precision="BF16", world=world)
        held = time.perf_counter() - started
        shards.take(number, own)
        world.gather("taken")
        if world.leads:
            line.publish(own)
        world.gather("published")
        tensors = sum(tensor.nbytes for tensor in own.values()) / 1e6
        above = megabytes("VmHWM") - before
        figures.append({"own_mb": tensors, "peak_mb": above, "snapshot_seconds": held})
    responder.end()
    return figures


def change(policy: Policy, *, seed: int) -> None:
    """Make the next version: some of the parameters become other numbers."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.parameters().values():
            part = sharding.part(parameter.detach())
            part[torch.rand(part.shape, generator=generator) < CHANGED] *= 1.01


def megabytes(name: str) -> float:
    """A line of this process's status."""
    (line,) = (line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024 / 1e6


def figures_of(versions: list[Figures]) -> dict[str, Any]:
    """Figures of the first version, which is full, and of the last, a delta."""
    first, last = versions[0], versions[-1]
    return {
        "own_mb": round(first["own_mb"], 1),
        "peak_mb_full": round(first["peak_mb"], 1),
        "peak_mb_delta": round(last["peak_mb"], 1),
        "snapshot_seconds": round(max(version["snapshot_seconds"] for version in versions), 2),
    }


if __name__ == "__main__":
    main()
