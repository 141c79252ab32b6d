from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from bitsandbytes import functional as kernels
from safetensors.torch import load_file
from torch import Tensor

from rl_contracts import adapters
from rl_contracts.errors import RefusedError
from rl_contracts.spec.training.lora import Quantization
from rl_trainer.checkpoint import saved, stored
from rl_trainer.checkpoint.saved import Saved
from rl_trainer.model import loading, lora, quantization, weights
from rl_trainer.model.learner import Learner
from rl_trainer.model.lora import LoRALinear
from rl_trainer.model.policy import Policy
from rl_trainer.model.quantization import QuantizedLinear
from tests.models import states
from tests.models.tiny_model import save_tiny, tiny_model
from tests.models.written_model import write_model
from tests.unit.rl_trainer.compared import gradients, same, score
from tests.unit.rl_trainer.compared import weights as weights_of
from tests.unit.rl_trainer.conftest import MakeSamples, MakeSpec
from tests.unit.rl_trainer.model.test_lora import a_state, fill

KINDS: tuple[Quantization, ...] = ("Int8", "NF4")
CPU = torch.device("cpu")
WIDE = {"hidden_size": 64, "intermediate_size": 128, "head_dim": 16}
NF4_LEVELS = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)
"""As the QLoRA paper lists them (arXiv 2305.14314, appendix E)."""
MakeQuantized = Callable[..., Learner]


@pytest.fixture(scope="module")
def wide_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("wide"), **WIDE)


@pytest.fixture
def make_quantized(wide_folder: Path, make_spec: MakeSpec) -> MakeQuantized:
    def make(kind: Quantization | None, *, folder: Path = wide_folder, **training: Any) -> Learner:
        low_rank = {"rank": 4, "alpha": 8, "quantization": kind} | training.pop("lora", {})
        spec = make_spec(training={"lora": low_rank, **training})
        section = spec.training.lora
        assert section is not None
        precision = spec.training.precision
        policy = loading.load(folder, precision=precision, uri="s3://models/wide", quantize=kind)
        entry = adapters.adapter_entry(folder, uri="s3://models/wide", section=section)
        return Learner(policy, spec, adapter=entry)

    return make


def whole(layer: LoRALinear | QuantizedLinear, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """The weight that a layer computes with."""
    assert layer.kind is not None
    return quantization.dequantized(layer.packed, layer.scales, layer.kind, dtype=dtype)


def reference(learner: Learner) -> Learner:
    """The same with its frozen layers in floating point, as they are after dequantization."""
    for layer in lora.layers(learner.policy.module).values():
        dense = whole(layer)
        layer.kind = None
        layer.packed, layer.scales = None, None  # type: ignore[assignment]
        layer.weight = torch.nn.Parameter(dense, requires_grad=False)
    return learner


@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients_are_those_of_the_dequantized_model(
    kind: Quantization, make_quantized: MakeQuantized, make_samples: MakeSamples
) -> None:
    low, dense = make_quantized(kind), reference(make_quantized(kind))
    for each in (low, dense):
        fill(each)
    assert all(torch.equal(score(low, it), score(dense, it)) for it in make_samples())
    actual, expected = (each.update(make_samples(), step=1) for each in (low, dense))
    assert actual.loss == expected.loss
    assert actual.gradient_norm == pytest.approx(expected.gradient_norm, rel=1e-6)
    for name, wanted in gradients(dense).items():
        assert torch.allclose(gradients(low)[name], wanted, atol=1e-7), name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("autocast", [False, True])
def test_a_layer_computes_with_its_dequantized_weight(kind: Quantization, autocast: bool) -> None:
    """In the precision of the pass, inputs' gradient included; the packed weight has none."""
    torch.manual_seed(0)
    plain = torch.nn.Linear(128, 48)
    layer = QuantizedLinear(plain, kind)
    given = torch.randn(2, 5, 128, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        actual = layer(given)
    dtype = torch.bfloat16 if autocast else torch.float32
    weight, bias = whole(layer, dtype=dtype), plain.bias.detach().to(dtype)
    assert torch.equal(actual, torch.nn.functional.linear(given.to(dtype), weight, bias))
    torch.autograd.backward(actual.sum())
    wanted = torch.ones(2, 5, 48, dtype=dtype) @ weight
    assert given.grad is not None
    assert torch.equal(given.grad, wanted.float())
    assert not any(parameter.requires_grad for parameter in layer.parameters())


@pytest.mark.parametrize(("kind", "most"), [("Int8", 0.01), ("NF4", 0.11)])
def test_quantization_error_is_small(kind: Quantization, most: float) -> None:
    """Relative error of normal weights; zeros, which many rows begin as, stay zeros."""
    weight = 0.02 * torch.randn(256, 128, generator=torch.Generator().manual_seed(0))
    weight[7] = 0.0
    packed, scales = quantization.quantized(weight, kind)
    dequantized = quantization.dequantized(packed, scales, kind, dtype=torch.float32)
    assert float((dequantized - weight).norm() / weight.norm()) < most
    assert not dequantized[7].any()
    part = quantization.dequantized(packed[9:20], scales[9:20], kind, dtype=torch.float32)
    assert torch.equal(part, dequantized[9:20]), (
        "rows are independent, so that ranks can divide them"
    )


def test_4_bits_are_the_nearest_levels() -> None:
    weight = torch.randn(8, 128, generator=torch.Generator().manual_seed(2))
    packed, scales = quantization.quantized(weight, "NF4")
    dequantized = quantization.dequantized(packed, scales, "NF4", dtype=torch.float32)
    blocks = weight.reshape(-1, quantization.BLOCK)
    largest = blocks.abs().amax(1, keepdim=True)
    levels = torch.tensor(NF4_LEVELS)
    nearest = (blocks / largest)[..., None].sub(levels).abs().argmin(-1)
    assert torch.allclose(dequantized.reshape(blocks.shape), levels[nearest] * largest, atol=1e-6)
    assert torch.equal(scales.reshape(-1, 1), largest)


def test_8_bits_are_those_of_bitsandbytes() -> None:
    # Numbers that float16 holds: its kernel takes no others.
    weight = torch.randn(64, 96, generator=torch.Generator().manual_seed(1)).half()
    packed, scales = quantization.quantized(weight.float(), "Int8")
    theirs, largest, _ = kernels.int8_vectorwise_quant(weight.clone())
    assert int((packed.int() - theirs.int()).abs().max()) <= 1, "ties in float16"
    assert (packed == theirs).float().mean() > 0.99
    assert torch.allclose(scales[:, 0] * quantization.LEVELS, largest)


@pytest.mark.parametrize(
    ("kind", "bytes_each"), [("Int8", 1 + 4 / 64), ("NF4", 0.5 + 4 / quantization.BLOCK)]
)
def test_quantized_layers_take_the_stated_bytes_per_weight(
    kind: Quantization, bytes_each: float, make_quantized: MakeQuantized
) -> None:
    """At most: rows of Int8 share one scale, and the model's shortest have 64 weights."""
    learner = make_quantized(kind, precision="BF16")
    numbers = held = 0
    for layer in lora.layers(learner.policy.module).values():
        assert layer.weight is None
        numbers += layer.in_features * layer.out_features
        held += sum(tensor.untyped_storage().nbytes() for tensor in (layer.packed, layer.scales))
    assert 0 < held <= bytes_each * numbers
    dense = make_quantized(None, precision="BF16")
    assert size(learner) < size(dense) - 0.9 * (2 - bytes_each) * numbers


def size(learner: Learner) -> int:
    """Bytes of all parameters and buffers."""
    module = learner.policy.module
    held = {tensor.untyped_storage().data_ptr(): tensor for tensor in module.state_dict().values()}
    return sum(tensor.untyped_storage().nbytes() for tensor in held.values())


def test_bf16_keeps_float32_scales(
    make_quantized: MakeQuantized, make_samples: MakeSamples
) -> None:
    exact, rounded = make_quantized("NF4"), make_quantized("NF4", precision="BF16")
    pairs = zip(
        *(lora.layers(each.policy.module).values() for each in (exact, rounded)), strict=True
    )
    for layer, other in pairs:
        assert torch.equal(layer.scales, other.scales)
        assert torch.equal(layer.packed, other.packed)
    embedding = rounded.policy.module.get_input_embeddings().weight
    assert embedding.dtype == torch.bfloat16
    rounded.update(make_samples(), step=1)
    assert any(
        parameter.any() for name, parameter in rounded.parameters.items() if "lora_B" in name
    )


@pytest.mark.parametrize("kind", KINDS)
def test_adapters_are_merged_into_the_weights_as_they_came(
    kind: Quantization, make_quantized: MakeQuantized, wide_folder: Path
) -> None:
    learner = make_quantized(kind, lora={"targets": ["q_proj", "v_proj"]})
    fill(learner)
    snapshot = weights.snapshot(learner.policy, precision="FP32")
    came = load_file(wide_folder / "model.safetensors")
    assert snapshot.keys() == came.keys()
    layers = lora.layers(learner.policy.module)
    assert len(quantization.layers(learner.policy.module)) == 7 * 2
    for name, tensor in came.items():
        wanted, layer = tensor, layers.get(name.removesuffix(".weight"))
        if layer is not None:
            wanted = lora.merged(tensor, layer.lora_A, layer.lora_B, scaling=layer.scaling)
        assert torch.equal(snapshot[name], wanted), name


def test_biases_of_quantized_layers_are_exported(
    tmp_path: Path, make_quantized: MakeQuantized
) -> None:
    folder = save_tiny(tmp_path / "model", **WIDE, attention_bias=True)
    learner = make_quantized("NF4", folder=folder)
    came = load_file(folder / "model.safetensors")
    assert any(name.endswith("q_proj.bias") for name in came)
    snapshot = weights.snapshot(learner.policy, precision="FP32")
    assert snapshot.keys() == came.keys()
    assert all(torch.equal(snapshot[name], tensor) for name, tensor in came.items())


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_goes_on_bit_for_bit(
    kind: Quantization, make_quantized: MakeQuantized, make_samples: MakeSamples
) -> None:
    section = {"lora": {"dropout": 0.25}, "gradientCheckpointing": True}
    first, other = (make_quantized(kind, **section) for _ in range(2))
    first.update(make_samples(), step=1)
    tensors = states.state(first)
    assert all("lora_" in name for name in states.section(stored.MASTERS, tensors))
    saved.put_back(
        Saved(tensors=states.stored(tensors), state=a_state(first.policy.adapter)), other
    )
    for learner in (first, other):
        learner.update(make_samples(seed=3), step=2)
    assert same(weights_of(first), weights_of(other))


def test_layers_that_are_run_again_change_no_number(
    make_quantized: MakeQuantized, make_samples: MakeSamples
) -> None:
    taken = []
    for again in (False, True):
        learner = make_quantized("NF4")
        if again:
            learner.policy.module.gradient_checkpointing_enable({"use_reentrant": False})
        for step in (1, 2):
            learner.update(make_samples(seed=step), step=step)
        taken.append(weights_of(learner))
    assert same(*taken)


def test_nf4_refuses_rows_that_are_no_multiple_of_the_block(tiny_folder: Path) -> None:
    with pytest.raises(RefusedError, match="rows of 48 weights") as caught:
        loading.load(tiny_folder, precision="FP32", uri="s3://models/tiny", quantize="NF4")
    refusal = caught.value.refusal
    assert (refusal.field, refusal.value) == ("spec.training.lora.quantization", "NF4")
    assert refusal.remedy == "Choose Int8."


def test_experts_are_refused(load_policy: Callable[[], Policy], tiny_folder: Path) -> None:
    tensors = {*adapters.model_tensors(tiny_folder), "model.layers.0.mlp.experts.0.up_proj.weight"}
    with pytest.raises(RefusedError, match=r"experts\.0\.up_proj") as caught:
        quantization.quantize(load_policy().module, "Int8", tensors=tensors)
    assert caught.value.refusal.field == "spec.training.lora.quantization"


def test_originals_are_read_from_sharded_files(tmp_path: Path, wide_folder: Path) -> None:
    write_model(
        {
            name: tensor.half()
            for name, tensor in load_file(wide_folder / "model.safetensors").items()
        },
        tmp_path,
        file_bytes=20_000,
    )
    shutil.copy(wide_folder / "config.json", tmp_path)
    layer = "model.layers.1.mlp.down_proj"
    weight = quantization.Originals(tmp_path).weight(layer)
    wanted = tiny_model(**WIDE).state_dict()[f"{layer}.weight"]
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert weight.dtype == torch.float32
    assert torch.equal(weight, wanted.half().float())
