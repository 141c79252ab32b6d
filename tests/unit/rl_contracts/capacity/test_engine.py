from __future__ import annotations

import copy
from typing import Any

import pytest

from rl_contracts.capacity.engine import EngineMemory, Parallel, engine_memory, parallel_of
from rl_contracts.capacity.shape import shape_of
from rl_contracts.capacity.training import GIB
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.workers import SamplerTemplate
from tests.manifests import JOB
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


def memory(config: dict[str, Any], *args: str, size_gib: float = 80) -> EngineMemory:
    template = SamplerTemplate.model_validate({"engine": {"args": list(args)}})
    return engine_memory(shape_of(config), SPEC, template, size_gib=size_gib)


@pytest.mark.parametrize(
    ("arguments", "parallel"),
    [
        ([], Parallel()),
        (["--tensor-parallel-size", "4"], Parallel(tensor=4)),
        (["--tp=2", "--dp-size", "2"], Parallel(tensor=2, data=2)),
        (["--mem-frac", "0.5", "--unknown", "x"], Parallel(fraction=0.5)),
        (["--kv-cache-dtype", "fp8_e5m2"], Parallel(cache_bytes=1)),
        (["--tp", "many"], Parallel()),
    ],
)
def test_arguments_are_read_as_the_engine_reads_them(
    arguments: list[str], parallel: Parallel
) -> None:
    assert parallel_of(arguments) == parallel


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
