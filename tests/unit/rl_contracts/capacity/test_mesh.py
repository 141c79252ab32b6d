from __future__ import annotations

from dataclasses import replace

import pytest

from rl_contracts.capacity.mesh import refusals
from rl_contracts.capacity.setup import Setup
from rl_contracts.capacity.shape import LatentAttention, Shape
from rl_contracts.capacity.training import memory
from rl_contracts.spec.parallelism import MeshSizes

DENSE = Shape(
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
MIXTURE = replace(
    DENSE,
    family="qwen3_moe",
    experts=128,
    experts_per_token=8,
    expert_width=768,
    expert_layers=28,
)
SETUP = Setup(microbatch_tokens=8192, longest_tokens=2048)


def messages(shape: Shape, sizes: MeshSizes, *, quantization: str | None = None) -> list[str]:
    refused = refusals(shape, sizes, quantization=quantization)
    return [f"{refusal.field}: {refusal.message}" for refusal in refused]


def test_a_mesh_that_divides_the_model_is_not_refused() -> None:
    assert not messages(DENSE, MeshSizes(fsdp=3, tp=8))
    assert not messages(MIXTURE, MeshSizes(fsdp=4, tp=2, ep=8))


@pytest.mark.parametrize(
    ("shape", "sizes", "says"),
    [
        (DENSE, MeshSizes(tp=16), "8 heads of keys and values, which tp 16 does not divide"),
        (replace(DENSE, vocabulary=50_257), MeshSizes(tp=2), "50257 tokens of the vocabulary"),
        (
            replace(DENSE, feed_forward=3073),
            MeshSizes(tp=2),
            "3073 numbers between",
        ),
        (replace(MIXTURE, expert_width=769), MeshSizes(tp=2), "769 numbers between an expert's"),
        (MIXTURE, MeshSizes(fsdp=3, ep=3), "128 experts of a layer, which ep 3 does not divide"),
        (DENSE, MeshSizes(fsdp=2, ep=2), "no experts"),
    ],
)
def test_what_the_mesh_does_not_divide_is_refused_with_the_numbers(
    shape: Shape, sizes: MeshSizes, says: str
) -> None:
    (message,) = messages(shape, sizes)
    axis = "ep" if sizes.ep > 1 else "tp"
    assert message.startswith(f"spec.trainer.parallelism.{axis}: ")
    assert says in message


def test_heads_of_latent_attention_stay_whole() -> None:
    latent = LatentAttention(
        query_rank=None, key_value_rank=16, plain_width=16, rotary_width=8, value_width=16
    )
    assert not messages(replace(DENSE, latent=latent, heads=3, key_value_heads=3), MeshSizes(tp=2))


def test_rows_of_nf4_are_divided_between_blocks() -> None:
    assert not messages(DENSE, MeshSizes(tp=8), quantization="NF4")
    (message,) = messages(replace(DENSE, feed_forward=3136), MeshSizes(tp=2), quantization="NF4")
    assert "1568, no multiple of the 64" in message
    assert not messages(replace(DENSE, feed_forward=3136), MeshSizes(tp=2), quantization="Int8")


def test_weights_gradients_and_moments_are_divided_but_by_copies() -> None:
    alone = memory(DENSE, SETUP)
    for sizes in (MeshSizes(fsdp=8), MeshSizes(fsdp=4, tp=2), MeshSizes(replicate=2, fsdp=8)):
        held = memory(DENSE, replace(SETUP, mesh=sizes))
        assert held.moments == pytest.approx(alone.moments / 8, rel=1e-3)
        assert held.gradients == pytest.approx(alone.gradients / 8, rel=1e-3)
    copies = memory(DENSE, replace(SETUP, mesh=MeshSizes(replicate=8)))
    assert copies.moments == alone.moments


def test_tp_divides_what_a_layer_keeps_and_the_logits() -> None:
    whole = replace(SETUP, checkpointing=False, mesh=MeshSizes(fsdp=2))
    tensor = replace(whole, mesh=MeshSizes(tp=2))
    assert memory(DENSE, tensor).activations < 0.8 * memory(DENSE, whole).activations
    assert memory(DENSE, tensor).weights < memory(DENSE, whole).weights


def test_ep_divides_the_experts_that_are_gathered() -> None:
    gathered = memory(MIXTURE, replace(SETUP, mesh=MeshSizes(fsdp=8)))
    owned = memory(MIXTURE, replace(SETUP, mesh=MeshSizes(fsdp=8, ep=8)))
    assert owned.moments == pytest.approx(gathered.moments, rel=1e-2)
    assert owned.weights < gathered.weights


def test_families_that_were_not_tried_are_refused_by_name() -> None:
    (message,) = messages(replace(DENSE, family="newest"), MeshSizes(tp=2))
    assert "family 'newest' have not been tried on tp" in message
    assert not messages(replace(DENSE, family="newest"), MeshSizes(fsdp=2))
    (message,) = messages(replace(MIXTURE, family="newest"), MeshSizes(fsdp=2, ep=2))
    assert "on ep" in message
