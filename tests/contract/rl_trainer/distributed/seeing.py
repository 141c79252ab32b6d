"""Training of a tiny vision-language model, on one process or on a mesh, with the same images."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rl_contracts.spec.parallelism import MeshSizes
from rl_contracts.spec.resources import RLJobSpec
from rl_trainer import inputs
from rl_trainer.algorithm.samples import Sample
from rl_trainer.distributed.world import World
from rl_trainer.model import loading, weights
from rl_trainer.model.learner import Learner
from tests.contract.rl_trainer.distributed import parity, ranks
from tests.contract.rl_trainer.distributed.parity import Seen
from tests.models.tiny_vision import Album, AlbumStore, seeing_sample

SHOWN: tuple[tuple[tuple[int, int], ...], ...] = ((), ((2, 3),), (), ((1, 1), (4, 2)), (), ())
"""Images of each sample, in tokens; most have none, so that a rank may have a row without any."""
FEATURES: dict[str, dict[str, Any]] = {
    "GRPO": {},
    "reference": {
        "training": {"gradientCheckpointing": True},
        "algorithm": {"kl": {"estimator": "K3", "coefficient": 0.1}},
    },
    "LoRA": {
        "training": {"lora": {"rank": 3}},
        "algorithm": {"kl": {"estimator": "K3", "coefficient": 0.1}},
    },
}


def train(world: World, folder: Path, *, family: str) -> dict[str, Seen]:
    """Three steps of each feature on this rank."""
    results = {}
    for feature, sections in FEATURES.items():
        album = Album()
        mine = _learner(world, folder, album, sections)
        updates = [
            mine.update(_samples(album, family, step), step=step)
            for step in range(1, parity.STEPS + 1)
        ]
        results[feature] = Seen(
            losses=[update.loss for update in updates],
            norms=[update.gradient_norm for update in updates],
            weights=weights.snapshot(mine.policy, precision="FP32", world=world),
        )
    return results


def _learner(world: World, folder: Path, album: Album, sections: dict[str, Any]) -> Learner:
    training = {
        "steps": parity.STEPS,
        "precision": "FP32",
        "maxTokensPerMicrobatch": 64,
        "optimizer": {"learningRate": 1e-3, "epsilon": 1e-5, "maxGradientNorm": 0.5},
        **sections.get("training", {}),
    }
    spec = RLJobSpec.model_validate(ranks.SPEC | sections | {"training": training})
    policy = loading.load(
        folder,
        precision="FP32",
        uri=parity.URI,
        recompute=bool(spec.training.gradient_checkpointing),
        divided=world.mesh is not None,
        images=AlbumStore(album),
    )
    return Learner(policy, spec, adapter=inputs.adapter_of(folder, policy, spec), world=world)


def _samples(album: Album, family: str, step: int) -> list[Sample]:
    generator = torch.Generator().manual_seed(step)
    made = [
        seeing_sample(album, family, *sizes, seed=10 * step + number)
        for number, sizes in enumerate(SHOWN)
    ]
    return [
        replace(
            each,
            group=f"group-{number % 2}",
            token_advantages=torch.randn(int(each.mask.sum()), generator=generator),
        )
        for number, each in enumerate(made)
    ]


def on_mesh(sizes: MeshSizes, folder: Path, scratch: Path, *, family: str) -> dict[str, Seen]:
    """The same on all ranks of a mesh; losses of all of them are equal."""
    work = partial(train, family=family)
    first, *others = ranks.together(work, mesh=sizes, folder=folder, scratch=scratch)
    for other in others:
        for feature in FEATURES:
            assert other[feature].losses == first[feature].losses, (feature, "ranks differ")
    return dict(first)


def compare(family: str, sizes: MeshSizes, folder: Path, scratch: Path, *, alone: World) -> None:
    """Assert that a mesh trains as one process does."""
    expected = train(alone, folder, family=family)
    seen = on_mesh(sizes, folder, scratch, family=family)
    for feature in FEATURES:
        gap = parity.gap(seen[feature], expected[feature])
        assert gap.largest < parity.TOLERANCE, (feature, gap)
