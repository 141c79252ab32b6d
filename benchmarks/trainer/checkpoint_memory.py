"""Host memory that ranks need to write a checkpoint, to read it on another mesh, and to export.

A model of 114 million parameters (with --quick 3 layers of 12) in float32 with both of AdamW's
moments (1.4 GB of state), divided among four processes over gloo, and a real MinIO. Ratios are of
a process's own memory at its highest, above that before, to the bytes of the whole state. ``write``
is while its part is copied and uploaded, ``read`` while another process of another mesh reads it
back. ``gathered`` is the same as ``write`` where rank 0 gathers the whole state, as until
2026-11-26. ``export`` is while each process copies and uploads its part of the model, and ``export
gathered`` while rank 0 gathers it, as until then, both to the bytes of the model in float32.
"""

from __future__ import annotations

import gc
import tempfile
from functools import partial
from pathlib import Path
from typing import TypedDict

import torch

from benchmarks.support.bucket import running_bucket
from benchmarks.support.result import Result, is_quick
from benchmarks.support.samplers import write_large
from benchmarks.trainer.loading_memory import Peak, own_bytes
from rl_contracts.documents.manifest import FileEntry, Manifest
from rl_contracts.documents.run import Totals
from rl_contracts.spec.parallelism import MeshSizes
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.files import artifacts
from rl_contracts.stores.files.artifacts import Uploaded
from rl_contracts.stores.objects import Objects
from rl_trainer.checkpoint import export, parts, saved
from rl_trainer.distributed.rank_commands import ExportWeights
from rl_trainer.distributed.world import World
from rl_trainer.model import optimizer
from rl_trainer.model.learner import Learner
from rl_trainer.model.parallel import sharding
from tests.contract.rl_trainer.distributed import ranks

WRITTEN_ON, READ_ON = MeshSizes(fsdp=4), MeshSizes(fsdp=2, tp=2)
BAR = 1.1
"""Most of a process's memory to its share of the state, a quarter."""
KINDS = ("exp_avg", "exp_avg_sq")


class Figures(TypedDict):
    """Of one process: its peak to the bytes of the whole state, and what it wrote."""

    peak: float
    files: list[FileEntry]


def main() -> None:
    """Measure and print."""
    layers = 3 if is_quick(__doc__) else 12
    result = Result("trainer.checkpoint_memory")
    with running_bucket() as bench, tempfile.TemporaryDirectory() as name:
        objects = bench.objects
        settings, prefix = objects._settings.to_mapping(), f"{objects.prefix}checkpoint/"
        folder, scratch = Path(name) / "model", Path(name) / "scratch"
        for each in (folder, scratch):
            each.mkdir()
        write_large(folder, dtype="float32", layers=layers)
        run = partial(ranks.together, folder=folder, scratch=scratch)
        written: list[Figures] = run(partial(write, settings, prefix), mesh=WRITTEN_ON)
        uploaded = commit(objects, prefix, [file for each in written for file in each["files"]])
        peaks = {
            f"write, {WRITTEN_ON}": [each["peak"] for each in written],
            f"read, {READ_ON}": run(partial(read, settings, uploaded), mesh=READ_ON),
            f"gathered, {WRITTEN_ON}": run(gather, mesh=WRITTEN_ON),
            f"export, {WRITTEN_ON}": run(
                partial(export_own, settings, f"{objects.prefix}model/"), mesh=WRITTEN_ON
            ),
            f"export gathered, {WRITTEN_ON}": run(export_gathered, mesh=WRITTEN_ON),
        }
        result.figures.update(peaks)
        share = 1 / WRITTEN_ON.processes
        for label in list(peaks)[:2]:
            result.at_most(f"{label}: peak to share", max(peaks[label]) / share, BAR)
    result.print()


def commit(objects: Objects, prefix: str, files: list[FileEntry]) -> Uploaded:
    """Make a checkpoint of the parts, as rank 0 does."""
    about = saved.State(step=1, head="", next_sequence=0, totals=Totals(), metrics=[])
    content = about.model_dump_json().encode()
    objects.put(prefix + saved.STATE, content)
    files = [*files, artifacts.entry(saved.STATE, content)]
    manifest = Manifest(kind="checkpoint", run="run", epoch=1, step=1, files=files)
    return artifacts.commit(objects, prefix, manifest)


def begun(world: World, folder: Path, *, moments: bool) -> tuple[Learner, int]:
    """A learner, perhaps with moments as after a step; and the bytes of the whole state."""
    learner = ranks.learner(folder, world)
    for parameter in learner.parameters.values() if moments else ():
        state = {kind: torch.zeros_like(parameter.detach()).fill_(0.5) for kind in KINDS}
        learner.optimizer.state[parameter] = {"step": torch.tensor(1.0), **state}
    gc.collect()
    return learner, 3 * sum(each.numel() * 4 for each in learner.parameters.values())


def write(settings: dict[str, str], prefix: str, world: World, folder: Path) -> Figures:
    """Copy and upload this rank's part."""
    objects = Objects(StoreSettings.from_mapping(settings))
    learner, total = begun(world, folder, moments=True)
    before = own_bytes()
    with Peak() as peak:
        files = parts.write(objects, prefix, saved.copied(learner), rank=world.rank)
    return {"peak": round((peak.bytes - before) / total, 3), "files": files}


def read(settings: dict[str, str], uploaded: Uploaded, world: World, folder: Path) -> float:
    """Read the checkpoint into a learner on this rank; its moments are new, its weights not."""
    objects = Objects(StoreSettings.from_mapping(settings))
    learner, total = begun(world, folder, moments=False)
    before = own_bytes()
    with Peak() as peak:
        checkpoint = saved.read(objects, uploaded.prefix, manifest_sha256=uploaded.manifest_sha256)
        saved.put_back(checkpoint, learner)
    return round((peak.bytes - before) / total, 3)


def gather(world: World, folder: Path) -> float:
    """Have rank 0 gather the state."""
    learner, total = begun(world, folder, moments=True)
    before = own_bytes()
    with Peak() as peak:
        moments = optimizer.state(learner.optimizer, learner.parameters)
        whole = sharding.copies({**learner.parameters, **moments}, world)
    assert bool(whole) is world.leads
    return round((peak.bytes - before) / total, 3)


def export_own(settings: dict[str, str], prefix: str, world: World, folder: Path) -> float:
    """Copy and upload this rank's part of the model."""
    objects = Objects(StoreSettings.from_mapping(settings))
    learner, state = begun(world, folder, moments=False)
    command = ExportWeights(prefix=prefix)
    before = own_bytes()
    with Peak() as peak:
        export.write_own(objects, command, learner.policy, precision="FP32", world=world)
    return round((peak.bytes - before) / (state / 3), 3)


def export_gathered(world: World, folder: Path) -> float:
    """Have rank 0 gather the model."""
    learner, state = begun(world, folder, moments=False)
    before = own_bytes()
    with Peak() as peak:
        whole = sharding.copies(learner.parameters, world)
    assert bool(whole) is world.leads
    return round((peak.bytes - before) / (state / 3), 3)


if __name__ == "__main__":
    main()
