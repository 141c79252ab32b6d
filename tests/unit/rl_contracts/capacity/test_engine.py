from __future__ import annotations

import copy
from typing import Any

import pytest

from rl_contracts.capacity.engine import EngineMemory, Options, engine_memory, options_of
from rl_contracts.capacity.shape import shape_of
from rl_contracts.capacity.training import GIB
from rl_contracts.spec.engine import Engine
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.workers import SamplerTemplate
from tests.samples.manifests import JOB
from tests.unit.rl_contracts.capacity.test_fit import QWEN3

DEEPSEEK = {
    "model_type": "deepseek_v3",
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "vocab_size": 1000,
    "kv_lora_rank": 512,
    "q_lora_rank": 256,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
SECTIONS = copy.deepcopy(JOB["spec"])
SECTIONS["training"] = {**SECTIONS["training"], "precision": "BF16"}
SPEC = RLJobSpec.model_validate(SECTIONS)


def memory(
    config: dict[str, Any], *args: str, size_gib: float = 80, **options: Any
) -> EngineMemory:
    template = SamplerTemplate.model_validate({"engine": {"args": list(args), **options}})
    return engine_memory(shape_of(config), SPEC, template, size_gib=size_gib)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ([], Options()),
        (["--tensor-parallel-size", "4"], Options(tensor=4)),
        (["--tp=2", "--dp-size", "2"], Options(tensor=2, data=2)),
        (["--tp=4", "--ep", "2"], Options(tensor=4, expert=2)),
        (["--mem-frac", "0.5", "--unknown", "x"], Options(fraction=0.5)),
        (["--kv-cache-dtype", "fp8_e5m2"], Options(cache_bytes=1)),
        (["--context-length", "4096", "--max-running-r=9"], Options(context=4096, requests=9)),
        (["--tp", "many"], Options()),
    ],
)
def test_arguments_are_read_as_the_engine_reads_them(
    arguments: list[str], options: Options
) -> None:
    assert options_of(Engine(args=arguments)) == options


def test_typed_options_count_like_arguments() -> None:
    typed = Engine.model_validate(
        {
            "tensorParallel": 4,
            "dataParallel": 2,
            "expertParallel": 2,
            "memoryFraction": 0.6,
            "contextTokens": 4096,
            "cachePrecision": "FP8E4M3",
            "speculation": {},
        }
    )
    options = options_of(typed)
    assert options == Options(
        tensor=4, data=2, expert=2, fraction=0.6, cache_bytes=1, context=4096, requests=48
    )
    assert options.gpus == 8
    more = typed.model_copy(update={"args": ["--max-running-requests", "96"]})
    assert options_of(more).requests == 96


def test_a_quantized_cache_holds_twice_the_tokens() -> None:
    plain = memory(QWEN3, memoryFraction=0.5)
    quantized = memory(QWEN3, memoryFraction=0.5, cachePrecision="FP8E5M2")
    assert quantized.token == plain.token / 2
    assert quantized.tokens == pytest.approx(2 * plain.tokens, abs=1)


@pytest.mark.parametrize(
    ("lora", "arguments", "numbers"),
    [
        ({}, (), 8 * 16 * 28 * (4 * 1024 + 2 * 2048 + 2 * 1024 + 3 * (1024 + 3072))),
        ({"targets": ["q_proj", "v_proj"]}, (), 8 * 16 * 28 * (3 * 1024 + 2048 + 2 * 1024)),
        ({"targets": ["gate_proj"]}, (), 8 * 16 * 28 * 2 * (1024 + 3072)),
        ({"rank": 64, "targets": ["o_proj"]}, (), 8 * 64 * 28 * (1024 + 2048)),
        ({"targets": ["o_proj"]}, ("--tp", "4"), 8 * 16 * 28 * (1024 + 2048 // 4)),
        ({"targets": ["o_proj"]}, ("--max-loras-per-batch", "2"), 2 * 16 * 28 * (1024 + 2048)),
    ],
)
def test_slots_of_adapters_take_room_from_the_cache(
    lora: dict[str, Any], arguments: tuple[str, ...], numbers: int
) -> None:
    trained = RLJobSpec.model_validate(
        {**SECTIONS, "training": {**SECTIONS["training"], "lora": lora}}
    )
    template = SamplerTemplate.model_validate({"engine": {"args": list(arguments)}})
    held = engine_memory(shape_of(QWEN3), trained, template, size_gib=80)
    plain = memory(QWEN3, *arguments)
    assert (plain.adapters, held.adapters) == (0, 2 * numbers)
    assert held.cache == plain.cache - held.adapters


def test_quantized_weights_take_a_byte_in_layers_alone() -> None:
    plain, quantized = memory(QWEN3), memory(QWEN3, weightPrecision="FP8")
    tables = 151_936 * 1024 + 1024  # tied: embedding, and the last norm
    assert plain.weights - quantized.weights == 596_049_920 - tables
    assert memory(QWEN3, weightPrecision="FP8", tensorParallel=2).weights == quantized.weights / 2


def test_a_shorter_context_makes_the_table_of_requests_smaller() -> None:
    longer, shorter = (memory(QWEN3, contextTokens=tokens) for tokens in (32_768, 8192))
    assert longer.table == 4096 * 32_768 * 4
    assert shorter.table == longer.table / 4
    assert shorter.tokens == longer.tokens
    assert memory(QWEN3, contextTokens=8192, speculation={}).table == 48 * 8192 * 4


def test_a_token_of_grouped_attention_holds_keys_and_values_of_each_layer() -> None:
    whole = memory(QWEN3, "--mem-fraction-static", "0.5")
    assert whole.token == 28 * 2 * 8 * 128 * 2
    assert whole.weights == pytest.approx(2 * 596_049_920, rel=1e-3)
    assert whole.weights + whole.cache == 40 * GIB
    assert whole.tokens == int(whole.cache // whole.token)


def test_parallel_engines_divide_weights_and_heads() -> None:
    one, eight, sixteen = (memory(QWEN3, "--tp", size) for size in ("1", "8", "16"))
    assert eight.token == one.token / 8
    assert sixteen.token == eight.token, "a head is not divided"
    assert sixteen.weights == one.weights / 16
    assert memory(QWEN3, "--tp", "2", "--dp", "4").gpus == 8


def test_latent_attention_is_held_whole_by_each_gpu() -> None:
    for size in ("1", "8"):
        assert memory(DEEPSEEK, "--tp", size).token == 4 * (512 + 64) * 2


@pytest.mark.parametrize(("gib", "share"), [(16, 0.78), (24, 0.72), (80, 0.84)])
def test_the_engine_keeps_memory_for_a_chunk_of_prefill(gib: float, share: float) -> None:
    assert memory(QWEN3, size_gib=gib).fraction == pytest.approx(share, abs=0.01)


def test_weights_that_do_not_fit_leave_no_cache() -> None:
    assert memory(QWEN3, size_gib=1).tokens == 0
