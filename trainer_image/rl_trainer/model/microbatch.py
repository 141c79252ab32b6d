"""Values of the manifest that depend on the device: checkpointing, tokens of a microbatch."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from rl_contracts.capacity import of_spec, text
from rl_contracts.capacity.choice import choose_microbatch
from rl_contracts.capacity.shape import Shape, UnknownShapeError, shape_of
from rl_contracts.capacity.training import GIB
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.training.training import AUTO, MOST_AUTO_TOKENS
from rl_trainer.distributed.world import World

log = logging.getLogger(__name__)

UNKNOWN_TOKENS = 8192
"""Tokens of a microbatch on a GPU for a model that the memory model does not know."""


def resolved(spec: RLJobSpec, folder: Path, *, device: torch.device, world: World) -> RLJobSpec:
    """The manifest with nothing left to choose by device; equal on all ranks. A collective call.

    Args:
        spec: the manifest.
        folder: the policy's model, for its config.
        device: of this rank.
        world: all ranks; the device with the least memory decides.
    """
    training, cuda = spec.training, device.type == "cuda"
    changes: dict[str, object] = {}
    if training.gradient_checkpointing is None:
        changes["gradient_checkpointing"] = cuda
    if training.max_tokens_per_microbatch == AUTO:
        least = min(world.gather(_device_bytes(device)))
        changes["max_tokens_per_microbatch"] = _tokens(spec, folder, least, ranks=world.size)
    return spec.model_copy(update={"training": training.model_copy(update=changes)})


def _device_bytes(device: torch.device) -> float:
    """Memory of a GPU; 0 for a processor, whose microbatches are not chosen by memory."""
    return float(torch.cuda.mem_get_info(device)[1]) if device.type == "cuda" else 0.0


def _tokens(spec: RLJobSpec, folder: Path, device_bytes: float, *, ranks: int) -> int:
    if not device_bytes:
        return max(MOST_AUTO_TOKENS, spec.agent.sampling.max_context_tokens)
    shape = shape_in(folder)
    if shape is None:
        log.warning("Auto: the model's memory is not known; %d tokens", UNKNOWN_TOKENS)
        return max(UNKNOWN_TOKENS, spec.agent.sampling.max_context_tokens)
    setup = of_spec.setup_of(spec, cuda=True, ranks=ranks, longest=shape.max_positions)
    choice = choose_microbatch(shape, setup, device_bytes=device_bytes, most=MOST_AUTO_TOKENS)
    log.log(
        logging.INFO if choice.fits else logging.WARNING,
        "training.maxTokensPerMicrobatch Auto: %d tokens; by formula a step needs %s of %.2f GiB%s",
        choice.tokens,
        text.arithmetic(choice.memory),
        device_bytes / GIB,
        "" if choice.fits else f", which does not fit. To need less: {text.remedies(setup)}",
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
