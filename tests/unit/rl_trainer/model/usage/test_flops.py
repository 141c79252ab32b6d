from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaConfig, MixtralConfig, Qwen3Config, Qwen3ForCausalLM

from rl_contracts import adapters
from rl_contracts.capacity.shape import shape_of
from rl_contracts.spec.training.lora import LoRA
from rl_trainer.distributed.division import shares
from rl_trainer.model import lora
from rl_trainer.model.policy import Policy
from rl_trainer.model.usage.flops import Meter, Work, peak, sequence_work, work_of
from tests.models.tiny_model import VOCABULARY, tiny_model


def test_parameters_that_are_multiplied_are_those_of_the_model() -> None:
    config = Qwen3Config(
        vocab_size=100,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        tie_word_embeddings=False,
    )
    matrices = {
        name: parameter.numel()
        for name, parameter in Qwen3ForCausalLM(config).named_parameters()
        if parameter.ndim == 2 and "embed_tokens" not in name
    }
    work = work_of(config)
    assert work is not None
    assert work.matmul_parameters == sum(matrices.values())
    assert (work.layers, work.attention_width) == (3, 64)


def test_operations_by_hand() -> None:
    work = Work(matmul_parameters=1000, layers=2, attention_width=8)
    assert work.training([3, 5]) == 6 * 1000 * 8 + 12 * 2 * 8 * (9 + 25)


def test_beside_adapters_the_model_gets_no_gradient_of_its_own() -> None:
    work = Work(matmul_parameters=1000, layers=2, attention_width=8, adapter_parameters=50)
    assert work.training([3, 5]) == (4 * 1000 + 6 * 50) * 8 + 12 * 2 * 8 * (9 + 25)


@pytest.mark.parametrize("rank", [None, 3])
def test_flops_equal_pytorchs_count(
    rank: int | None, load_policy: Callable[[], Policy], tiny_folder: Path
) -> None:
    """Forward and backward, attention's own products aside, of which it counts none on a CPU."""
    policy, section = load_policy(), None if rank is None else LoRA(rank=rank)
    config, trained = policy.module.config, None
    if section is not None:
        entry = adapters.adapter_entry(tiny_folder, uri="s3://models/tiny", section=section)
        policy = lora.adapted(policy, section, entry, seed=0)
        trained = sum(parameter.numel() for parameter in policy.parameters().values())
    work = work_of(config, adapter_parameters=trained)
    assert work is not None
    tokens = torch.randint(VOCABULARY, (1, 20))
    with FlopCounterMode(display=False) as counted:
        torch.autograd.backward(policy.module(input_ids=tokens).logits.sum())
    expected = work.training([20]) - 12 * work.layers * work.attention_width * 20 * 20
    if section is not None:  # nobody asks for the gradient of what the first layer is given
        width, heads = config.hidden_size, config.num_attention_heads
        shared = config.num_attention_heads + 2 * config.num_key_value_heads
        assert heads * config.head_dim == width
        expected -= 2 * 20 * width * (shared * config.head_dim + 3 * section.rank)
    assert counted.get_total_flops() == expected


def test_a_known_model_is_counted_as_published() -> None:
    """Llama 2 7B: 6.74e9 parameters with its embedding of 32000 x 4096."""
    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=32,
        num_attention_heads=32,
    )
    work = work_of(config)
    assert work is not None
    assert work.matmul_parameters + 32000 * 4096 == pytest.approx(6.738e9, rel=1e-3)


def test_unknown_architectures_have_no_flops() -> None:
    assert work_of(MixtralConfig()) is None
    meter = Meter(work=None, peak=1e12, chips=1)
    assert meter.utilization([10], seconds=1.0) is None


@pytest.mark.parametrize(
    ("name", "half", "flops"),
    [
        ("NVIDIA H200", True, 989e12),
        ("NVIDIA H100 PCIe", True, 756e12),
        ("NVIDIA H100 80GB HBM3", True, 989e12),
        ("NVIDIA A100-SXM4-80GB", True, 312e12),
        ("NVIDIA L40S", True, 362e12),
        ("NVIDIA RTX A3000", True, None),
        ("NVIDIA H100 80GB HBM3", False, None),
        (None, True, None),
    ],
)
def test_peak_flops_are_the_chips_or_unknown(
    name: str | None, half: bool, flops: float | None
) -> None:
    assert peak(name, half=half) == flops


def test_utilization_is_the_work_by_what_all_chips_could_do() -> None:
    work = Work(matmul_parameters=1_000_000, layers=0, attention_width=1)
    meter = Meter(work=work, peak=1e9, chips=4)
    assert meter.utilization([100], seconds=0.5) == pytest.approx(6e8 / (0.5 * 4e9))
    assert Meter(work=work, peak=None, chips=4).utilization([100], seconds=0.5) is None


def test_work_of_a_sequence_grows_with_its_tokens_and_with_their_pairs() -> None:
    config = tiny_model().config
    work = sequence_work(shape_of(config.to_dict()))
    pairs = 2 * 32  # layers times numbers of queries
    assert work(1000) - 1000 * work(1) == pairs * (1000 * 1000 - 1000)


def test_a_long_sequence_is_given_fewer_beside_it_than_its_tokens_say() -> None:
    work = sequence_work(shape_of(tiny_model().config.to_dict()))
    lengths = [4000, *[400] * 20]
    alone, others = shares([work(length) for length in lengths], parts=2)
    assert alone == [0]
    assert len(others) == 20
    by_tokens = shares(lengths, parts=2)
    assert len(by_tokens[0]) > 1


def test_sequences_of_a_model_that_is_not_known_are_divided_by_their_tokens() -> None:
    assert sequence_work(None)(17) == 17
