from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rl_contracts.capacity.parts import Memory
from rl_contracts.capacity.setup import Setup
from rl_contracts.capacity.shape import Shape
from rl_contracts.capacity.text import arithmetic
from rl_contracts.capacity.training import GIB, memory, trained_parameters
from rl_contracts.capacity.vision import VisionShape
from rl_contracts.spec.parallelism import MeshSizes

SMALL = Shape(
    family="qwen3",
    hidden=1024,
    layers=28,
    heads=16,
    key_value_heads=8,
    head_width=128,
    feed_forward=3072,
    vocabulary=151_936,
    tied=True,
)
SETUP = Setup(microbatch_tokens=8192, longest_tokens=2048)


def of(**changes: Any) -> Memory:
    return memory(SMALL, replace(SETUP, **changes))


def test_full_training_holds_sixteen_bytes_a_parameter() -> None:
    assert of().fixed == 16 * SMALL.parameters


def test_a_reference_adds_four_bytes_a_parameter() -> None:
    assert of(reference=True).reference == 4 * SMALL.parameters


def test_a_reference_and_a_critic_with_models_of_their_own_have_their_own_sizes() -> None:
    large = replace(SMALL, layers=280, tied=False)
    beside = of(reference=True, reference_shape=large)
    assert beside.reference == 4 * large.parameters
    assert replace(beside, reference=0, activations=0) == replace(of(), activations=0)
    states = 4 * SETUP.microbatch_tokens * large.hidden
    assert beside.activations - of().activations == states
    valued = of(critic=True, critic_shape=large)
    assert valued.critic == 16 * (large.parameters - large.table_parameters)
    assert valued.activations > of(critic=True).activations
    aside = of(reference=True, reference_shape=large, offload_reference=True)
    assert aside.host == beside.reference


def test_a_wide_teacher_runs_while_the_policys_activations_are_kept() -> None:
    wide = replace(SMALL, hidden=5120, heads=40, feed_forward=17_408)
    matrix = 5120 * 17_408
    each = 4 * (4 * 5120 + 2 * 128) + 3 * 2 * 17_408
    few, many = (
        of(reference=True, reference_shape=wide, microbatch_tokens=tokens)
        for tokens in (16_384, 32_768)
    )
    assert few.casts == many.casts == 2 * matrix
    kept = 4 * 1024 * (28 + 3)
    assert many.activations == 32_768 * (each + kept) == 2 * few.activations
    halved = of(
        reference=True,
        reference_shape=wide,
        microbatch_tokens=32_768,
        mesh=MeshSizes(cp=2),
    )
    assert halved.activations == few.activations


@pytest.mark.parametrize("changes", [{"reference": True}, {"adapter_rank": 16}])
def test_states_of_what_whole_distributions_are_compared_with_lie_beside_the_policys(
    changes: dict[str, Any],
) -> None:
    """Also of the model without its adapters, which is no copy."""
    states = 4 * SETUP.microbatch_tokens * SMALL.hidden
    compared = of(**changes, full_divergence=True)
    assert compared.activations - of(**changes).activations == states


TWO_LAYERS = SMALL.outer_parameters + 2 * SMALL.layer_parameters


@pytest.mark.parametrize("divided", [{"mesh": MeshSizes(fsdp=8)}, {"offload_parameters": True}])
@pytest.mark.parametrize(
    ("changes", "part", "gathered"),
    [
        ({"reference": True}, "reference", 0),
        ({"reference": True, "full_divergence": True}, "reference", 4 * SMALL.outer_parameters),
        ({"reference": True, "reference_shape": SMALL}, "reference", 4 * SMALL.outer_parameters),
        ({"critic": True}, "critic", 0),
        ({"critic": True, "adapter_rank": 8}, "critic", (8 - 2) * TWO_LAYERS),
    ],
)
def test_a_divided_model_beside_the_policy_gathers_layers_of_its_own(
    changes: dict[str, Any], part: str, gathered: int, divided: dict[str, Any]
) -> None:
    """Of a reference what is outside of its layers, of a critic what exceeds the policy's."""
    whole, held = getattr(of(**changes), part), getattr(of(**changes, **divided), part)
    share = 0 if "offload_parameters" in divided else whole / 8
    assert held == share + gathered


def test_a_divided_teacher_gathers_its_wider_layers_in_its_pass() -> None:
    wide = replace(SMALL, hidden=5120, heads=40, feed_forward=17_408)
    setup = {"reference": True, "reference_shape": wide, "microbatch_tokens": 16_384}
    more = 4 * 2 * (wide.layer_parameters - SMALL.layer_parameters)
    assert of(**setup, mesh=MeshSizes(fsdp=8)).casts - of(**setup).casts == more


def test_layers_of_an_offloaded_reference_are_counted_once() -> None:
    setup = {"reference": True, "full_divergence": True, "offload_reference": True}
    assert of(**setup).reference == of(**setup, mesh=MeshSizes(fsdp=8)).reference


def test_checkpointing_saves_most_activations() -> None:
    assert of(checkpointing=True).activations < of(checkpointing=False).activations / 5


def test_activations_grow_with_the_microbatch_and_weights_do_not() -> None:
    small, large = of(microbatch_tokens=16384), of(microbatch_tokens=65536)
    assert large.activations == pytest.approx(4 * small.activations)
    assert large.fixed == small.fixed


def test_memory_does_not_depend_on_how_long_the_sequences_of_a_microbatch_are() -> None:
    short, long = (of(microbatch_tokens=131_072, longest_tokens=most) for most in (512, 131_072))
    assert short == long
    assert long.total < 80 * GIB


def test_ranks_divide_what_is_kept_and_gather_layers() -> None:
    alone, eight = of(), of(mesh=MeshSizes(fsdp=8))
    assert eight.gradients == alone.gradients / 8
    assert eight.moments == alone.moments / 8
    assert alone.weights / 8 < eight.weights < alone.weights + alone.gradients


def test_each_rank_holds_a_frozen_vision_tower_whole() -> None:
    tower = VisionShape(parameters=10**8, layers=2, hidden=64, feed_forward=64, patches=4)
    seeing = replace(SMALL, vision=tower)
    for ranks in (2, 8):
        setup = replace(SETUP, mesh=MeshSizes(fsdp=ranks), reference=True)
        with_tower, without = memory(seeing, setup), memory(SMALL, setup)
        assert with_tower.weights - without.weights == pytest.approx(4 * 10**8)
        assert with_tower.reference - without.reference == pytest.approx(4 * 10**8)
        assert (with_tower.gradients, with_tower.moments) == (without.gradients, without.moments)


def test_adapters_train_few_numbers_beside_weights_of_two_bytes() -> None:
    lora = of(adapter_rank=16)
    trained = trained_parameters(SMALL, replace(SETUP, adapter_rank=16))
    assert 0 < trained < 0.03 * SMALL.parameters
    assert lora.weights == 2 * SMALL.parameters + 4 * trained
    assert lora.moments == 8 * trained


@pytest.mark.parametrize(
    ("targets", "numbers"),
    [
        (("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "o_proj", "down_proj"), 0),
        (("q_proj", "v_proj"), 1024 + 2048 + 3072 + 5 * 16),
        (("down_proj",), 2 * 1024 + 2048 + 6 * 16),
    ],
)
def test_matrices_without_adapters_keep_no_input(targets: tuple[str, ...], numbers: int) -> None:
    """Numbers of two bytes that each layer keeps less of a token than with all seven adapted."""
    lora = {"adapter_rank": 16, "checkpointing": False}
    assert of(**lora).activations - of(**lora, targets=targets).activations == (
        8192 * 28 * 2 * numbers
    )


@pytest.mark.parametrize(
    "adapters",
    [
        {},
        {"targets": ("q_proj", "v_proj")},
        {"targets": ("q_proj", "v_proj"), "quantization": "Int8"},
    ],
)
@pytest.mark.parametrize("checkpointing", [True, False])
def test_the_pass_of_a_critic_beside_adapters_is_that_of_a_critic_without(
    adapters: dict[str, Any], checkpointing: bool
) -> None:
    """Microbatches are so large that the critic's pass is the largest."""
    setup = {"critic": True, "checkpointing": checkpointing, "microbatch_tokens": 65_536}
    beside, alone = of(**setup, adapter_rank=16, **adapters), of(**setup)
    assert beside.casts == alone.casts
    assert beside.activations == alone.activations


@pytest.mark.parametrize("tokens", [2048, 65_536])
def test_a_critic_is_counted_with_its_own_microbatches(tokens: int) -> None:
    own = of(critic=True, critic_tokens=tokens)
    larger = max(tokens, SETUP.microbatch_tokens)
    assert own.activations == of(critic=True, microbatch_tokens=larger).activations


@pytest.mark.parametrize(("statistics", "each"), [(1, 20), (2, 24)])
def test_each_trained_statistic_of_a_distribution_adds_to_its_logits(
    statistics: int, each: int
) -> None:
    head = 4 * SMALL.table_parameters
    held = of(precision="FP32", distributions=statistics, microbatch_tokens=512)
    assert held.logits == head + each * ((1 << 25) // 3)


def test_adapters_of_experts_are_counted_with_their_moments_and_products() -> None:
    mixture = replace(
        SMALL, experts=128, experts_per_token=8, expert_width=768, expert_layers=SMALL.layers
    )
    frozen = replace(SETUP, adapter_rank=16, targets=("q_proj", "v_proj"))
    adapted = replace(frozen, adapt_experts=True)
    more = trained_parameters(mixture, adapted) - trained_parameters(mixture, frozen)
    assert more == 28 * 128 * 3 * 16 * (1024 + 768)
    before, after = memory(mixture, frozen), memory(mixture, adapted)
    assert after.weights - before.weights == 4 * more
    assert after.gradients - before.gradients == 4 * more
    assert after.moments - before.moments == 8 * more
    assert after.activations > before.activations
    divided = [memory(mixture, replace(each, mesh=MeshSizes(fsdp=8))) for each in (frozen, adapted)]
    assert divided[1].moments - divided[0].moments == more


def test_quantized_weights_are_smaller() -> None:
    whole, int8, nf4 = (
        of(adapter_rank=16, quantization=kind).weights for kind in (None, "Int8", "NF4")
    )
    assert nf4 < int8 < whole


def test_offloaded_parts_lie_in_host_memory() -> None:
    everything = of(offload_parameters=True)
    assert everything.host == 16 * SMALL.parameters
    assert everything.gradients == everything.moments == 0
    assert of(offload_optimizer=True).host == 8 * SMALL.parameters
    beside, aside = (of(reference=True, offload_reference=flag) for flag in (False, True))
    assert (beside.reference, aside.host) == (4 * SMALL.parameters, 4 * SMALL.parameters)
    running = 4 * (SMALL.outer_parameters + 2 * SMALL.layer_parameters)
    assert aside.reference == running < beside.reference
    assert beside.total - aside.total == beside.reference - running


@pytest.mark.parametrize(
    ("changes", "moved"),
    [
        ({}, 12),
        ({"offload_optimizer": True}, 4),
        ({"offload_parameters": True}, 0),
        ({"reference": True}, 16),
        ({"reference": True, "offload_reference": True}, 12),
        ({"critic": True}, 24),
    ],
)
def test_a_turn_of_the_engine_moves_all_but_gradients_and_what_is_offloaded_already(
    changes: dict[str, Any], moved: int
) -> None:
    """Bytes a parameter of policy, reference and critic, whose embedding is tied."""
    assert of(**changes).moved == 0
    held = of(**changes, turns=True)
    assert held.moved == moved * SMALL.parameters
    assert held.host == of(**changes).host


def offloaded(tokens: int) -> Memory:
    return of(precision="FP32", offload_optimizer=True, microbatch_tokens=tokens)


def test_an_update_brings_back_no_more_than_the_moments() -> None:
    adapters = of(adapter_rank=16, offload_optimizer=True)
    assert adapters.update == adapters.host == of(adapter_rank=16).moments


def test_moments_that_an_update_brings_back_do_not_lie_beside_the_passes() -> None:
    """The largest of the two counts: for some microbatches the update, for others the passes."""
    kept = of()
    in_passes, in_update = (offloaded(tokens) for tokens in (65_536, 256))
    assert in_passes.update == in_update.update == 8 * SMALL.table_parameters
    assert in_passes.passes > in_passes.update
    assert in_update.passes < in_update.update
    held = kept.weights + kept.gradients + kept.device
    assert in_passes.total == held + in_passes.passes
    assert in_update.total == held + in_update.update == in_update.fixed + kept.device


def test_a_sum_names_the_parts_at_its_peak_alone() -> None:
    for tokens, shown in ((65_536, "activations"), (256, "update")):
        parts, total = arithmetic(offloaded(tokens)).removesuffix(" GiB").split(" = ")
        sizes = dict(part.split() for part in parts.split(" + "))
        assert ("activations" in sizes, "update" in sizes) == (
            shown == "activations",
            shown == "update",
        )
        assert sum(map(float, sizes.values())) == pytest.approx(float(total), abs=0.03)


def test_the_former_defaults_did_not_fit_a_gpu_of_eighty_gigabytes() -> None:
    former = of(checkpointing=False, microbatch_tokens=32768, longest_tokens=4096)
    assert former.total > 80e9
    assert of().total < 24 * GIB
