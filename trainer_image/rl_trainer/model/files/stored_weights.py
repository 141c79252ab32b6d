"""The weights of a model in Hugging Face layout: read where they are used, and no more of them.

A module is built without memory for its parameters (torch's device ``meta``), divided among the
ranks, and filled in the end: transformers reads of each file's tensors the slices that this rank
holds, and converts them to the dtype of the parameters as they arrive.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import convert_and_load_state_dict_in_model
from transformers.modeling_utils import LoadStateDictConfig

from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.model_files import weight_files
from rl_trainer.distributed.world import ALONE, World
from rl_trainer.model import quantization
from rl_trainer.model.files.unusable import UNLOADABLE, first_line, refused
from rl_trainer.model.parallel import sharding
from rl_trainer.model.quantization import Originals

META = torch.device("meta")
COMPUTED = (".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias")
"""Tensors in old files that models compute themselves."""
UNBROKEN = "Name a model whose training did not break off in numbers that are not finite."


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWeights:
    """A model's files, which must stay where they are."""

    folder: Path
    uri: str
    """Where the folder came from, for messages."""
    field: str
    """Where the manifest names it, for messages."""

    def check(self, module: Any) -> None:
        """Compare names and shapes with a module's that lies on ``meta``; reads headers alone.

        Raises:
            RefusedError: the files do not fill the module, or hold what it does not load: its
                exports would lack that.
            SafetensorError, OSError: they cannot be read.
        """
        with self._slices() as slices:
            shapes = {
                name: torch.empty(each.get_shape(), device=META) for name, each in slices.items()
            }
        info = _load(module, shapes, META)
        module.tie_weights(missing_keys=info.missing_keys, recompute_mapping=False)
        module._adjust_missing_and_unexpected_keys(info)
        self._check_filled(info)
        self._check_used(module, set(shapes), info.unexpected_keys)

    def fill(
        self, module: Any, *, device: torch.device, buffers: torch.device, world: World = ALONE
    ) -> None:
        """Read the weights of a module that lies on ``meta``; a collective call.

        Args:
            module: a transformers model that ``check`` has accepted, or its layers without the
                output layer; perhaps divided, with adapters or with quantized layers. What the
                files do not hold, adapters for one, is allocated alone.
            device: of the parameters.
            buffers: the device of what the module computes itself.
            world: the ranks that do so together.

        Raises:
            RefusedError: a rank cannot read the files, or they hold a number that is not finite.
            OutOfMemoryError: torch's, of this rank alone.
        """
        refusal: Refusal | None = None
        cause: Exception | None = None
        try:
            problem = self._read(module, device=device, buffers=buffers)
        except torch.OutOfMemoryError:  # a RuntimeError, but not the files' fault
            raise
        except UNLOADABLE as error:
            cause, message = error, f"It cannot be loaded: {first_line(error)}."
            refusal = self._refused(message).refusal
        else:
            if problem is not None:
                message = f"Its weights are not finite: {problem}."
                refusal = self._refused(message, remedy=UNBROKEN).refusal
        for each in filter(None, world.gather(refusal)):  # else the other ranks would go on
            raise RefusedError(each) from cause

    def _read(self, module: Any, *, device: torch.device, buffers: torch.device) -> str | None:
        """Fill a module as ``fill`` does, on this rank alone; what of it is not finite, or None."""
        trained = {name: each.requires_grad for name, each in module.named_parameters()}
        quantized = quantization.layers(module)
        left_out = {f"{layer}.weight" for layer in quantized}
        with self._slices() as slices:
            wanted = {name: each for name, each in slices.items() if name not in left_out}
            info = _load(module, wanted, device)
        _finish(module, info, device)
        originals = Originals(self.folder)
        problems = [_quantize(module.get_submodule(layer), layer, originals) for layer in quantized]
        for buffer in module.buffers():
            buffer.data = buffer.data.to(buffers)
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(trained[name])
            if name not in info.missing_keys:
                problems.append(_not_finite(name, sharding.part(parameter.detach())))
        return next(filter(None, problems), None)

    @contextlib.contextmanager
    def _slices(self) -> Iterator[dict[str, Any]]:
        """The tensors by name, as safetensors' slices, which read what they are asked for."""
        with contextlib.ExitStack() as stack:
            files = [
                stack.enter_context(safe_open(path, framework="pt"))
                for path in weight_files(self.folder)
            ]
            yield {name: file.get_slice(name) for file in files for name in file.keys()}  # noqa: SIM118  # no dict

    def _check_filled(self, info: Any) -> None:
        """Name parameters that the files do not fill."""
        shapes = [
            f"{name} is {list(shape)}, not {list(wanted)}"
            for name, shape, wanted in sorted(info.mismatched_keys)
        ]
        errors = [*info.error_msgs, *map(_in_a_line, info.conversion_errors.values())]
        for what, problems in (
            ("some are missing", sorted(info.missing_keys)),
            ("some are of other shapes", shapes),
            ("errors", errors),
        ):
            if problems:
                shown = ", ".join(map(str, problems[:3]))[:500]
                raise self._refused(f"Its weights do not fit its config ({what}): {shown}.")

    def _check_used(self, module: Any, names: set[str], unexpected: set[str]) -> None:
        """Refuse files with tensors that the model does not load: its exports would lack them.

        Such are the layers of multi-token prediction, and the vision part of a model whose text
        part alone is built. Some models have transformers pass over them without a report.
        """
        ignored = [re.compile(each) for each in module._keys_to_ignore_on_load_unexpected or ()]
        passed_over = {name for name in names if any(each.search(name) for each in ignored)}
        unused = sorted(name for name in unexpected | passed_over if not name.endswith(COMPUTED))
        if unused:
            shown = ", ".join(unused[:3])
            raise self._refused(
                f"Its files hold {len(unused)} tensors that {type(module).__name__} does not load, "
                f"and that trained weights would lack: {shown}.",
                remedy="Name a folder with the weights of the language model alone.",
            )

    def _refused(self, message: str, **remedy: str) -> RefusedError:
        return refused(self.uri, message, field=self.field, **remedy)


def _load(module: Any, tensors: Mapping[str, Any], device: torch.device) -> Any:
    """Have transformers put tensors into a module; its report."""
    with sharding.as_built(module):
        mapping = get_model_conversion_mapping(module)
    config = LoadStateDictConfig(
        device_map={"": device}, dtype=torch.float32, weight_mapping=mapping
    )
    info, _ = convert_and_load_state_dict_in_model(module, dict(tensors), config)
    return info


def _finish(module: Any, info: Any, device: torch.device) -> None:
    """Allocate what no file fills, compute buffers, and tie what is tied."""
    module.mark_tied_weights_as_initialized(info)
    module._move_missing_keys_from_meta_to_device(
        info.missing_and_mismatched(), {"": device}, None, None
    )
    module._initialize_missing_keys(is_quantized=False)
    module.tie_weights(missing_keys=info.missing_keys, recompute_mapping=False)
    for name, error in info.conversion_errors.items():
        # A rank that holds none of a layer's experts has nothing to stack.
        if sharding.part(module.get_parameter(name)).numel():
            raise RuntimeError(f"{name}: {_in_a_line(error)}")


def _in_a_line(error: str) -> str:
    """A conversion's error without the traceback that transformers puts before it."""
    return " ".join(error.splitlines()[-2:])


def _quantize(layer: Any, name: str, originals: Originals) -> str | None:
    """Fill a layer's quantized weight, read whole; what is wrong with it, or None."""
    weight = originals.weight(name)
    packed, scales = quantization.quantized(weight.to(layer.packed.device), layer.kind)
    sharding.fill(layer.packed, packed)
    sharding.fill(layer.scales, scales)
    return _not_finite(f"{name}.weight", weight)


def _not_finite(name: str, numbers: Tensor) -> str | None:
    """What is wrong with a tensor, where something is."""
    if not numbers.is_floating_point() or not numbers.numel():
        return None
    # NaN where the tensor holds one.
    least, most = (float(bound) for bound in numbers.aminmax())
    if math.isfinite(least) and math.isfinite(most):
        return None
    return f"{name[:200]} holds {'NaN' if math.isnan(least) else 'an infinite number'}"
