"""LoRA adapters (arXiv 2106.09685): their layers, tensor names and PEFT config."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from rl_contracts.documents.manifest import AdapterEntry, TensorHeader
from rl_contracts.model_files import read_header, weight_files, weights_digest
from rl_contracts.spec.training.lora import TARGETS, LoRA

CONFIG_FILE, STEM = "adapter_config.json", "adapter_model"
"""File names that PEFT uses; STEM is without its suffix ``.safetensors``."""
PARTS = ("lora_A", "lora_B")
WEIGHT = ".weight"
TOWER = "visual"
"""Part of the names of a vision tower's tensors."""
TEXT, SEEING_TEXT = "model.layers.", "model.language_model.layers."
"""Prefixes of the language model's layers. In the module of a model that sees images they have the
second one; its files may have the first."""


def tensor_name(layer: str, part: str) -> str:
    """PEFT's name of an adapter tensor.

    Example: ``base_model.model.model.layers.0.mlp.up_proj.lora_A.weight``.
    """
    return f"base_model.model.{layer}.{part}{WEIGHT}"


def targeted_layers(tensors: Iterable[str], section: LoRA) -> list[str]:
    """Sorted names of the layers among ``tensors`` that get an adapter, as the module has them.

    Layers of a vision tower get none.
    """
    wanted = section.targets or TARGETS
    layers = _layers(tensors).values()
    return sorted(layer for layer in layers if layer.rpartition(".")[2] in wanted)


def _layers(tensors: Iterable[str]) -> dict[str, str]:
    """Layers of the language model: the name in the module, by that of the weight."""
    names = list(tensors)
    of_text = [name for name in names if TOWER not in name.split(".")]
    sees = len(of_text) < len(names)
    layers = {}
    for name in of_text:
        if name.endswith(WEIGHT):
            layer = name.removesuffix(WEIGHT)
            inside = sees and layer.startswith(TEXT)
            layers[name] = SEEING_TEXT + layer.removeprefix(TEXT) if inside else layer
    return layers


def model_tensors(folder: Path) -> dict[str, TensorHeader]:
    """Headers of all tensors of a model in Hugging Face layout; raises IntegrityError."""
    return {
        name: header for path in weight_files(folder) for name, header in read_header(path).items()
    }


def adapter_entry(folder: Path, *, uri: str, section: LoRA) -> AdapterEntry:
    """Describe the adapters of a run for its policy manifests; reads all weights of the model.

    Args:
        folder: the base model, in Hugging Face layout.
        uri: where the base model came from.
        section: the manifest's ``training.lora``.

    Raises:
        IntegrityError: a file of the model is malformed.
    """
    layers = targeted_layers(model_tensors(folder), section)
    return AdapterEntry(
        base_uri=uri,
        base_sha256=weights_digest(weight_files(folder)),
        rank=section.rank,
        alpha=section.alpha,
        dropout=section.dropout,
        targets=sorted({layer.rpartition(".")[2] for layer in layers}),
    )


def shapes(tensors: Mapping[str, TensorHeader], entry: AdapterEntry) -> dict[str, tuple[int, int]]:
    """Names and shapes of an adapter's tensors: A ``[rank, in]`` and B ``[out, rank]``."""
    tensor_shapes: dict[str, tuple[int, int]] = {}
    for name, layer in _layers(tensors).items():
        if layer.rpartition(".")[2] in entry.targets:
            outputs, inputs = tensors[name].shape
            tensor_shapes[tensor_name(layer, "lora_A")] = (entry.rank, inputs)
            tensor_shapes[tensor_name(layer, "lora_B")] = (outputs, entry.rank)
    return tensor_shapes


def peft_config(entry: AdapterEntry) -> dict[str, object]:
    """Contents of ``adapter_config.json``, which PEFT and the engines read."""
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": entry.base_uri,
        "r": entry.rank,
        "lora_alpha": entry.alpha,
        "lora_dropout": entry.dropout,
        "target_modules": entry.targets,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
