"""Models whose layers several ranks compute together, by the plans that transformers ships.

Axis ``tp``: matrices of attention and feed-forward are divided by columns, then by rows
(Megatron-LM, arXiv 1909.08053, section 3), the embedding and the output layer by
tokens.
Axis ``ep``: each rank owns some of each layer's experts, and tokens travel to them and back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.nn import functional
from transformers.distributed.configuration_utils import DistributedConfig
from transformers.distributed.tensor_parallel import (
    ALL_PARALLEL_STYLES,
    _get_parameter_plan,
    apply_expert_parallelism,
    apply_tensor_parallelism,
    resolve_parallel_plans,
)

from rl_contracts.capacity.mesh import refusals
from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.spec.parallelism import SECTION
from rl_trainer.distributed.mesh import Mesh
from rl_trainer.distributed.tensor_ranks import TensorRanks
from rl_trainer.model.lora import LoRALinear
from rl_trainer.model.microbatch import known_shape
from rl_trainer.model.quantization import SCALES, QuantizedLinear

VOCABULARY = "embedding_rowwise"
SUMMED = "replicated_with_grad_allreduce"
"""Whole on every rank, and applied to a part of the heads: the ranks' gradients are summed."""
DISPATCH = "ep_dispatch_experts"
LOCAL = "_hf_quantized_needs_local_tp"
"""Set on a layer, transformers gives it plain tensors."""
COLUMNS, ROWS = "colwise", "rowwise"
WHOLE_PARTS = {COLUMNS: frozenset({"lora_A"}), ROWS: frozenset({"lora_B"})}
"""Of a layer's parameters those that all its ranks hold whole, each with a part of the gradient."""


def divide(module: Any, mesh: Mesh) -> list[Any]:
    """Divide a model's layers among the ranks of ``tp``, and its experts among those of ``ep``.

    Args:
        module: a transformers model, whole and equal on all ranks or on ``meta``; it is changed.
        mesh: of all ranks.

    Returns:
        The modules of experts that ranks of ``ep`` have divided.

    Raises:
        RefusedError: transformers has no plan for this model.
    """
    sizes, tp = mesh.sizes, mesh.tp
    weights = sizes.fsdp * sizes.cp  # ranks of cp divide weights as those of fsdp do
    plans = DistributedConfig(tp_size=sizes.tp, fsdp_size=weights, ep_size=sizes.ep)
    _check(module, mesh)
    tensor_plan, expert_plan = resolve_parallel_plans(module, plans)
    if tp is not None:
        _divide_tensors(module, tp, tensor_plan, TensorRanks(tp.get_group()))
    if mesh.ep is None:
        return []
    apply_expert_parallelism(module, mesh.ep, tp, expert_plan)
    return [
        part
        for name, part in module.named_modules()
        if _get_parameter_plan(name, expert_plan, is_weight=False) == DISPATCH
    ]


def _check(module: Any, mesh: Mesh) -> None:
    """Refuse a model that the mesh does not divide, e.g. a teacher that the operator cannot see."""
    low_rank = next((each for each in module.modules() if isinstance(each, QuantizedLinear)), None)
    shape = known_shape(module.config.to_dict())
    kind = None if low_rank is None else low_rank.kind
    indivisible = [] if shape is None else refusals(shape, mesh.sizes, quantization=kind)
    for refusal in indivisible:
        raise RefusedError(refusal)
    for axis, size, plan in (
        ("tp", mesh.sizes.tp, module.tp_plan),
        ("ep", mesh.sizes.ep, module.ep_plan),
    ):
        if size > 1 and not plan:
            raise RefusedError(
                Refusal(
                    field=f"{SECTION}.{axis}",
                    value=str(size),
                    reason="ModelUnusable",
                    message=f"transformers has no {axis} plan for {type(module).__name__}.",
                    remedy="Remove it; fsdp divides every model's weights.",
                )
            )


def _divide_tensors(module: Any, tp: DeviceMesh, plan: dict[str, str], ranks: TensorRanks) -> None:
    embedding, output = module.get_input_embeddings(), module.get_output_embeddings()
    tied = output is not None and output.weight is embedding.weight
    names = {id(part): name for name, part in module.named_modules()}
    plan = plan | {names[id(embedding)]: VOCABULARY}
    if output is not None:
        # Run by Policy, which wants the logits of this rank's tokens alone.
        plan.pop(names[id(output)], None)
    whole = _adapted(module, plan)
    summed = [
        (part, part._parameters.keys())
        for name, part in module.named_modules()
        if _get_parameter_plan(name, plan, is_weight=False) == SUMMED
    ]
    plan = {name: style for name, style in plan.items() if style != SUMMED}
    apply_tensor_parallelism(module, tp, plan)
    for part, parameters in whole:
        part._parameters.update(parameters)
    trained = [(part, [n for n, p in held.items() if p.requires_grad]) for part, held in whole]
    for part, members in (*summed, *trained):
        _sum_gradients(part, list(members), ranks)
    if tied:
        output.weight = embedding.weight
    elif output is not None:
        for name in ("weight", "bias"):
            ALL_PARALLEL_STYLES[COLUMNS].shard_param(output, name, tp)
    if output is not None:
        output.forward = partial(_whole_logits, output)


def _whole_logits(layer: Any, hidden: Tensor) -> Tensor:
    """What the model's own call computes of a divided output layer: logits of all tokens."""
    weight, bias = layer.weight, layer.bias
    states = DTensor.from_local(hidden, weight.device_mesh, [Replicate()], run_check=False)
    logits = functional.linear(states, weight, bias)
    assert isinstance(logits, DTensor)
    return logits.full_tensor()


def _adapted(module: Any, plan: dict[str, str]) -> list[tuple[Any, dict[str, Any]]]:
    """Layers with adapters or quantized weights, and their parameters that stay whole."""
    whole = []
    for name, part in module.named_modules():
        style = _get_parameter_plan(name, plan, is_weight=False)
        if not isinstance(part, (LoRALinear, QuantizedLinear)) or style not in WHOLE_PARTS:
            continue
        # Both compute with the numbers themselves, not with DTensors.
        setattr(part, LOCAL, True)
        kept = set(WHOLE_PARTS[style])
        if style == ROWS and getattr(part, "kind", None) == "Int8":
            kept.add(SCALES)  # of whole rows
        held = {key: value for key, value in part._parameters.items() if key in kept}
        whole.append((part, held))
    return whole


def _sum_gradients(part: Any, names: list[str], ranks: TensorRanks) -> None:
    """Have a module's parameters, which all ranks hold whole, get the sum of the ranks' gradients.

    In each pass, unlike transformers' own hook, which sums what earlier microbatches left again.
    """
    compute: Callable[..., Any] = part.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        held = {name: part._parameters[name] for name in names}
        part._parameters.update({name: ranks.shared(each) for name, each in held.items()})
        try:
            return compute(*args, **kwargs)
        finally:
            part._parameters.update(held)

    part.forward = forward
