from __future__ import annotations

import dataclasses
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, Qwen3ForCausalLM

from rl_contracts.errors import RefusedError
from rl_contracts.spec.training.lora import Quantization
from rl_trainer.algorithm.packing import collate, pack
from rl_trainer.model import loading
from rl_trainer.model.learner import Learner
from rl_trainer.model.policy import Policy, run_row
from tests.models import families
from tests.models.tiny_model import save_tiny
from tests.unit.rl_trainer.allocation import Allocation
from tests.unit.rl_trainer.compared import gradients, same
from tests.unit.rl_trainer.conftest import MakeSamples, MakeSpec

URI = "s3://models/tiny"


def test_packed_sequences_have_the_logits_of_single_ones(
    load_policy: Callable[[], Policy], make_samples: MakeSamples
) -> None:
    policy = load_policy()
    policy.module.eval()
    samples = make_samples([3, 9, 5, 12, 7, 4, 12])
    microbatches = pack([len(sample) for sample in samples], max_tokens=24)
    assert any(len(row) > 1 for row in microbatches)
    with torch.no_grad():
        for row in microbatches:
            together = policy.token_logprobs(collate(samples, row), temperature=0.7)
            alone = []
            for index in row:
                sample = samples[index]
                logits = policy.module(input_ids=sample.tokens[None]).logits[0] / 0.7
                chosen = logits[:-1].log_softmax(-1).gather(-1, sample.tokens[1:, None])[:, 0]
                alone.append(chosen[sample.mask[1:]])
            assert torch.allclose(together, torch.cat(alone), atol=2e-6)


class Leaky(torch.nn.Module):
    """Each token also gets a part of the one before it in the row, of whichever sequence."""

    _supports_sdpa = True

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner
        self.config = inner.config
        self.set_attn_implementation = inner.set_attn_implementation

    def forward(self, **given: Any) -> Any:
        states = self.base_model(**given).last_hidden_state
        return SimpleNamespace(logits=self.get_output_embeddings()(states))

    def get_input_embeddings(self) -> Any:
        return self.inner.get_input_embeddings()

    def get_output_embeddings(self) -> Any:
        return self.inner.get_output_embeddings()

    def base_model(self, **given: Any) -> Any:
        states = self.inner.base_model(**given).last_hidden_state
        before = torch.nn.functional.pad(states[:, :-1], (0, 0, 1, 0))
        return SimpleNamespace(last_hidden_state=states + before)


def test_a_model_that_mixes_packed_sequences_is_refused(
    load_policy: Callable[[], Policy],
) -> None:
    policy = load_policy()
    leaky = dataclasses.replace(policy, module=Leaky(policy.module))
    with pytest.raises(RefusedError, match="packed sequences"):
        loading.check(leaky, uri=URI)


@pytest.mark.parametrize("quantize", [None, "Int8"])
@pytest.mark.parametrize(
    ("value", "message"), [(math.nan, "NaN"), (math.inf, "infinite"), (-math.inf, "infinite")]
)
def test_weights_that_are_not_finite_are_refused_by_name(
    value: float, message: str, quantize: Quantization | None, tmp_path: Path
) -> None:
    """One number of a row that no probe reads is enough."""
    broken = "model.layers.1.mlp.up_proj.weight"
    folder = save_tiny(tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    tensors[broken][3, 5] = value
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(RefusedError, match=message) as caught:
        loading.load(folder, precision="FP32", uri=URI, field="spec.x", quantize=quantize)
    refusal = caught.value.refusal
    assert (refusal.field, refusal.value, refusal.reason) == ("spec.x", URI, "ModelUnusable")
    assert broken in refusal.message
    assert "not finite" in refusal.remedy


def test_bfloat16_is_near_float32_and_masters_stay_float32(
    tiny_folder: Path, make_samples: MakeSamples
) -> None:
    samples = make_samples()
    packed = collate(samples, tuple(range(len(samples))))
    by_precision = {}
    precisions: tuple[Literal["FP32", "BF16"], ...] = ("FP32", "BF16")
    for precision in precisions:
        policy = loading.load(tiny_folder, precision=precision, uri=URI)
        assert {parameter.dtype for parameter in policy.parameters().values()} == {torch.float32}
        policy.module.eval()
        by_precision[precision] = policy.token_logprobs(packed, temperature=1.0)
        assert by_precision[precision].dtype == torch.float32
    gap = (by_precision["FP32"] - by_precision["BF16"]).abs().max()
    assert 0 < gap < 0.2


def test_layers_that_run_again_keep_less_and_give_the_same(
    tiny_folder: Path, make_spec: MakeSpec, make_samples: MakeSamples
) -> None:
    samples, spec = make_samples([40] * 6), make_spec(training={"gradientCheckpointing": True})
    peaks, losses, grown = [], [], []
    for recompute in (False, bool(spec.training.gradient_checkpointing)):
        policy = loading.load(tiny_folder, precision="FP32", uri=URI, recompute=recompute)
        learner = Learner(policy, spec)
        with Allocation(width=48) as counted:  # between the two matrices of each feed-forward
            losses.append(learner.update(samples, step=1).loss)
        peaks.append(counted.peak)
        grown.append(gradients(learner))
    assert losses[0] == losses[1]
    assert same(grown[0], grown[1])
    assert peaks[1] < 0.7 * peaks[0]


def test_a_model_whose_layers_cannot_run_again_is_refused(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Qwen3ForCausalLM, "supports_gradient_checkpointing", False)
    with pytest.raises(RefusedError) as caught:
        loading.load(tiny_folder, precision="FP32", uri=URI, recompute=True)
    assert caught.value.refusal.field == "spec.training.gradientCheckpointing"


def break_config(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def unknown_kind(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": "nobody-knows-it"}))


def router_that_draws(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "phimoe"}))


def truncate_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:5000])


def more_layers(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config |= {"num_hidden_layers": 3, "layer_types": ["full_attention"] * 3}
    (folder / "config.json").write_text(json.dumps(config))


def other_width(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 64}))


def test_a_quantized_model_is_refused_with_its_method(tiny_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3"}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(RefusedError, match="fp8") as caught:
        loading.load(folder, precision="BF16", uri=URI)
    assert caught.value.refusal.field == "spec.model.uri"
    assert caught.value.refusal.reason == "ModelQuantized"
    assert "bfloat16" in caught.value.refusal.remedy


def further_tensor(folder: Path) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path) | {"model.layers.2.mtp_block.weight": torch.ones(2)}
    save_file(tensors, path, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (break_config, "cannot be read"),
        (unknown_kind, "cannot be loaded"),
        (router_that_draws, "type phimoe cannot be trained"),
        (truncate_weights, "cannot be loaded"),
        (more_layers, "(some are missing): model.layers."),
        (further_tensor, "hold 1 tensors that Qwen3ForCausalLM does not load, and that trained"),
        (other_width, "(some are of other shapes): model.layers.0.mlp.down_proj.weight is ["),
    ],
)
def test_an_unusable_model_is_refused_by_field(
    spoil: Callable[[Path], None], says: str, tiny_folder: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    spoil(folder)
    with pytest.raises(RefusedError) as caught:
        loading.load(folder, precision="FP32", uri=URI)
    assert caught.value.refusal.field == "spec.model.uri"
    assert caught.value.refusal.reason == "ModelUnusable"
    assert says in caught.value.refusal.message


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        ("qwen3", {"attention_dropout": 0.5}),
        ("phi3", {"resid_pdrop": 0.5, "embd_pdrop": 0.5}),
        ("mixtral", {"num_local_experts": 4, "router_jitter_noise": 0.5}),
    ],
)
def test_a_model_is_trained_without_the_noise_that_its_config_asks_for(
    family: str, fields: dict[str, Any], make_spec: MakeSpec, tmp_path: Path
) -> None:
    values = families.SIZES | families.FAMILIES.get(family, {}) | fields
    made = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **values))
    made.save_pretrained(tmp_path)
    policy = loading.load(tmp_path, precision="FP32", uri=URI)
    critic = {"estimator": {"kind": "GAE"}, "critic": {}}
    models = Learner(policy, make_spec(algorithm=critic)).models
    assert models.critic is not None
    row = collate([families.sample(9, seed) for seed in range(2)], (0, 1))
    for layers in (models.policy.module.base_model, models.critic.module.get_submodule("layers")):
        assert layers.training
        first, second = (run_row(layers, row, None) for _ in range(2))
        assert torch.equal(first, second)


def test_noise_of_a_config_is_switched_off_in_its_own_type() -> None:
    """MPT's ``attn_pdrop`` is an integer, and transformers refuses another type."""
    config = loading._without_noise(AutoConfig.for_model("mpt", attn_config={"attn_pdrop": 1}))
    assert config.attn_config.attn_pdrop == 0
    assert type(config.attn_config.attn_pdrop) is int
