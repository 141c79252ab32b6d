"""Host memory that a trainer's processes need to load a model.

A model of 114 million parameters in bfloat16 (229 MB; with --quick 3 layers of 12) is loaded for
training in float32 (457 MB): by one process, and by four over gloo that divide it, on each of
several meshes. Ratios are of a process's memory at its highest, above that before, to the bytes of
the whole float32 model. Counted is memory that is the process's own (``RssAnon``), not the pages
of the files, which the kernel may drop. ``parts`` is what the process holds in the end. ``whole``
is the same where each process loads the whole model before it is divided.
"""

from __future__ import annotations

import gc
import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import TypedDict

from benchmarks.support.result import Result, is_quick
from benchmarks.support.samplers import write_large
from rl_contracts.spec.parallelism import MeshSizes
from rl_trainer.distributed.world import ALONE, World
from rl_trainer.model import loading
from rl_trainer.model.parallel import sharding
from rl_trainer.model.parallel.on_mesh import divided
from tests.contract.rl_trainer.distributed import ranks
from tests.models.tiny_model import save_tiny

STATUS = Path("/proc/self/status")
POLL_SECONDS = 0.001
FULL = 4
"""Bytes of a float32 number."""
MESHES = (MeshSizes(fsdp=4), MeshSizes(fsdp=2, tp=2), MeshSizes(replicate=2, fsdp=2))


BAR = 1.1
"""Most that a process may need, to the part that it holds in the end."""


class Figures(TypedDict):
    """Of one process, as ratios to the bytes of the whole model in float32."""

    peak: float
    parts: float


def main() -> None:
    """Measure and print."""
    layers = 3 if is_quick(__doc__) else 12
    result = Result("trainer.loading_memory")
    with tempfile.TemporaryDirectory() as name:
        folder = write(Path(name), layers=layers)
        for sizes in (None, *MESHES):
            figures = measured(Path(name), folder, mesh=sizes)
            label = "one process" if sizes is None else str(sizes)
            result.figures[label] = figures
            worst = max(each["peak"] / each["parts"] for each in figures)
            result.at_most(f"{label}: peak to part", worst, BAR)
        result.figures["whole, fsdp 4"] = measured(Path(name), folder, mesh=MESHES[0], whole=True)
    result.print()


def write(folder: Path, *, layers: int) -> Path:
    """Write the model into a folder, and beside it a tiny one; the model's folder."""
    save_tiny(folder / "tiny")
    (folder / "model").mkdir()
    write_large(folder / "model", dtype="bfloat16", layers=layers)
    return folder / "model"


def measured(
    scratch: Path, folder: Path, *, mesh: MeshSizes | None, whole: bool = False
) -> list[Figures]:
    """Load a model in processes of their own; each one's figures.

    Args:
        scratch: for what the processes write.
        folder: the model, of ``write``.
        mesh: how they divide it; None: there is one process, which does not.
        whole: each loads the whole model first.
    """
    work = partial(load, whole=whole, alone=mesh is None)
    return ranks.together(work, mesh=mesh, folder=folder, scratch=scratch)


def load(world: World, folder: Path, *, whole: bool, alone: bool) -> Figures:
    """Load a model on this rank."""
    world = ALONE if alone else world
    load_one(world, folder.parent / "tiny", whole=whole)  # imports what is imported late
    gc.collect()
    before = own_bytes()
    with Peak() as peak:
        parts, total = load_one(world, folder, whole=whole)
    return {"peak": round((peak.bytes - before) / total, 3), "parts": round(parts / total, 3)}


def load_one(world: World, folder: Path, *, whole: bool) -> tuple[int, int]:
    """Bytes of this rank's parameters, and of all."""
    apart = world.mesh is not None and not whole
    policy = loading.load(folder, precision="BF16", uri="s3://m/m", divided=apart)
    parameters = list(divided(policy, world).parameters().values())
    parts = sum(sharding.part(each.detach()).nbytes for each in parameters)
    return parts, sum(each.numel() * FULL for each in parameters)


def own_bytes() -> int:
    """Memory of this process that belongs to no file."""
    (line,) = (line for line in STATUS.read_text().splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


class Peak:
    """The most memory of this process while the block runs."""

    def __init__(self) -> None:
        self.bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(POLL_SECONDS):
            self.bytes = max(self.bytes, own_bytes())


if __name__ == "__main__":
    main()
