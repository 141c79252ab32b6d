"""Snapshots of the weights, and safetensors files in the layout that the model came in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers.core_model_loading import revert_weight_conversion

from rl_contracts import adapters
from rl_contracts.documents.manifest import AdapterEntry
from rl_contracts.spec.training.training import Precision
from rl_trainer.distributed import division
from rl_trainer.distributed.world import ALONE, World
from rl_trainer.model import lora, merges, quantization
from rl_trainer.model.parallel import owners, sharding
from rl_trainer.model.policy import Policy

DTYPES = {"BF16": torch.bfloat16, "FP16": torch.float16, "FP32": torch.float32}

Snapshot = dict[str, Tensor]
"""Tensors on the CPU by their Hugging Face names; tied ones once; an adapter's by PEFT's names."""


def snapshot(policy: Policy, *, precision: Precision, world: World = ALONE) -> Snapshot:
    """Copy the weights as they are now, adapters merged; training may go on at once.

    Of layers whose weights are quantized it is the weights as they came that are copied, and that
    adapters are merged into.

    Every rank must ask; rank 0 has them.

    Names and shapes are those of the files that the model was loaded from, which may differ from
    the module's own (transformers fuses some models' experts when loading).
    """
    first = dict.fromkeys(_sizes(policy), 0)
    return _owned(policy, world, owned=first, dtype=DTYPES[precision])


def own_weights(policy: Policy, *, precision: Precision, world: World) -> Snapshot:
    """Copy those weights that this rank owns, whole and with adapters merged.

    Every rank must ask, and gets others: all of them together are what ``snapshot`` gives to one.
    No rank ever holds more than its own and one tensor, or in float32 one that is merged.
    """
    owned = _owners(policy, _sizes(policy), ranks=world.size)
    return _owned(policy, world, owned=owned, dtype=DTYPES[precision])


def adapter(policy: Policy, *, precision: Precision, world: World = ALONE) -> Snapshot:
    """Copy the adapters as they are now; every rank must ask, rank 0 has them."""
    return _by_expert(sharding.copies(_adapters(policy), world, dtype=DTYPES[precision]))


def own_tensors(policy: Policy, *, precision: Precision, world: World) -> Snapshot:
    """Copy those tensors that this rank publishes, whole; training may go on at once.

    Of a policy whose adapters are served they are the adapters'. Every rank must ask, and gets
    others: all of them together are what ``snapshot``, or ``adapter``, gives to one. No rank ever
    holds more than its own and one tensor.
    """
    if policy.served_adapter is None:
        return own_weights(policy, precision=precision, world=world)
    if world.size == 1:
        return adapter(policy, precision=precision)
    named = _adapters(policy)
    sizes = {name: tensor.numel() for name, tensor in named.items()}
    owned = _owners(policy, sizes, ranks=world.size)
    return owners.own_copies(named, world, owners=owned, dtype=DTYPES[precision])


def _owned(
    policy: Policy, world: World, *, owned: Mapping[str, int], dtype: torch.dtype
) -> Snapshot:
    """The weights that this rank owns, under the names of the model's files.

    Args:
        policy: with the weights.
        world: the ranks.
        owned: which of them gets each of ``_sizes``.
        dtype: of the copies of floating-point tensors.
    """
    module, originals = policy.module, policy.originals
    adapted = merges.of(module)
    copied = owners.own_copies(_named(policy), world, owners=owned, dtype=dtype)
    for name, merge in adapted.items():  # one by one: they pass through float32
        parts = merge.factors if merge.weight is None else {**merge.factors, "W": merge.weight}
        to = dict.fromkeys(parts, owned[name])
        whole = owners.own_copies(parts, world, owners=to, dtype=torch.float32)
        if whole:
            weight = whole["W"] if originals is None else originals.weight(merge.layer)
            copied[name] = merge.merged(weight, whole).to(dtype)
    if originals is not None:
        for layer in sorted(set(quantization.layers(module)) - set(lora.layers(module))):
            if owned[f"{layer}.weight"] == world.rank:
                copied[f"{layer}.weight"] = originals.weight(layer).to(dtype)
    if not copied:
        return {}
    with sharding.as_built(module):
        return dict(revert_weight_conversion(module, copied))


def _adapters(policy: Policy) -> dict[str, Tensor]:
    """The adapters' tensors under PEFT's names; those of a layer's experts together."""
    return {
        adapters.tensor_name(_in_files(name), part): getattr(layer, part)
        for name, layer in lora.adapters(policy.module).items()
        for part in adapters.PARTS
    }


def _in_files(name: str) -> str:
    """What a layer with an adapter is called in the model's files, but for an expert's number."""
    return name.replace(".adapters.", ".")


def _by_expert(tensors: Snapshot) -> Snapshot:
    """The adapters of stacked experts each by itself, as the model's files name its matrices."""
    split: Snapshot = {}
    for name, tensor in tensors.items():
        if tensor.dim() == 2:
            split[name] = tensor
            continue
        at, matrix, *rest = name.rsplit(".", 3)
        for expert, own in enumerate(tensor):
            split[".".join((at, str(expert), matrix, *rest))] = own.clone()
    return split


def _named(policy: Policy) -> dict[str, Tensor]:
    """A model's tensors under the module's own names, without adapters and what has them."""
    left_out = {
        *policy.module.all_tied_weights_keys,
        *(policy.module._keys_to_ignore_on_save or ()),
        *merges.of(policy.module),
        *(f"{name}.{part}" for name in lora.adapters(policy.module) for part in adapters.PARTS),
        *(
            f"{name}.{part}"
            for name in quantization.layers(policy.module)
            for part in (quantization.PACKED, quantization.SCALES)
        ),
    }
    tensors = policy.module.state_dict().items()
    return {name: tensor for name, tensor in tensors if name not in left_out}


def _sizes(policy: Policy) -> dict[str, int]:
    """Numbers of each tensor of a model whose adapters are merged, by its name in the module."""
    module = policy.module
    named = _named(policy) | {name: each.weight for name, each in merges.of(module).items()}
    sizes = {name: tensor.numel() for name, tensor in named.items() if tensor is not None}
    quantized = {name: module.get_submodule(name) for name in quantization.layers(module)}
    return sizes | {
        f"{name}.weight": layer.in_features * layer.out_features
        for name, layer in quantized.items()
    }


def _owners(policy: Policy, sizes: Mapping[str, int], *, ranks: int) -> dict[str, int]:
    """The rank that owns each tensor, of so many numbers, so that all have about as many.

    A layer stays together: transformers makes some files' tensors of several of one layer's.
    """
    prefixes = _layer_prefixes(policy)
    units: dict[str, list[str]] = {}
    for name in sizes:
        unit = next((prefix for prefix in prefixes if name.startswith(prefix)), name)
        units.setdefault(unit, []).append(name)
    members = list(units.values())
    filled = [sum(sizes[name] for name in each) for each in members]
    shares = division.shares(filled, parts=ranks)
    return {
        name: rank
        for rank, share in enumerate(shares)
        for index in share
        for name in members[index]
    }


def _layer_prefixes(policy: Policy) -> list[str]:
    """Name prefixes of the layers that stay together, each with a dot at its end."""
    kinds = frozenset(policy.module._no_split_modules or ())
    return [
        f"{name}."
        for name, module in policy.module.named_modules()
        # FSDP2 derives classes of its own from the layers'.
        if kinds & {each.__name__ for each in type(module).__mro__}
    ]


def write_adapter(tensors: Snapshot, entry: AdapterEntry, folder: Path) -> None:
    """Write an adapter as PEFT does, so that it can be loaded beside the model."""
    save_file(tensors, folder / f"{adapters.STEM}.safetensors", metadata={"format": "pt"})
    config = json.dumps(adapters.peft_config(entry), indent=2)
    (folder / adapters.CONFIG_FILE).write_text(config + "\n")
