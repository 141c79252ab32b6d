"""Memory of an engine's GPU: weights, and the cache of keys and values that is left."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from rl_contracts.capacity.shape import Shape
from rl_contracts.capacity.training import GIB
from rl_contracts.spec.resources import RLJobSpec
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """The engine's arguments that its memory depends on."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    """Copies of the model in one engine."""
    fraction: float | None = None
    """``--mem-fraction-static``: share of the GPU for weights and cache."""
    cache_bytes: int | None = None
    """Of a number in the cache; None: as the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMemory:
    """What each GPU of an engine holds, in bytes."""

    gpus: int
    fraction: float
    weights: float
    cache: float
    """At most 0: the weights do not fit."""
    token: float
    """Keys and values of one token."""

    @property
    def tokens(self) -> int:
        """Tokens whose keys and values a copy of the model can hold at a time."""
        return max(0, int(self.cache // self.token))


def parallel_of(arguments: Sequence[str]) -> Parallel:
    """The arguments as SGLang reads them; others, and values that are no numbers, are passed by."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("--tensor-parallel-size", "--tp-size", "--tp", type=int, default=1)
    parser.add_argument("--pipeline-parallel-size", "--pp-size", "--pp", type=int, default=1)
    parser.add_argument("--data-parallel-size", "--dp-size", "--dp", type=int, default=1)
    parser.add_argument("--mem-fraction-static", type=float)
    parser.add_argument("--kv-cache-dtype", default="auto")
    try:
        given, _ = parser.parse_known_args(list(arguments))
    except argparse.ArgumentError:
        return Parallel()
    return Parallel(
        tensor=max(1, given.tensor_parallel_size),
        pipeline=max(1, given.pipeline_parallel_size),
        data=max(1, given.data_parallel_size),
        fraction=given.mem_fraction_static,
        cache_bytes=1 if given.kv_cache_dtype.startswith("fp8") else None,
    )


def engine_memory(
    shape: Shape, spec: RLJobSpec, template: SamplerTemplate, *, size_gib: float
) -> EngineMemory:
    """What an engine's GPU holds.

    Layers with a sliding window are counted like others, so that their cache may hold more.

    Args:
        shape: of the policy.
        spec: the manifest, for its precision.
        template: of the group's pods.
        size_gib: memory of one GPU.
    """
    parallel = parallel_of(template.engine.args)
    number = 2 if spec.training.precision == "BF16" else 4
    fraction = parallel.fraction or _fraction(size_gib, parallel)
    weights = number * shape.parameters / (parallel.tensor * parallel.pipeline)
    return EngineMemory(
        gpus=parallel.tensor * parallel.pipeline * parallel.data,
        fraction=fraction,
        weights=weights,
        cache=fraction * size_gib * GIB - weights,
        token=_numbers(shape, parallel) * (parallel.cache_bytes or number),
    )


def _numbers(shape: Shape, parallel: Parallel) -> float:
    """Numbers of a token in the cache of one GPU."""
    layers = shape.layers / parallel.pipeline
    if shape.latent is not None:  # each GPU has all of them
        return layers * (shape.latent.key_value_rank + shape.latent.rotary_width)
    heads = max(1, shape.key_value_heads // parallel.tensor)
    return layers * 2 * heads * shape.head_width


def _fraction(size_gib: float, parallel: Parallel) -> float:
    """SGLang's default, without what it reserves for CUDA graphs, of which it depends on more."""
    chunk = next((tokens for size, tokens in CHUNKS if size_gib < size), LARGEST_CHUNK)
    reserved = BASE_MIB + CHUNK_MIB * chunk + PARALLEL_MIB * parallel.tensor * parallel.pipeline
    if size_gib > LARGE_GIB:
        reserved = max(reserved, LARGE_RESERVED_MIB)
    return max(0.05, 1 - reserved * MIB / (size_gib * GIB))
