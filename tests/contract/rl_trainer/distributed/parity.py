"""Training on a mesh compared with training on one process: tiny models, the same samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from rl_contracts.spec.parallelism import MeshSizes
from rl_contracts.spec.resources import RLJobSpec
from rl_trainer import inputs
from rl_trainer.algorithm.samples import Sample
from rl_trainer.distributed.world import World
from rl_trainer.model import loading, weights
from rl_trainer.model.experts import routers
from rl_trainer.model.learner import Learner
from tests.contract.rl_trainer.distributed import ranks
from tests.models import states
from tests.models.families import FAMILIES, SIZES
from tests.models.tiny_model import VOCABULARY

URI = "s3://models/tiny"
STEPS = 3
REPLAY, EXPERT_LORA = "routing replay", "LoRA on experts, with routing replay"
ROUTED = (REPLAY, EXPERT_LORA)
"""Features whose samples come with an engine's choices of experts."""
STATEFUL = "everything"
"""The feature whose state has all parts: critic, moments, refreshed reference."""
TOLERANCE = 2e-5
"""Largest difference of a loss, a gradient norm (relative) or a weight after three steps."""
COMMON: dict[str, Any] = {"vocab_size": VOCABULARY, "num_key_value_heads": 4, "eos_token_id": 1}
WIDE = {"head_dim": 32, "intermediate_size": 128}
"""Rows of NF4 blocks, on two ranks as well."""
MODELS: dict[str, dict[str, Any]] = {
    "dense": {"model_type": "qwen3", **SIZES, **FAMILIES["qwen3"], **COMMON, **WIDE},
    "untied": {"model_type": "qwen2", **SIZES, **COMMON},
    "mixture": {
        "model_type": "qwen3_moe",
        "mlp_only_layers": [0],
        **SIZES,
        **FAMILIES["qwen3_moe"],
        **COMMON,
    },
    "latent": {"model_type": "deepseek_v3", **SIZES, **FAMILIES["deepseek_v3"], **COMMON},
}
EXPERT_MODELS = ("mixture", "latent")
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
SMALL = {"maxTokensPerMicrobatch": 64}
FEATURES: dict[str, dict[str, Any]] = {
    "GRPO": {"training": SMALL},
    "reference": {
        "training": {**SMALL, "promptsPerUpdate": 2, "passesPerStep": 2},
        "algorithm": {
            "kl": {"estimator": "K3", "coefficient": 0.1, "refreshEverySteps": 2},
            "loss": {"kind": "DecoupledPPO"},
        },
    },
    "distributions": {
        "training": {**SMALL, "gradientCheckpointing": True, "offloadActivations": True},
        "algorithm": {
            "kl": {"estimator": "Full", "coefficient": 0.1},
            "entropyCoefficient": 0.01,
            "loss": {"kind": "GSPO"},
        },
    },
    "critic": {
        "training": SMALL,
        "algorithm": {"estimator": {"kind": "GAE"}, "critic": {"valueClip": 0.2}},
    },
    "LoRA": {
        "training": {**SMALL, "lora": {"rank": 3, "targets": ATTENTION}},
        "algorithm": {"kl": {"estimator": "K3", "coefficient": 0.1}},
    },
    EXPERT_LORA: {
        "training": {**SMALL, "lora": {"rank": 3, "experts": "Adapted"}},
        "algorithm": {
            "kl": {"estimator": "K3", "coefficient": 0.1},
            "experts": {"routing": "Replay"},
        },
    },
    "Int8": {"training": {**SMALL, "lora": {"rank": 3, "quantization": "Int8"}}},
    "NF4": {"training": {**SMALL, "lora": {"rank": 3, "quantization": "NF4"}}},
    "everything": {
        "training": SMALL,
        "algorithm": {
            "estimator": {"kind": "GAE"},
            "critic": {},
            "kl": {"estimator": "K3", "refreshEverySteps": 1},
        },
    },
    "SFT": {"training": SMALL, "algorithm": {"objective": "SFT"}},
    "distillation": {
        "training": SMALL,
        "algorithm": {"objective": "Distillation", "teacher": "s3://models/teacher"},
    },
    "routers": {
        "training": {**SMALL, "promptsPerUpdate": 2, "gradientCheckpointing": True},
        "algorithm": {"experts": {"loadBalanceCoefficient": 0.5, "zLossCoefficient": 0.05}},
    },
    REPLAY: {
        "training": {**SMALL, "gradientCheckpointing": True},
        "algorithm": {"experts": {"routing": "Replay", "zLossCoefficient": 0.05}},
    },
    "offloadOptimizer": {"training": {**SMALL, "offloadOptimizer": True}},
    "offloadParameters": {"training": {**SMALL, "offloadParameters": True}},
}


DENSE_FEATURES = tuple(name for name in FEATURES if name not in ("routers", *ROUTED))
EXPERT_FEATURES = (
    "GRPO",
    "reference",
    "distributions",
    "critic",
    "LoRA",
    EXPERT_LORA,
    "SFT",
    "distillation",
    "routers",
    REPLAY,
    "offloadOptimizer",
    "offloadParameters",
)
"""Layers of experts cannot be quantized."""
_MESHES = (
    MeshSizes(fsdp=2),
    MeshSizes(replicate=2),
    MeshSizes(tp=2),
    MeshSizes(cp=2),
    MeshSizes(fsdp=4),
    MeshSizes(replicate=2, fsdp=2),
    MeshSizes(tp=4),
    MeshSizes(fsdp=2, tp=2),
    MeshSizes(replicate=2, tp=2),
    MeshSizes(cp=4),
    MeshSizes(fsdp=2, cp=2),
    MeshSizes(cp=2, tp=2),
)
MESHES: dict[str, MeshSizes] = {str(sizes): sizes for sizes in _MESHES}
EXPERT_MESHES: dict[str, MeshSizes] = {
    str(sizes): sizes
    for sizes in (
        MeshSizes(fsdp=2, ep=2),
        MeshSizes(tp=2, ep=2),
        MeshSizes(cp=2, ep=2),
        MeshSizes(fsdp=4, ep=2),
        MeshSizes(fsdp=4, ep=4),
        MeshSizes(replicate=2, fsdp=2, ep=2),
        MeshSizes(fsdp=2, tp=2, ep=2),
        MeshSizes(fsdp=2, tp=2, ep=4),
    )
}
"""Meshes whose experts are divided by themselves."""


def features_of(model: str, sizes: MeshSizes) -> tuple[str, ...]:
    """What a model is trained with on a mesh: all that the table in docs says works."""
    if model in EXPERT_MODELS:
        # Latent attention has other projections than those that adapters target.
        left_out = {"LoRA"} if model == "latent" else set()
        if sizes.tp > 1 or sizes.ep > 1:
            left_out.add(EXPERT_LORA)
        return tuple(name for name in EXPERT_FEATURES if name not in left_out)
    blocks = model == "dense" and sizes.tp <= 2  # rows of NF4 blocks: see WIDE
    return tuple(name for name in DENSE_FEATURES if name != "NF4" or blocks)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What three steps gave."""

    losses: list[float]
    """Of the policy and the critic."""
    norms: list[float]
    weights: dict[str, Tensor]
    """Of the policy as it is published, after the last step; on rank 0 alone."""


@dataclass(frozen=True, kw_only=True)
class Gap:
    """Largest differences from one process."""

    loss: float
    norm: float
    """Relative."""
    weights: float

    @property
    def largest(self) -> float:
        """Of all three."""
        return max(self.loss, self.norm, self.weights)


def save_model(name: str, folder: Path, **changes: Any) -> Path:
    """Write one of ``MODELS`` with random weights."""
    return _save(MODELS[name] | changes, folder)


def save_family(family: str, folder: Path) -> Path:
    """Write a model of one of ``tests.models.families`` with random weights."""
    fields = {"model_type": family, **SIZES, **FAMILIES[family], "vocab_size": VOCABULARY}
    return _save(fields, folder)


def _save(fields: dict[str, Any], folder: Path) -> Path:
    torch.manual_seed(0)
    config = AutoConfig.for_model(**fields)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    return folder


def learner(folder: Path, world: World, feature: str) -> Learner:
    """A learner of the model in a folder, on this rank."""
    sections = FEATURES[feature]
    training = {
        "steps": STEPS,
        "precision": "FP32",
        # Wide, so that gradients of pure rounding do not become whole steps.
        "optimizer": {"learningRate": 1e-3, "epsilon": 1e-5, "maxGradientNorm": 0.5},
        **sections["training"],
    }
    spec = RLJobSpec.model_validate(ranks.SPEC | sections | {"training": training})
    low_rank = spec.training.lora
    load = partial(
        loading.load,
        folder,
        precision="FP32",
        uri=URI,
        recompute=bool(spec.training.gradient_checkpointing),
        offload=spec.training.offload_activations,
        offload_parameters=spec.training.offload_parameters and world.mesh is not None,
    )
    policy = load(
        quantize=None if low_rank is None else low_rank.quantization,
        divided=world.mesh is not None,
    )
    teacher = None
    if spec.algorithm.distils:
        teacher = load()
        with torch.no_grad():
            for parameter in teacher.module.parameters():
                parameter.mul_(1.1)
    adapter = inputs.adapter_of(folder, policy, spec)
    return Learner(policy, spec, teacher=teacher, adapter=adapter, world=world)


def train(world: World, folder: Path, *, features: Sequence[str]) -> dict[str, Seen]:
    """Three steps of each feature on this rank."""
    results = {}
    for feature in features:
        mine = learner(folder, world, feature)
        updates = [
            mine.update(_samples(mine, step, routed=feature in ROUTED), step=step)
            for step in range(1, STEPS + 1)
        ]
        results[feature] = Seen(
            losses=[
                loss
                for update in updates
                for loss in (update.loss, update.value_loss)
                if loss is not None
            ],
            norms=[update.gradient_norm for update in updates],
            weights=weights.snapshot(mine.policy, precision="FP32", world=world),
        )
    return results


def _samples(mine: Learner, step: int, *, routed: bool) -> list[Sample]:
    """Of a step; ``routed``: with drawn choices of experts."""
    samples = ranks.samples(seed=step, count=9 - 3 * (step == 2))
    if not routed:
        return samples
    wanted = routers.replayed(mine.policy.module)
    layers = mine.policy.module.config.num_hidden_layers
    generator = torch.Generator().manual_seed(step)
    return [
        replace(
            sample,
            choices=torch.rand((len(sample), layers, wanted.experts), generator=generator)
            .argsort(-1)[..., : wanted.items // layers]
            .flatten(1)
            .to(torch.int16),
        )
        for sample in samples
    ]


def on_mesh(
    mesh: MeshSizes, folder: Path, scratch: Path, *, features: Sequence[str]
) -> dict[str, Seen]:
    """The same on all ranks of a mesh; losses of all of them are equal."""
    work = partial(train, features=features)
    first, *others = ranks.together(work, mesh=mesh, folder=folder, scratch=scratch)
    for other in others:
        for feature in features:
            assert other[feature].losses == first[feature].losses, (feature, "ranks differ")
    return dict(first)


def gap(actual: Seen, expected: Seen) -> Gap:
    """How far a mesh is from one process."""
    return Gap(
        loss=max(abs(a - b) for a, b in zip(actual.losses, expected.losses, strict=True)),
        norm=max(abs(a / b - 1) for a, b in zip(actual.norms, expected.norms, strict=True)),
        weights=largest(actual.weights, expected.weights),
    )


def save(world: World, folder: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The training state after two steps, and the published weights after the third."""
    mine = learner(folder, world, STATEFUL)
    for step in (1, 2):
        mine.update(ranks.samples(seed=step), step=step)
    kept = states.state(mine)
    mine.update(ranks.samples(seed=3), step=3)
    return kept, weights.snapshot(mine.policy, precision="FP32", world=world)


def kept(state: dict[str, Tensor], folder: Path) -> Path:
    """Write a state where ranks can read it."""
    file = folder / f"state-{len(list(folder.iterdir()))}.pt"
    torch.save(state, file)
    return file


@dataclass(frozen=True)
class Resume:
    """Put a state back, and make the third step."""

    file: Path
    """With the state, as ``kept`` writes it: tensors do not travel to ranks."""

    def __call__(self, world: World, folder: Path) -> dict[str, Tensor]:
        """The published weights after it; on rank 0 alone."""
        state: dict[str, Tensor] = torch.load(self.file, weights_only=False)
        mine = ranks.resumed(learner(folder, world, STATEFUL), state)
        mine.update(ranks.samples(seed=3), step=3)
        return weights.snapshot(mine.policy, precision="FP32", world=world)


def publish(
    world: World, folder: Path, *, feature: str = "GRPO"
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """A policy as rank 0 exports it, and this rank's part of what all of them publish."""
    mine = learner(folder, world, feature)
    mine.update(_samples(mine, 1, routed=feature in ROUTED), step=1)
    whole = weights.snapshot(mine.policy, precision="BF16", world=world)
    return whole, weights.own_tensors(mine.policy, precision="BF16", world=world)


def largest(tensors: dict[str, Tensor], others: dict[str, Tensor]) -> float:
    """Largest difference of tensors of the same names."""
    assert tensors.keys() == others.keys()
    return max(float((tensors[name] - other).abs().max()) for name, other in others.items())


def check_merged(sizes: MeshSizes, folder: Path, scratch: Path) -> None:
    """All ranks publish, together, the merged weights that rank 0 exports, bit for bit."""
    work = partial(publish, feature=EXPERT_LORA)
    parts = ranks.together(work, mesh=sizes, folder=folder, scratch=scratch)
    whole, shares = parts[0][0], [own for _, own in parts]
    assert all(shares), "each rank publishes something"
    assert sum(map(len, shares)) == len(whole), "each tensor belongs to one rank"
    assert largest({name: each for own in shares for name, each in own.items()}, whole) == 0
