from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from rl_contracts import adapters
from rl_contracts.documents.manifest import AdapterEntry
from rl_contracts.documents.run import Totals
from rl_contracts.errors import IntegrityError, RefusedError
from rl_contracts.spec.training.lora import TARGETS, LoRA
from rl_trainer.checkpoint import saved, stored
from rl_trainer.checkpoint.saved import Saved, State
from rl_trainer.model import loading, lora, weights
from rl_trainer.model.learner import Learner
from rl_trainer.model.policy import Policy
from tests.models import states
from tests.models.written_model import write_model
from tests.unit.rl_trainer.compared import gradients, same, score
from tests.unit.rl_trainer.compared import weights as weights_of
from tests.unit.rl_trainer.conftest import MakeLearner, MakeSamples, MakeSpec

UNBOUND = {"optimizer": {"learningRate": 1e-2, "maxGradientNorm": 1e6}}
MakeAdapted = Callable[..., Learner]


@pytest.fixture
def entry(tiny_folder: Path) -> Callable[[LoRA], AdapterEntry]:
    return lambda section: adapters.adapter_entry(
        tiny_folder, uri="s3://models/tiny", section=section
    )


@pytest.fixture
def make_adapted(
    load_policy: Callable[[], Policy],
    make_spec: MakeSpec,
    entry: Callable[[LoRA], AdapterEntry],
) -> MakeAdapted:
    def make(section: dict[str, Any] | None = None, **sections: Any) -> Learner:
        training = UNBOUND | {"lora": {"rank": 4, "alpha": 8} | (section or {})}
        spec = make_spec(training=training | sections.pop("training", {}), **sections)
        assert spec.training.lora is not None
        return Learner(load_policy(), spec, adapter=entry(spec.training.lora))

    return make


def fill(learner: Learner) -> None:
    """Give the adapters values, as if they had been trained."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in learner.parameters.values():
            parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))


def test_a_fresh_adapter_changes_no_output(
    make_adapted: MakeAdapted, make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    adapted, other = make_adapted(), make_learner()
    assert all(torch.equal(score(adapted, it), score(other, it)) for it in make_samples())
    bounds = {
        name: 1 / math.sqrt(tensor.shape[1])
        for name, tensor in adapted.parameters.items()
        if name.endswith("lora_A")
    }
    assert len(bounds) == 2 * len(TARGETS)
    for name, bound in bounds.items():
        largest = float(adapted.parameters[name].detach().abs().max())
        assert 0.8 * bound < largest <= bound, name
        assert not adapted.parameters[name.replace("lora_A", "lora_B")].any()


def test_the_gradient_is_that_of_the_merged_weights(
    make_adapted: MakeAdapted, make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    """By the chain rule of W + s B A: ∂A = s Bᵀ ∂W and ∂B = s ∂W Aᵀ."""
    low, whole = make_adapted(), make_learner(training=UNBOUND)
    fill(low)
    layers = lora.layers(low.policy.module)
    before = weights_of(low)
    merged = weights.snapshot(low.policy, precision="FP32")
    with torch.no_grad():
        for name, parameter in whole.parameters.items():
            parameter.copy_(merged[name])
    actual, expected = (each.update(make_samples(), step=1) for each in (low, whole))
    assert actual.loss == pytest.approx(expected.loss, abs=1e-6)
    partial, full = gradients(low), gradients(whole)
    for name, layer in layers.items():
        first, second = before[f"{name}.lora_A"], before[f"{name}.lora_B"]
        outer = full[f"{name}.weight"]
        for part, wanted in (("lora_A", second.T @ outer), ("lora_B", outer @ first.T)):
            assert torch.allclose(partial[f"{name}.{part}"], layer.scaling * wanted, atol=1e-6), (
                name,
                part,
            )


def test_training_changes_only_adapters(
    make_adapted: MakeAdapted, make_samples: MakeSamples
) -> None:
    learner = make_adapted({"targets": ["q_proj", "down_proj"]})
    before = {name: tensor.clone() for name, tensor in learner.policy.module.state_dict().items()}
    for step in (1, 2):
        learner.update(make_samples(), step=step)
    held = {id(param) for group in learner.optimizer.param_groups for param in group["params"]}
    assert held == {id(parameter) for parameter in learner.parameters.values()}
    changed = {
        name
        for name, tensor in learner.policy.module.state_dict().items()
        if not torch.equal(tensor, before[name])
    }
    assert changed == set(learner.parameters)
    assert {name.split(".")[-2] for name in changed} == {"q_proj", "down_proj"}
    assert {name.split(".")[-1] for name in changed} == {"lora_A", "lora_B"}


def test_frozen_weights_have_the_engines_precision(
    tiny_folder: Path,
    make_spec: MakeSpec,
    entry: Callable[[LoRA], AdapterEntry],
    make_samples: MakeSamples,
) -> None:
    policy = loading.load(tiny_folder, precision="BF16", uri="s3://models/tiny")
    exact = {name: tensor.clone() for name, tensor in policy.module.named_buffers()}
    spec = make_spec(training=UNBOUND | {"lora": {}, "precision": "BF16"})
    learner = Learner(policy, spec, adapter=entry(LoRA()))
    kinds = {
        parameter.dtype for parameter in policy.module.parameters() if not parameter.requires_grad
    }
    assert kinds == {torch.bfloat16}
    assert {parameter.dtype for parameter in learner.parameters.values()} == {torch.float32}
    assert all(torch.equal(tensor, exact[name]) for name, tensor in policy.module.named_buffers())
    assert math.isfinite(learner.update(make_samples(), step=1).gradient_norm)
    assert any(
        parameter.any() for name, parameter in learner.parameters.items() if "lora_B" in name
    )


def test_the_merged_model_equals_model_plus_adapters(
    make_adapted: MakeAdapted, make_samples: MakeSamples, tiny_folder: Path, tmp_path: Path
) -> None:
    learner = make_adapted()
    fill(learner)
    write_model(weights.snapshot(learner.policy, precision="FP32"), tmp_path)
    shutil.copy(tiny_folder / "config.json", tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    loaded.eval()
    for make_sample in make_samples():
        with torch.no_grad():
            logits = loaded(input_ids=make_sample.tokens[None]).logits[0]
        chosen = logits[:-1].log_softmax(-1).gather(-1, make_sample.tokens[1:, None])[:, 0]
        assert torch.allclose(score(learner, make_sample)[1:], chosen, atol=1e-5)


def test_an_adapter_is_written_as_peft_reads_it(make_adapted: MakeAdapted, tmp_path: Path) -> None:
    learner = make_adapted({"targets": ["v_proj"]})
    fill(learner)
    assert learner.policy.adapter is not None
    taken = weights.adapter(learner.policy, precision="FP32")
    weights.write_adapter(taken, learner.policy.adapter, tmp_path)
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    at = "base_model.model.model.layers.{}.self_attn.v_proj.lora_{}.weight"
    assert shapes == {
        at.format(layer, part): shape
        for layer in (0, 1)
        for part, shape in (("A", (4, 32)), ("B", (16, 4)))
    }
    for name, tensor in tensors.items():
        own = name.removeprefix("base_model.model.").removesuffix(".weight")
        assert torch.equal(tensor, learner.parameters[own])
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 4, 8)
    assert config["target_modules"] == ["v_proj"]


def test_dropout_repeats_with_its_step(
    make_adapted: MakeAdapted, make_samples: MakeSamples
) -> None:
    def trained(*steps: int, dropout: float = 0.5) -> Learner:
        learner = make_adapted({"dropout": dropout})
        fill(learner)
        for step in steps:
            learner.update(make_samples(), step=step)
        return learner

    first, again, other = trained(1, 2), trained(1, 2), trained(1, 3)
    assert same(weights_of(first), weights_of(again))
    assert not same(weights_of(first), weights_of(other))
    assert not same(weights_of(first), weights_of(trained(1, 2, dropout=0.0)))
    samples = make_samples()
    assert all(torch.equal(score(first, it), score(again, it)) for it in samples), (
        "not when scoring"
    )


@pytest.mark.parametrize("estimator", ["K3", "Full"])
def test_the_reference_is_the_model_without_its_adapters(
    estimator: str, make_adapted: MakeAdapted, make_samples: MakeSamples
) -> None:
    algorithm = {"kl": {"estimator": estimator, "coefficient": 1e-6}}
    learner = make_adapted({"dropout": 0.1}, algorithm=algorithm)
    reference = learner.models.reference
    assert reference is not None
    assert reference.policy.module is learner.policy.module, "no second copy"
    fill(learner)
    with torch.no_grad():
        packed = learner.models.microbatches(make_samples())[0]
        plain = make_adapted().policy
        plain.module.eval()
        expected = plain.token_logprobs(packed, temperature=1.0)
        logprobs = reference.policy.token_logprobs(packed, temperature=1.0)
        with_adapters = learner.policy.token_logprobs(packed, temperature=1.0)
    assert torch.equal(logprobs, expected)
    assert not torch.allclose(with_adapters, expected, atol=1e-2)
    assert learner.policy.module.training, "as it was before"
    kl = learner.update(make_samples(), step=1).kl
    assert kl is not None
    assert abs(kl) > 1e-3


def test_a_checkpoint_holds_adapters_alone_and_goes_on_bit_for_bit(
    make_adapted: MakeAdapted, make_samples: MakeSamples
) -> None:
    section = {"dropout": 0.25}
    first, other = make_adapted(section), make_adapted(section)
    first.update(make_samples(), step=1)
    tensors = states.state(first)
    masters, moments = (states.section(each, tensors) for each in (stored.MASTERS, stored.MOMENTS))
    assert masters.keys() == first.parameters.keys()
    assert {name.partition("/")[2] for name in moments} == set(first.parameters)
    saved.put_back(
        Saved(tensors=states.stored(tensors), state=a_state(first.policy.adapter)), other
    )
    for learner in (first, other):
        learner.update(make_samples(seed=3), step=2)
    assert same(weights_of(first), weights_of(other))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base_sha256": "0"}, "base_sha256"),
        ({"rank": 8}, "rank 8"),
        ({"alpha": 1.0}, "alpha"),
        ({"targets": ["q_proj"]}, "targets"),
        (None, "all weights"),
    ],
)
def test_a_checkpoint_of_another_adapter_is_refused(
    changes: dict[str, Any] | None, message: str, make_adapted: MakeAdapted
) -> None:
    learner = make_adapted()
    entry = learner.policy.adapter
    assert entry is not None
    other = None if changes is None else entry.model_copy(update=changes)
    checkpoint = Saved(tensors=states.stored(states.state(learner)), state=a_state(other))
    with pytest.raises(IntegrityError, match=message):
        saved.put_back(checkpoint, learner)


def test_a_critic_of_all_weights_goes_beside_adapters(
    make_adapted: MakeAdapted, make_samples: MakeSamples
) -> None:
    learner = make_adapted(algorithm={"estimator": {"kind": "GAE"}, "critic": {}})
    critic = learner.models.critic
    assert critic is not None
    assert not any("lora_" in name for name in critic.parameters)
    assert all(parameter.requires_grad for parameter in critic.parameters.values())
    assert any("lora_" in name for name in learner.parameters)


def a_state(adapter: AdapterEntry | None) -> State:
    return State(step=1, head="", next_sequence=0, totals=Totals(), metrics=[], adapter=adapter)


def test_layers_that_the_model_does_not_have_are_refused(
    load_policy: Callable[[], Policy],
) -> None:
    policy = load_policy()
    del policy.module.model.layers[1].mlp.gate_proj
    del policy.module.model.layers[0].mlp.gate_proj
    with pytest.raises(RefusedError) as caught:
        lora.check_files(policy.module, set(), LoRA(targets=["gate_proj", "q_proj"]))
    refusal = caught.value.refusal
    assert (refusal.field, refusal.value) == ("spec.training.lora.targets", "gate_proj")


def test_layers_that_are_not_linear_when_loaded_are_refused(
    load_policy: Callable[[], Policy], tiny_folder: Path
) -> None:
    tensors = set(adapters.model_tensors(tiny_folder))
    module = load_policy().module
    lora.check_files(module, tensors, LoRA())
    expert = "model.layers.0.mlp.experts.0.up_proj.weight"
    with pytest.raises(RefusedError, match=r"q_proj, k_proj, v_proj and o_proj") as caught:
        lora.check_files(module, {*tensors, expert}, LoRA())
    assert caught.value.refusal.value == "up_proj"
    lora.check_files(module, {*tensors, expert}, LoRA(targets=["q_proj"]))


def test_an_adapters_base_digest_depends_on_the_weights(tiny_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_folder, tmp_path / "other")
    path = tmp_path / "other/model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    first, second = (
        adapters.adapter_entry(folder, uri="s3://m/t", section=LoRA())
        for folder in (tiny_folder, tmp_path / "other")
    )
    assert first.base_sha256 != second.base_sha256
