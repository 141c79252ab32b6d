"""What SGLang on a CPU does with adapters of a mixture of experts, of its attention and experts."""

from __future__ import annotations

import shutil
import urllib.error
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.training.lora import TARGETS
from rl_trainer import inputs
from rl_trainer.algorithm.samples import Sample
from rl_trainer.model import loading, weights
from rl_trainer.model.learner import Learner
from tests.chaos.rl_sampler.test_families import GAP, PROMPT
from tests.contract.rl_sampler.engine.lora import post
from tests.contract.rl_sampler.engine_server import EngineServer, generate
from tests.models.families import SPEC, config_of
from tests.models.tiny_model import tiny_tokenizer
from tests.models.written_model import write_model
from tests.waiting import until

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
ATTENTION_ALONE: dict[str, Any] = {"rank": 4, "alpha": 8, "targets": ATTENTION}
WITH_EXPERTS: dict[str, Any] = {"rank": 4, "alpha": 8, "experts": "Adapted"}
NEW_TOKENS = 24


def arguments(targets: list[str]) -> tuple[str, ...]:
    """As the operator sets them on a CPU."""
    return (
        "--enable-lora",
        "--lora-backend",
        "torch_native",
        "--max-lora-rank",
        "4",
        "--lora-target-modules",
        *targets,
        "--lora-strict-loading",
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "model"
    torch.manual_seed(0)
    config = config_of("qwen3_moe")
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(made)
    tiny_tokenizer().save_pretrained(made)
    return made


def learner(folder: Path, section: dict[str, Any] | None) -> Learner:
    """Of the model alone, or with adapters that have values."""
    training = {"steps": 1, "precision": "FP32"} | ({"lora": section} if section else {})
    spec = RLJobSpec.model_validate(SPEC | {"training": training})
    policy = loading.load(folder, precision="FP32", uri="s3://models/m")
    made = Learner(policy, spec, adapter=inputs.adapter_of(folder, policy, spec))
    if section:
        generator = torch.Generator().manual_seed(7)
        with torch.no_grad():
            for parameter in made.parameters.values():
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
    return made


def sampled(engine: EngineServer, **fields: object) -> list[Sample]:
    """A response with the engine's log-probabilities."""
    pairs = generate(engine.url, PROMPT, length=NEW_TOKENS, **fields)["output_token_logprobs"]
    tokens = [*PROMPT, *(token for _, token, *_ in pairs)]
    given = [0.0] * len(PROMPT) + [logprob for logprob, *_ in pairs]
    sample = Sample(
        tokens=torch.tensor(tokens),
        mask=torch.arange(len(tokens)) >= len(PROMPT),
        logprobs=torch.tensor(given),
        temperature=1.0,
        policy_steps=torch.zeros(len(tokens), dtype=torch.int64),
    )
    return [sample]


def check(samples: list[Sample], *, adapted: Learner, plain: Learner) -> None:
    """They are the adapted policy's, and not those of the model without adapters."""
    assert adapted.score(samples, temperature=1.0).largest <= GAP
    assert plain.score(samples, temperature=1.0).largest > 100 * GAP


def adapter_folder(made: Learner, folder: Path) -> Path:
    """What was trained, as an export has it beside the model."""
    assert made.policy.adapter is not None
    folder.mkdir()
    weights.write_adapter(
        weights.adapter(made.policy, precision="FP32"), made.policy.adapter, folder
    )
    return folder


def test_the_engine_serves_adapters_of_a_mixtures_attention(folder: Path, tmp_path: Path) -> None:
    adapted = learner(folder, ATTENTION_ALONE)
    at = str(adapter_folder(adapted, tmp_path / "adapter"))
    given = arguments(ATTENTION)
    with EngineServer.running(model=folder, folder=tmp_path, arguments=given) as engine:
        assert post(engine, "/load_lora_adapter", lora_name="run.1", lora_path=at)["success"]
        samples = sampled(engine, lora_path="run.1")
    check(samples, adapted=adapted, plain=learner(folder, None))


def test_the_engine_samples_adapters_of_experts_merged_as_they_are_published(
    folder: Path, tmp_path: Path
) -> None:
    adapted, published = learner(folder, WITH_EXPERTS), tmp_path / "published"
    published.mkdir()
    shutil.copy(folder / "config.json", published)
    own = weights.own_tensors(adapted.policy, precision="FP32", world=adapted.world)
    write_model(own, published)
    with EngineServer.running(model=folder, folder=tmp_path) as engine:
        body = {"model_path": str(published), "load_format": "safetensors", "weight_version": "1"}
        post(engine, "/update_weights_from_disk", **body)
        assert engine.weight_version() == "1"
        samples = sampled(engine)
    check(samples, adapted=adapted, plain=learner(folder, None))


def test_the_engine_takes_adapters_of_experts_and_dies_of_the_first_request(
    folder: Path, tmp_path: Path
) -> None:
    """Hence they are merged: once this fails, SGLang can serve them on a CPU, too."""
    at = str(adapter_folder(learner(folder, WITH_EXPERTS), tmp_path / "adapter"))
    given = arguments([*TARGETS])
    with EngineServer.running(model=folder, folder=tmp_path, arguments=given) as engine:
        assert post(engine, "/load_lora_adapter", lora_name="run.1", lora_path=at)["success"]
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            generate(engine.url, PROMPT, length=1, lora_path="run.1")
        process = engine.process
        assert process is not None
        until(lambda: process.poll() is not None, what="the engine's end")
    log = (tmp_path / "engine.log").read_text()
    assert "lora/layers.py" in log
    assert "fused_moe_triton_config.py" in log, "it looks for kernels of a GPU"
