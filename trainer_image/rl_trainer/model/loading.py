"""Loads a model in Hugging Face layout, and proves that it can be trained."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedConfig,
)

from rl_contracts.capacity.experts import UNTRAINED
from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.spec.training.lora import Quantization
from rl_contracts.spec.training.training import Precision
from rl_trainer.algorithm.packing import collate
from rl_trainer.distributed.world import ALONE, World
from rl_trainer.model import probes, quantization, vision
from rl_trainer.model.attention import within_sequences
from rl_trainer.model.files.stored_weights import StoredWeights
from rl_trainer.model.files.unusable import UNLOADABLE, first_line, refused
from rl_trainer.model.parallel import sharding
from rl_trainer.model.parallel.on_mesh import filled
from rl_trainer.model.policy import Policy
from rl_trainer.model.quantization import Originals
from rl_trainer.model.vision import Vision

HALVES = {"BF16": torch.bfloat16, "FP16": torch.float16, "FP32": None}
"""What layers compute in where that is safe; None: float32 everywhere."""
CHECK_TOLERANCE = 1e-3
NOISE = re.compile(r"dropout|pdrop|layerdrop|jitter_noise")
"""Names of a config's probabilities and widths of noise that layers add in training alone. Families
of ``UNTRAINED`` may also use one outside of training, and are refused before."""
LISTED = "Name a model of a family in docs/reference/models.md."


def load(
    folder: Path,
    *,
    precision: Precision,
    uri: str,
    field: str = "spec.model.uri",
    recompute: bool = False,
    offload: bool = False,
    offload_parameters: bool = False,
    divided: bool = False,
    quantize: Quantization | None = None,
    images: vision.StoredImages | None = None,
    train_vision: bool = False,
) -> Policy:
    """Load a model in Hugging Face layout and prove that it can be trained packed.

    Args:
        folder: config and safetensors.
        precision: of forward and backward pass.
        uri: where the folder came from, for messages.
        field: where the manifest names it, for messages.
        recompute: keep each layer's input alone for the backward pass and run the layer again
            there (gradient checkpointing, arXiv 1604.06174).
        offload: and keep that in host memory.
        offload_parameters: parameters stay in host memory between uses.
        divided: processes will divide the model: its weights are not read yet, but by
            ``on_mesh.divided``, so that each process reads its part alone; ``folder`` must stay.
        quantize: its linear layers, which are then frozen; ``folder`` must stay.
        images: fetches stored images for a model with a vision tower; None: it is given none.
        train_vision: the vision tower, too; otherwise it is frozen.

    Raises:
        RefusedError: it is no causal model that transformers can build and fill from the folder,
            or of a family that cannot be trained, its weights are quantized or not finite, it does
            not keep packed sequences apart, or its layers cannot be run again or quantized.
    """
    config = config_in(folder, uri=uri, field=field)
    _check_family(config, uri=uri, field=field)
    _check_unquantized(config, uri=uri, field=field)
    seeing = _vision(config, folder, images, uri=uri, field=field)
    _check_attention(folder, uri=uri, field=field)
    within_sequences.register()
    kind = AutoModelForCausalLM if seeing is None else AutoModelForImageTextToText
    stored = StoredWeights(folder=folder, uri=uri, field=field)
    try:
        with torch.device("meta"):
            module = kind.from_config(
                _without_noise(AutoConfig.from_pretrained(folder, local_files_only=True)),
                dtype=torch.float32,
                attn_implementation=_attention(within_sequences.NAME, seeing),
            )
        stored.check(module)
    except UNLOADABLE as error:
        raise refused(uri, f"It cannot be loaded: {first_line(error)}.", field=field) from error
    module.eval()
    if seeing is not None:
        vision.prepare(module)
        if not train_vision:
            vision.freeze(module)
    originals = None
    if quantize is not None:
        originals = Originals(folder)
        quantization.quantize(module, quantize, tensors=originals.names())
    home = torch.device("cpu") if offload_parameters and not divided else device()
    policy = Policy(
        module=module,
        device=home,
        half=HALVES[precision],
        offload=offload,
        offload_parameters=offload_parameters,
        originals=originals,
        vision=seeing,
        stored=stored,
    )
    if not divided:
        policy = filled(policy)
        check(policy, uri=uri, field=field)
    if recompute:
        _recompute(module)
    return dataclasses.replace(policy, device=device())


def _without_noise(config: Any) -> Any:
    """A config with dropout and the like switched off, in its parts, too.

    The engine samples without it: log-probabilities in training would be those of another model.
    """
    for name, value in list(vars(config).items()):
        if isinstance(value, PreTrainedConfig):
            _without_noise(value)
        elif NOISE.search(name) and type(value) in (int, float):
            setattr(config, name, type(value)(0))  # a config checks types
    return config


def device() -> torch.device:
    """The device of training: the current GPU, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _recompute(module: Any) -> None:
    try:
        module.gradient_checkpointing_enable({"use_reentrant": False})
    except ValueError as error:
        raise RefusedError(
            Refusal(
                field="spec.training.gradientCheckpointing",
                value="true",
                reason="ModelUnusable",
                message=f"{type(module).__name__} cannot run its layers again.",
                remedy="Leave it out; lower spec.training.maxTokensPerMicrobatch instead.",
            )
        ) from error


def config_in(folder: Path, *, uri: str, field: str = "spec.model.uri") -> dict[str, Any]:
    """The ``config.json`` of a model; refuses one that cannot be read."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError) as error:
        raise refused(
            uri, f"Its config cannot be read: {first_line(error)}.", field=field
        ) from error
    if not isinstance(config, dict):
        raise refused(uri, "Its config is no object of JSON.", field=field)
    return config


def _vision(
    config: dict[str, Any],
    folder: Path,
    images: vision.StoredImages | None,
    *,
    uri: str,
    field: str,
) -> Vision | None:
    """What makes the model's images; None where it has no vision tower."""
    if not vision.has_vision(config):
        return None
    family = str(config.get("model_type"))[:64]
    if family not in vision.FAMILIES:
        raise refused(
            uri,
            f"It is a vision-language model of type {family}; those of type "
            f"{' and '.join(vision.FAMILIES)} can be trained.",
            field=field,
            remedy=LISTED,
        )
    try:
        return Vision(folder, images or _NoImages())
    except UNLOADABLE as error:
        raise refused(
            uri, f"Its image processor cannot be loaded: {first_line(error)}.", field=field
        ) from error


class _NoImages:
    def get(self, sha256: str, /) -> bytes:
        raise AssertionError(f"image {sha256} of a model that is given none")


def _attention(name: str, seeing: Vision | None) -> str | dict[str, str]:
    """Attention by part of the model: the vision tower's is that of single images."""
    return name if seeing is None else {"text_config": name, "vision_config": "sdpa"}


def _check_family(config: dict[str, Any], *, uri: str, field: str) -> None:
    reason = UNTRAINED.get(str(config.get("model_type")))
    if reason is not None:
        raise refused(uri, reason, field=field, remedy=LISTED)


def _check_unquantized(config: dict[str, Any], *, uri: str, field: str) -> None:
    quantized = config.get("quantization_config")
    if quantized:
        named = quantized.get("quant_method") if isinstance(quantized, dict) else None
        raise RefusedError(
            Refusal(
                field=field,
                value=uri[:200],
                reason="ModelQuantized",
                message=f"Its weights are quantized ({str(named)[:40]}): such are neither trained "
                "nor published.",
                remedy="Name the model's bfloat16 or float32 weights.",
            )
        )


def _check_attention(folder: Path, *, uri: str, field: str) -> None:
    """Refuse a family by name whose attention cannot be exchanged for ours; unknown ones pass."""
    try:
        kind = type(AutoConfig.from_pretrained(folder, local_files_only=True))
        built = AutoModelForCausalLM._model_mapping[kind]
    except UNLOADABLE:
        return  # loading says why
    if not built._can_set_attn_implementation():
        raise refused(
            uri,
            f"{built.__name__} cannot be trained: its attention cannot be exchanged.",
            field=field,
            remedy=LISTED,
        )


def check(policy: Policy, *, uri: str, field: str = "spec.model.uri", world: World = ALONE) -> None:
    """Prove that packed log-probabilities are those of the model called the ordinary way.

    That is with transformers' own attention. A model whose layers mix the sequences of a row, or
    that transforms its logits after the output layer, would otherwise be trained wrongly without a
    word. A collective call where the model is divided.

    Raises:
        RefusedError: they differ, or the model asks for an attention that is not computed.
    """
    # The output layer gives whole logits, also where ranks hold parts of it.
    exact = dataclasses.replace(policy, half=None, ranks=None, routers=None)
    was_training = policy.module.training
    policy.module.eval()
    samples = probes.samples(policy)
    if policy.vision is not None:
        exact = dataclasses.replace(exact, vision=policy.vision.with_probes())
    with torch.no_grad(), probes.in_float32(policy.module):
        packed = collate(samples, tuple(range(len(samples)))).to(policy.device)
        try:
            together = exact.token_logprobs(packed, temperature=1.0)
        except within_sequences.UnsupportedAttentionError as error:
            message = f"{type(policy.module).__name__} cannot be trained: {error}."
            raise refused(uri, message, field=field, remedy=LISTED) from error
        policy.module.set_attn_implementation(within_sequences.ordinary(policy.module))
        alone = torch.cat([probes.ordinary(exact, sample) for sample in samples])
        policy.module.set_attn_implementation(_attention(within_sequences.NAME, policy.vision))
    sharding.rest(policy.module)
    policy.module.train(was_training)
    gap = max(world.gather(float((together - alone).abs().max())))
    if not gap <= CHECK_TOLERANCE:
        raise refused(
            uri,
            f"{type(policy.module).__name__} gives other log-probabilities for packed sequences "
            f"than for single ones (largest difference {gap:.2e}).",
            field=field,
        )
