"""Snapshots of the weights, and safetensors files in the layout that the model came in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import torch
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors.torch import save_file
from torch import Tensor
from transformers.core_model_loading import revert_weight_conversion

from rl_trainer import sharding
from rl_trainer.model import Policy
from rl_trainer.world import ALONE, World

SHARD_BYTES = 4 << 30
DTYPES = {"BF16": torch.bfloat16, "FP32": torch.float32}

Snapshot = dict[str, Tensor]
"""Tensors on the CPU by their Hugging Face names; tied ones once."""


def snapshot(
    policy: Policy, *, precision: Literal["BF16", "FP32"], world: World = ALONE
) -> Snapshot:
    """Copy the weights as they are now; training may go on at once.

    Every rank must ask; rank 0 has them.

    Names and shapes are those of the files that the model was loaded from, which may differ from
    the module's own (transformers fuses some models' experts when loading).
    """
    left_out = {
        *policy.module.all_tied_weights_keys,
        *(policy.module._keys_to_ignore_on_save or ()),
    }
    named = {
        name: tensor
        for name, tensor in policy.module.state_dict().items()
        if name not in left_out
    }  # fmt: skip
    copied = sharding.copies(named, world, dtype=DTYPES[precision])
    if not world.leads:
        return {}
    return dict(revert_weight_conversion(policy.module, copied))


def write(tensors: Snapshot, folder: Path, *, shard_bytes: int = SHARD_BYTES) -> None:
    """Write ``model.safetensors``, or shards with their index where it would be larger."""
    split = split_torch_state_dict_into_shards(
        tensors, filename_pattern="model{suffix}.safetensors", max_shard_size=shard_bytes
    )
    for name, members in split.filename_to_tensors.items():
        shard = {one: tensors[one].contiguous() for one in members}
        save_file(shard, folder / name, metadata={"format": "pt"})
    if split.is_sharded:
        index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
        path = folder / "model.safetensors.index.json"
        path.write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
