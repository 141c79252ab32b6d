"""Snapshots of the weights, and safetensors files in the layout that the model came in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors.torch import save_file
from torch import Tensor
from transformers.core_model_loading import revert_weight_conversion

from rl_contracts import adapters
from rl_contracts.documents.manifest import AdapterEntry
from rl_contracts.spec.training.training import Precision
from rl_trainer.distributed import division
from rl_trainer.distributed.world import ALONE, World
from rl_trainer.model import lora, merges, quantization
from rl_trainer.model.merges import Merge
from rl_trainer.model.parallel import owners, sharding
from rl_trainer.model.policy import Policy
from rl_trainer.model.quantization import Originals

SHARD_BYTES = 4 << 30
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
    dtype = DTYPES[precision]
    copied = sharding.copies(_named(policy), world, dtype=dtype)
    adapted = merges.of(policy.module)
    for name, merge in adapted.items():  # one by one: they pass through float32
        copied |= _merged(name, merge, world, dtype=dtype, originals=policy.originals)
    if not world.leads:
        return {}
    if policy.originals is not None:
        with_adapters = {merge.layer for merge in adapted.values()}
        for name in sorted(set(quantization.layers(policy.module)) - with_adapters):
            copied[f"{name}.weight"] = policy.originals.weight(name).to(dtype)
    return _as_in_files(policy, copied)


def adapter(policy: Policy, *, precision: Precision, world: World = ALONE) -> Snapshot:
    """Copy the adapters as they are now; every rank must ask, rank 0 has them."""
    return _by_expert(sharding.copies(_adapters(policy), world, dtype=DTYPES[precision]))


def own_tensors(policy: Policy, *, precision: Precision, world: World) -> Snapshot:
    """Copy those tensors that this rank publishes, whole; training may go on at once.

    Of a policy whose adapters are served they are the adapters'. Every rank must ask, and gets
    others: all of them together are what ``snapshot``, or ``adapter``, gives to one. No rank ever
    holds more than its own and one tensor.
    """
    if world.size == 1:
        take = snapshot if policy.served_adapter is None else adapter
        return take(policy, precision=precision)
    dtype = DTYPES[precision]
    if policy.served_adapter is not None:
        named = _adapters(policy)
        owned = _owners(policy, named, ranks=world.size)
        return owners.own_copies(named, world, owners=owned, dtype=dtype)
    return _as_in_files(policy, _own_merged(policy, world, dtype=dtype))


def _own_merged(policy: Policy, world: World, *, dtype: torch.dtype) -> dict[str, Tensor]:
    """Those weights that this rank publishes, adapters merged, under the module's own names."""
    adapted, named = merges.of(policy.module), _named(policy)
    weights = {name: merge.weight for name, merge in adapted.items() if merge.weight is not None}
    assert weights.keys() == adapted.keys(), "refused: no quantized weights are merged here"
    owned = _owners(policy, named | weights, ranks=world.size)
    copied = owners.own_copies(named, world, owners=owned, dtype=dtype)
    for name, merge in adapted.items():  # one by one: they pass through float32
        parts = {**merge.factors, "W": weights[name]}
        to = dict.fromkeys(parts, owned[name])
        whole = owners.own_copies(parts, world, owners=to, dtype=torch.float32)
        if whole:
            copied[name] = merge.merged(whole["W"], whole).to(dtype)
    return copied


def _as_in_files(policy: Policy, copied: dict[str, Tensor]) -> Snapshot:
    with sharding.as_built(policy.module):
        return dict(revert_weight_conversion(policy.module, copied))


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


def _owners(policy: Policy, named: Mapping[str, Tensor], *, ranks: int) -> dict[str, int]:
    """The rank that publishes each tensor, so that all have about as many bytes.

    A layer stays together: transformers makes some files' tensors of several of one layer's.
    """
    prefixes = _layer_prefixes(policy)
    units: dict[str, list[str]] = {}
    for name in named:
        unit = next((prefix for prefix in prefixes if name.startswith(prefix)), name)
        units.setdefault(unit, []).append(name)
    members = list(units.values())
    sizes = [sum(named[name].numel() for name in each) for each in members]
    shares = division.shares(sizes, parts=ranks)
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


def _merged(
    name: str,
    merge: Merge,
    world: World,
    *,
    dtype: torch.dtype,
    originals: Originals | None,
) -> dict[str, Tensor]:
    """A weight with its adapters, on rank 0."""
    named = merge.factors
    if originals is None:
        assert merge.weight is not None
        named["W"] = merge.weight
    copied = sharding.copies(named, world, dtype=torch.float32)
    if not copied:
        return {}
    weight = copied["W"] if originals is None else originals.weight(merge.layer)
    return {name: merge.merged(weight, copied).to(dtype)}


def write_adapter(tensors: Snapshot, entry: AdapterEntry, folder: Path) -> None:
    """Write an adapter as PEFT does, so that it can be loaded beside the model."""
    save_file(tensors, folder / f"{adapters.STEM}.safetensors", metadata={"format": "pt"})
    config = json.dumps(adapters.peft_config(entry), indent=2)
    (folder / adapters.CONFIG_FILE).write_text(config + "\n")


def write(tensors: Snapshot, folder: Path, *, shard_bytes: int = SHARD_BYTES) -> None:
    """Write ``model.safetensors``, or shards with their index where it would be larger."""
    split = split_torch_state_dict_into_shards(
        tensors, filename_pattern="model{suffix}.safetensors", max_shard_size=shard_bytes
    )
    for name, members in split.filename_to_tensors.items():
        shard = {member: tensors[member].contiguous() for member in members}
        save_file(shard, folder / name, metadata={"format": "pt"})
    if split.is_sharded:
        index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
        path = folder / "model.safetensors.index.json"
        path.write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
