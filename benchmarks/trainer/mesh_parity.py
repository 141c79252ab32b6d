"""How far training on a mesh is from training on one process.

Tiny models (dense, a mixture of experts, DeepSeek's form) train three steps of GRPO with a
reference in the loss, clipped gradients and several updates a step, on each mesh of two and four
gloo processes. Losses, gradient norms and published weights are compared with one process. Samples
are ragged and packed; rounding is all that may differ.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.support.result import Result, chosen_cases
from rl_contracts.spec.parallelism import MeshSizes
from rl_trainer.distributed.world import ALONE
from tests.contract.rl_trainer.distributed import parity

FEATURES = ("GRPO", "reference")
BAR = 20.0
"""Millionths: of a loss, of a weight, and of a gradient norm as a share of it."""


def cases() -> Iterator[tuple[str, str, MeshSizes]]:
    """Each model on each of its meshes."""
    for model in ("dense", *parity.EXPERT_MODELS):
        experts = parity.EXPERT_MESHES if model in parity.EXPERT_MODELS else {}
        for name, sizes in (parity.MESHES | experts).items():
            if model != "latent" or sizes.tp * sizes.cp * sizes.ep > 1:
                yield model, name, sizes


def main() -> None:
    """Train and print."""
    known = {f"{model} on {name}": (model, sizes) for model, name, sizes in cases()}
    names, _ = chosen_cases(__doc__, known)
    result = Result("trainer.mesh_parity")
    with tempfile.TemporaryDirectory() as name:
        folder, scratch = Path(name), Path(name) / "scratch"
        scratch.mkdir()
        models = sorted({known[case][0] for case in names})
        folders = {model: parity.save_model(model, folder / model) for model in models}
        alone = {model: parity.train(ALONE, folders[model], features=FEATURES) for model in models}
        for case in names:
            model, sizes = known[case]
            seen = parity.on_mesh(sizes, folders[model], scratch, features=FEATURES)
            gaps = [parity.gap(seen[each], alone[model][each]) for each in FEATURES]
            for what in ("loss", "norm", "weights"):
                largest = max(getattr(gap, what) for gap in gaps)
                result.at_most(f"{case}: {what}, millionths", 1e6 * largest, BAR)
            print(case, gaps, flush=True)
    result.print()


if __name__ == "__main__":
    main()
