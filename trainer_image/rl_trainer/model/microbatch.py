"""Values of the manifest that depend on the device: checkpointing, tokens of a microbatch."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from rl_contracts.capacity import of_spec, text
from rl_contracts.capacity.choice import choose_microbatch
from rl_contracts.capacity.fit import fit
from rl_contracts.capacity.shape import Shape, UnknownShapeError, shape_of
from rl_contracts.capacity.training import GIB
from rl_contracts.errors import RefusedError
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.training.training import AUTO, MOST_AUTO_TOKENS
from rl_trainer.distributed.world import World

log = logging.getLogger(__name__)

UNKNOWN_TOKENS = 8192
"""Tokens of a microbatch on a GPU where the memory model does not know one of the models."""


def resolved(
    spec: RLJobSpec,
    folder: Path,
    *,
    device: torch.device,
    world: World,
    others: Mapping[str, Shape] = of_spec.NONE,
) -> RLJobSpec:
    """The manifest with nothing left to choose by device; equal on all ranks. A collective call.

    Args:
        spec: the manifest.
        folder: the policy's model, for its config.
        device: of this rank.
        world: all ranks; the device with the least memory decides.
        others: shapes of other models, as of ``of_spec.setup_of``.

    Raises:
        RefusedError: weights, gradients and moments alone exceed it.
    """
    training, cuda = spec.training, device.type == "cuda"
    changes: dict[str, object] = {}
    if training.gradient_checkpointing is None:
        changes["gradient_checkpointing"] = cuda
    least = min(world.gather(_device_bytes(device, training.memory.device_gib)))
    _check(spec, folder, least, cuda=cuda, ranks=world.size, others=others)
    if training.max_tokens_per_microbatch == AUTO:
        tokens = _tokens(spec, folder, least, cuda=cuda, ranks=world.size, others=others)
        changes["max_tokens_per_microbatch"] = tokens
    return spec.model_copy(update={"training": training.model_copy(update=changes)})


def _device_bytes(device: torch.device, declared_gib: float | None) -> float:
    """Memory that this rank may use; 0 for a processor of which the manifest does not say it."""
    declared = math.inf if declared_gib is None else declared_gib * GIB
    own = float(torch.cuda.mem_get_info(device)[1]) if device.type == "cuda" else math.inf
    least = min(declared, own)
    return 0.0 if math.isinf(least) else least


def _check(
    spec: RLJobSpec,
    folder: Path,
    device_bytes: float,
    *,
    cuda: bool,
    ranks: int,
    others: Mapping[str, Shape],
) -> None:
    """Refuse what cannot fit: before this, nobody may have known the model or the GPU."""
    shape = shape_in(folder) if device_bytes else None
    if shape is None:
        return
    size = device_bytes / GIB
    compared = fit(spec, shape, size_gib=size, cuda=cuda, ranks=ranks, others=others)
    refusal = None if compared is None else compared.refusal(spec, size_gib=size)
    if refusal is not None:
        raise RefusedError(refusal)


def _tokens(
    spec: RLJobSpec,
    folder: Path,
    device_bytes: float,
    *,
    cuda: bool,
    ranks: int,
    others: Mapping[str, Shape],
) -> int:
    if not device_bytes:
        return max(MOST_AUTO_TOKENS, spec.agent.sampling.max_context_tokens)
    shape = shape_in(folder)
    if shape is None or any(field not in others for field in spec.algorithm.other_models):
        log.warning("Auto: a model's memory is not known; %d tokens", UNKNOWN_TOKENS)
        return max(UNKNOWN_TOKENS, spec.agent.sampling.max_context_tokens)
    longest = shape.max_positions
    setup = of_spec.setup_of(spec, cuda=cuda, ranks=ranks, longest=longest, others=others)
    choice = choose_microbatch(shape, setup, device_bytes=device_bytes, most=MOST_AUTO_TOKENS)
    chosen = replace(setup, microbatch_tokens=choice.tokens)
    log.log(
        logging.INFO if choice.fits else logging.WARNING,
        "training.maxTokensPerMicrobatch Auto: %d tokens; by formula a step needs %s of %.2f GiB%s",
        choice.tokens,
        text.arithmetic(choice.memory),
        device_bytes / GIB,
        ""
        if choice.fits
        else f", which does not fit. To need less: {text.remedies(shape, chosen)}",
    )
    return choice.tokens


def shape_in(folder: Path) -> Shape | None:
    """The sizes of the model in a folder, as ``known_shape``."""
    try:
        return known_shape(json.loads((folder / "config.json").read_bytes()))
    except (OSError, ValueError, AttributeError):
        return None  # loading refuses what cannot be read


def known_shape(config: Mapping[str, Any]) -> Shape | None:
    """The sizes of a model, by its config; None where the memory model does not know it."""
    try:
        return shape_of(config)
    except UnknownShapeError:
        return None
