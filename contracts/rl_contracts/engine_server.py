"""How SGLang is started: its program, and its arguments by ``samplers[].template.engine``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rl_contracts.spec.engine import Engine
from rl_contracts.spec.training.training import Precision

PROGRAM = """\
import os, runpy, signal
signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
runpy.run_module("sglang.launch_server", run_name="__main__", alter_sys=True)
"""
"""SGLang, which can be ended while it loads. It handles SIGTERM only once it serves, and the kernel
gives the first process of a container no signal without a handler: a pod that is stopped before
would last as long as its grace."""
ENVIRONMENT: Mapping[str, str] = {"SGLANG_FORWARD_UNKNOWN_TOOLS": "1"}
"""Its variables. Without this one, calls of tools that were not offered are left out silently, and
the policy would never learn of them."""
DTYPES: Mapping[str, str] = {"BF16": "bfloat16", "FP16": "float16", "FP32": "float32"}
"""SGLang's names of ``training.precision``."""
CACHE_TYPES = {"FP8E4M3": "fp8_e4m3", "FP8E5M2": "fp8_e5m2"}
"""SGLang's names of ``cachePrecision``."""
QUANTIZED_LOADING = ("fp8", "flash_rl")
"""With SGLang's loader for reinforcement learning an update is quantized as the first load was;
with its ordinary loader it ends the engine."""
ALGORITHMS = {"NGram": "NGRAM"}
"""SGLang's names of ``speculation.kind``."""
SPECULATIVE = "--speculative-"
"""Beginning of all arguments of speculative decoding."""
NAMES: Mapping[str, tuple[str, ...]] = {
    "tensor_parallel": ("--tensor-parallel-size", "--tp-size"),
    "data_parallel": ("--data-parallel-size", "--dp-size"),
    "expert_parallel": ("--expert-parallel-size", "--ep-size", "--ep"),
    "memory_fraction": ("--mem-fraction-static",),
    "context_tokens": ("--context-length",),
    "weight_precision": ("--quantization", "--load-format"),
    "cache_precision": ("--kv-cache-dtype",),
    "speculation": (
        f"{SPECULATIVE}algorithm",
        f"{SPECULATIVE}num-draft-tokens",
        f"{SPECULATIVE}ngram-max-bfs-breadth",
        f"{SPECULATIVE}ngram-max-trie-depth",
    ),
}
"""Names of the argument of each option; the first is the one that is set. Those of
``weight_precision`` are both set, those of speculation one for each of its fields."""


def arguments(engine: Engine) -> list[str]:
    """Arguments of the options that differ from their defaults."""
    return [each for name, value in _set(engine) for each in (name, value)]


def _set(engine: Engine) -> Iterator[tuple[str, str]]:
    for option in ("tensor_parallel", "data_parallel", "expert_parallel"):
        if (size := getattr(engine, option)) > 1:
            yield NAMES[option][0], str(size)
    if engine.memory_fraction is not None:
        yield NAMES["memory_fraction"][0], f"{engine.memory_fraction:g}"
    if engine.context_tokens is not None:
        yield NAMES["context_tokens"][0], str(engine.context_tokens)
    if engine.weight_precision is not None:
        yield from zip(NAMES["weight_precision"], QUANTIZED_LOADING, strict=True)
    if engine.cache_precision is not None:
        yield NAMES["cache_precision"][0], CACHE_TYPES[engine.cache_precision]
    if engine.speculation is not None:
        section = engine.speculation
        sizes = (section.draft_tokens, section.breadth, section.match_tokens)
        yield from zip(
            NAMES["speculation"], (ALGORITHMS[section.kind], *map(str, sizes)), strict=True
        )


def server_arguments(
    engine: Engine,
    *,
    folder: str,
    port: int,
    precision: Precision,
    also: Sequence[str] = (),
) -> list[str]:
    """All arguments of a server that listens on loopback.

    Args:
        engine: its options; its own ``args`` come last.
        folder: of the model.
        port: on loopback.
        precision: of the weights.
        also: arguments before the options.
    """
    return [
        "--model-path",
        folder,
        "--weight-version",
        "base",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--dtype",
        DTYPES[precision],
        "--sleep-on-idle",
        "--incremental-streaming-output",
        *also,
        *arguments(engine),
        *engine.args,
    ]
