"""Adapters of experts beside the model that they are merged into."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from rl_contracts.adapters import PARTS, tensor_name
from rl_contracts.documents.run import Totals
from rl_contracts.errors import RefusedError
from rl_contracts.spec.training.lora import OF_EXPERTS, LoRA
from rl_sampler.models.merge import merge
from rl_trainer import inputs
from rl_trainer.algorithm.samples import Sample
from rl_trainer.checkpoint import saved
from rl_trainer.checkpoint.saved import Saved, State
from rl_trainer.model import loading, lora, weights
from rl_trainer.model.experts import expert_adapters
from rl_trainer.model.experts.expert_adapters import ExpertLoRA
from rl_trainer.model.learner import Learner
from tests.models import states
from tests.models.families import config_of
from tests.models.written_model import write_model
from tests.unit.rl_trainer.compared import gradients, same
from tests.unit.rl_trainer.compared import weights as weights_of
from tests.unit.rl_trainer.conftest import MakeSamples, MakeSpec

SECTION = {"rank": 3, "alpha": 6, "experts": "Adapted"}
UNBOUND = {"optimizer": {"learningRate": 1e-2, "maxGradientNorm": 1e6}}
MakeAdapted = Callable[..., Learner]


@pytest.fixture
def make_adapted(adaptable: Path, make_spec: MakeSpec) -> MakeAdapted:
    def make(*, recompute: bool = False, **sections: Any) -> Learner:
        training = UNBOUND | {"lora": SECTION} | sections.pop("training", {})
        spec = make_spec(training=training, **sections)
        policy = loading.load(adaptable, precision="FP32", uri="s3://m/m", recompute=recompute)
        adapter = inputs.adapter_of(adaptable, policy, spec)
        return Learner(policy, spec, adapter=adapter)

    return make


def fill(learner: Learner) -> None:
    """Give the adapters values, as if they had been trained."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in learner.parameters.values():
            parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))


def logprobs(learner: Learner, samples: list[Sample]) -> Tensor:
    (packed,) = learner.models.microbatches(samples)
    learner.policy.module.eval()
    with torch.no_grad():
        values = learner.policy.token_logprobs(packed, temperature=1.0)
    learner.policy.module.train()
    return values


def with_choices(learner: Learner, samples: list[Sample], *, experts: int) -> list[Sample]:
    """Samples whose tokens the engine sent to the first so many experts alone."""
    config = learner.policy.module.config
    layers, picks = config.num_hidden_layers, config.num_experts_per_tok
    generator = torch.Generator().manual_seed(3)
    return [
        dataclasses.replace(
            sample,
            choices=torch.rand((len(sample), layers, experts), generator=generator)
            .argsort(-1)[..., :picks]
            .flatten(1)
            .to(torch.int16),
        )
        for sample in samples
    ]


def test_the_pass_is_that_of_the_merged_weights(
    make_adapted: MakeAdapted,
    make_samples: MakeSamples,
    make_spec: MakeSpec,
    adaptable: Path,
    tmp_path: Path,
) -> None:
    learner, samples = make_adapted(), make_samples()
    plain = Learner(loading.load(adaptable, precision="FP32", uri="s3://m/m"), make_spec())
    untouched = logprobs(plain, samples)
    assert torch.allclose(logprobs(learner, samples), untouched, atol=1e-6), "B begins with zeros"
    fill(learner)
    shutil.copy(adaptable / "config.json", tmp_path)
    write_model(weights.snapshot(learner.policy, precision="FP32"), tmp_path)
    merged = Learner(loading.load(tmp_path, precision="FP32", uri="s3://m/m"), make_spec())
    adapted = logprobs(learner, samples)
    assert not torch.allclose(adapted, untouched, atol=1e-2)
    assert float((adapted - logprobs(merged, samples)).abs().max()) <= 1e-5
    with lora.switched_off(learner.policy.module):
        assert torch.allclose(logprobs(learner, samples), untouched, atol=1e-6)


def test_gradients_are_those_of_the_merged_weights_and_reach_no_frozen_one(
    make_adapted: MakeAdapted,
    make_samples: MakeSamples,
    make_spec: MakeSpec,
    adaptable: Path,
    tmp_path: Path,
) -> None:
    """By the chain rule of W + s B A for each expert: ∂A = s Bᵀ ∂W and ∂B = s ∂W Aᵀ."""
    low, samples = make_adapted(), make_samples()
    fill(low)
    shutil.copy(adaptable / "config.json", tmp_path)
    write_model(weights.snapshot(low.policy, precision="FP32"), tmp_path)
    whole = Learner(
        loading.load(tmp_path, precision="FP32", uri="s3://m/m"), make_spec(training=UNBOUND)
    )
    before = weights_of(low)
    losses = [learner.update(samples, step=1).loss for learner in (low, whole)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)
    partial, full = gradients(low), gradients(whole)
    routed = 0
    for name, experts in expert_adapters.layers(low.policy.module).items():
        width = experts.down_proj.shape[2]
        both = full[f"{name}.gate_up_proj"]
        outer = {
            "gate_proj": both[:, :width],
            "up_proj": both[:, width:],
            "down_proj": full[f"{name}.down_proj"],
        }
        for matrix, of_weight in outer.items():
            at = f"{name}.adapters.{matrix}"
            first, second = (before[f"{at}.{part}"] for part in PARTS)
            wanted = {"lora_A": second.mT @ of_weight, "lora_B": of_weight @ first.mT}
            for part, each in wanted.items():
                actual = partial[f"{at}.{part}"]
                assert torch.allclose(actual, 2 * each, atol=1e-6), (at, part)
                used = of_weight.flatten(1).abs().amax(1) > 0
                assert torch.equal(actual.flatten(1).abs().amax(1) > 0, used), (at, part)
                routed += int(used.sum())
    assert routed > 0
    frozen = [p for p in low.policy.module.parameters() if not p.requires_grad]
    assert frozen
    assert all(parameter.grad is None for parameter in frozen)


@pytest.mark.parametrize("recompute", [False, True])
def test_a_run_goes_on_bit_for_bit_and_changes_adapters_alone_with_routing_replay(
    recompute: bool, make_adapted: MakeAdapted, make_samples: MakeSamples
) -> None:
    replay = {"experts": {"routing": "Replay"}}
    first, other = (make_adapted(recompute=recompute, algorithm=replay) for _ in range(2))
    given = with_choices(first, make_samples(), experts=2)
    before = {name: value.clone() for name, value in first.policy.module.state_dict().items()}
    first.update(given, step=1)
    moved = {
        name
        for name, value in first.policy.module.state_dict().items()
        if not torch.equal(value, before[name])
    }
    assert moved <= set(first.parameters)
    for name, experts in expert_adapters.layers(first.policy.module).items():
        for matrix in OF_EXPERTS:
            adapter = experts.adapters.get_submodule(matrix)
            assert isinstance(adapter, ExpertLoRA)
            trained = adapter.lora_B.detach().flatten(1).abs().amax(1) > 0
            expected = torch.arange(experts.num_experts) < 2
            assert torch.equal(trained, expected), (name, matrix, "the engine's choices alone")
    state = State(
        step=1,
        head="",
        next_sequence=0,
        totals=Totals(),
        metrics=[],
        adapter=first.policy.adapter,
    )
    saved.put_back(Saved(tensors=states.stored(states.state(first)), state=state), other)
    for learner in (first, other):
        learner.update(with_choices(learner, make_samples(seed=3), experts=4), step=2)
    assert same(weights_of(first), weights_of(other))


def test_what_is_published_is_the_merged_model_and_what_is_exported_can_be_merged_again(
    make_adapted: MakeAdapted, adaptable: Path, tmp_path: Path
) -> None:
    learner = make_adapted()
    fill(learner)
    assert learner.policy.adapter is not None
    assert learner.policy.served_adapter is None
    merged = weights.snapshot(learner.policy, precision="FP32")
    published = weights.own_tensors(learner.policy, precision="FP32", world=learner.world)
    assert published.keys() == merged.keys()
    assert same(published, merged)
    base = load_file(adaptable / "model.safetensors")
    assert merged.keys() == base.keys(), "the files' own names"
    adapter = weights.adapter(learner.policy, precision="FP32")
    changed = {name for name in base if not torch.equal(base[name], merged[name])}
    stems = {name: name.removesuffix(".weight") for name in base}
    assert changed == {name for name in base if tensor_name(stems[name], "lora_A") in adapter}
    assert any(".experts.1.up_proj." in name for name in changed)
    for name in changed:
        first, second = (adapter[tensor_name(stems[name], part)] for part in PARTS)
        assert torch.allclose(merged[name], base[name] + 2 * second @ first, atol=1e-6), name
    for folder in ("adapter", "merged"):
        (tmp_path / folder).mkdir()
    weights.write_adapter(adapter, learner.policy.adapter, tmp_path / "adapter")
    merge(
        adaptable,
        tmp_path / "adapter",
        learner.policy.adapter,
        tmp_path / "merged",
        precision="FP32",
    )
    again = load_file(tmp_path / "merged/model.safetensors")
    assert all(torch.allclose(again[name], merged[name], atol=1e-6) for name in merged)


def test_frozen_experts_have_the_engines_precision(
    adaptable: Path, make_spec: MakeSpec, make_samples: MakeSamples
) -> None:
    spec = make_spec(training=UNBOUND | {"lora": SECTION, "precision": "BF16"})
    policy = loading.load(adaptable, precision="BF16", uri="s3://m/m")
    learner = Learner(policy, spec, adapter=inputs.adapter_of(adaptable, policy, spec))
    frozen = {p.dtype for p in learner.policy.module.parameters() if not p.requires_grad}
    assert frozen == {torch.bfloat16}
    assert {p.dtype for p in learner.parameters.values()} == {torch.float32}
    first = learner.update(make_samples(), step=1)
    assert first.gradient_norm > 0


def test_experts_in_one_tensor_of_the_files_are_refused(adaptable: Path) -> None:
    """As some files hold them: their adapters would have no names."""
    module = loading.load(adaptable, precision="FP32", uri="s3://m/m").module
    with pytest.raises(RefusedError, match="not linear when it is loaded"):
        lora.check_files(
            module, {"model.layers.0.self_attn.o_proj.weight"}, LoRA(experts="Adapted")
        )


@pytest.mark.parametrize("family", ["gpt_oss", "qwen3"])
def test_experts_of_another_form_are_refused(family: str) -> None:
    with torch.device("meta"):
        module = AutoModelForCausalLM.from_config(config_of(family))
    with pytest.raises(RefusedError) as caught:
        lora.check_files(module, set(), LoRA(experts="Adapted"))
    assert caught.value.refusal.field == "spec.training.lora.experts"
