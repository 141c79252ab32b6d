"""Memory of an engine's GPU: weights, and the cache of keys and values that is left."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from rl_contracts.capacity.shape import Shape
from rl_contracts.capacity.training import GIB, adapted
from rl_contracts.spec.engine import Engine
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.training.lora import ENGINES_SLOTS, LoRA
from rl_contracts.spec.workers import SamplerTemplate

MIB = 1 << 20
CHUNKS = ((20, 2048), (60, 4096))
"""SGLang 0.5.23's tokens of a prefill chunk, by GiB of the GPU that they are for; else 8192."""
LARGEST_CHUNK = 8192
CHUNK_MIB, BASE_MIB, PARALLEL_MIB = 1.5, 512, 128
"""What SGLang reserves for each token of a chunk, always, and for each GPU of an engine
(``sglang/srt/arg_groups/memory_hook.py``)."""
LARGE_GIB, LARGE_RESERVED_MIB = 60, 10 * 1024
"""GPUs from this size on have at least so much reserved."""
TABLE_ROWS = 2048, 4096
"""Fewest and most requests that SGLang makes room for, unless an argument says how many, and what
it takes for a token of each (``kv_cache_configurator.py``, ``resolve_max_num_reqs``)."""
TABLE_BYTES = 4
STACKS = ("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")
"""Matrices whose adapters lie in one stack, which is made whole where one of them has any."""
SPECULATIVE_REQUESTS = 48
"""Requests that run at a time under speculation, unless an argument says how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The engine's options that its memory and its GPUs depend on."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    """Copies of the model in one engine."""
    expert: int = 1
    """Groups of the ``tensor`` GPUs with different experts."""
    fraction: float | None = None
    """Share of the GPU for weights and cache; None: SGLang's choice."""
    cache_bytes: int | None = None
    """Of a number in the cache; None: as the weights."""
    context: int | None = None
    """Most tokens of a request; None: the model's."""
    requests: int | None = None
    """Most requests that run at a time; None: SGLang's choice."""
    slots: int = ENGINES_SLOTS
    """Adapters that have room on the GPU, where adapters are trained."""

    @property
    def gpus(self) -> int:
        """Of one engine."""
        return self.tensor * self.pipeline * self.data


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMemory:
    """What each GPU of an engine holds, in bytes."""

    gpus: int
    fraction: float
    weights: float
    adapters: float
    """Room for all slots of adapters (LoRA), which SGLang takes before it makes the cache."""
    cache: float
    """At most 0: weights and adapters do not fit."""
    token: float
    """Keys and values of one token."""
    table: float
    """Where each request's tokens are in the cache; beside the share for weights and cache."""

    @property
    def tokens(self) -> int:
        """Tokens whose keys and values a copy of the model can hold at a time."""
        return max(0, int(self.cache // self.token))


def options_of(engine: Engine) -> Options:
    """The typed options, and those of ``args`` as SGLang reads them.

    Other arguments, and values that are no numbers, are passed by. An option that both set is
    refused elsewhere.
    """
    given = _given(engine.args)
    requests = given.max_running_requests
    if requests is None and engine.speculation is not None:
        requests = SPECULATIVE_REQUESTS
    quantized = engine.cache_precision is not None or given.kv_cache_dtype.startswith("fp8")
    return Options(
        tensor=max(engine.tensor_parallel, given.tensor_parallel_size),
        pipeline=max(1, given.pipeline_parallel_size),
        data=max(engine.data_parallel, given.data_parallel_size),
        expert=max(engine.expert_parallel, given.expert_parallel_size),
        fraction=engine.memory_fraction or given.mem_fraction_static,
        cache_bytes=1 if quantized else None,
        context=engine.context_tokens or given.context_length,
        requests=requests,
        slots=given.max_loras_per_batch,
    )


def _given(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("--tensor-parallel-size", "--tp-size", "--tp", type=int, default=1)
    parser.add_argument("--pipeline-parallel-size", "--pp-size", "--pp", type=int, default=1)
    parser.add_argument("--data-parallel-size", "--dp-size", "--dp", type=int, default=1)
    parser.add_argument("--expert-parallel-size", "--ep-size", "--ep", type=int, default=1)
    parser.add_argument("--mem-fraction-static", type=float)
    parser.add_argument("--kv-cache-dtype", default="auto")
    parser.add_argument("--context-length", type=int)
    parser.add_argument("--max-running-requests", type=int)
    parser.add_argument("--max-loras-per-batch", type=int, default=ENGINES_SLOTS)
    try:
        given, _ = parser.parse_known_args(list(arguments))
    except argparse.ArgumentError:
        given, _ = parser.parse_known_args([])
    return given


def engine_memory(
    shape: Shape, spec: RLJobSpec, template: SamplerTemplate, *, size_gib: float
) -> EngineMemory:
    """What an engine's GPU holds.

    Layers with a sliding window are counted like others, so that their cache may hold more.

    Args:
        shape: of the policy.
        spec: the manifest, for its precision and its adapters.
        template: of the group's pods.
        size_gib: memory of one GPU.
    """
    options = options_of(template.engine)
    number = 4 if spec.training.precision == "FP32" else 2
    fraction = options.fraction or _fraction(size_gib, options)
    linear = 0 if template.engine.weight_precision is None else shape.layers_parameters
    weights = (number * shape.parameters - (number - 1) * linear) / (
        options.tensor * options.pipeline
    )
    section = spec.training.served_adapters
    adapters = 0.0 if section is None else number * _slots(shape, section, options)
    cache = fraction * size_gib * GIB - weights - adapters
    token = _numbers(shape, options) * (options.cache_bytes or number)
    context = options.context or shape.max_positions or spec.agent.sampling.max_context_tokens
    return EngineMemory(
        gpus=options.gpus,
        fraction=fraction,
        weights=weights,
        adapters=adapters,
        cache=cache,
        token=token,
        table=_rows(options, max(0, int(cache // token)), context) * context * TABLE_BYTES,
    )


def _rows(options: Options, tokens: int, context: int) -> int:
    """Requests that the engine makes room for."""
    fewest, most = TABLE_ROWS
    rows = options.requests or max(fewest, min(most, tokens * 512 // context))
    return min(rows, tokens // 2)


def _slots(shape: Shape, section: LoRA, options: Options) -> float:
    """Numbers of all slots of adapters on one GPU.

    Each adapter has a matrix on the side of the hidden states, which each GPU holds whole, and one
    on the other side, which the GPUs divide (``sglang/srt/lora/mem_pool.py``).
    """
    targets = {name for target in section.targets for name in _stacked_with(target)}
    sides = (
        shape.hidden + (rows + columns - shape.hidden) / options.tensor
        for rows, columns in adapted(shape, targets)
    )
    layers = shape.layers / options.pipeline
    return options.slots * section.rank * layers * sum(sides)


def _stacked_with(target: str) -> tuple[str, ...]:
    return next((stack for stack in STACKS if target in stack), (target,))


def _numbers(shape: Shape, options: Options) -> float:
    """Numbers of a token in the cache of one GPU."""
    layers = shape.layers / options.pipeline
    if shape.latent is not None:  # each GPU has all of them
        return layers * (shape.latent.key_value_rank + shape.latent.rotary_width)
    heads = max(1, shape.key_value_heads // options.tensor)
    return layers * 2 * heads * shape.head_width


def _fraction(size_gib: float, options: Options) -> float:
    """SGLang's default, without what it reserves for CUDA graphs, of which it depends on more."""
    chunk = next((tokens for size, tokens in CHUNKS if size_gib < size), LARGEST_CHUNK)
    reserved = BASE_MIB + CHUNK_MIB * chunk + PARALLEL_MIB * options.tensor * options.pipeline
    if size_gib > LARGE_GIB:
        reserved = max(reserved, LARGE_RESERVED_MIB)
    return max(0.05, 1 - reserved * MIB / (size_gib * GIB))
