"""A real engine's choices of experts, and the trainer's log-probabilities with and without them."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from rl_contracts.documents.routing import assembled, narrowed
from rl_contracts.spec.resources import RLJobSpec
from rl_trainer.algorithm.samples import Sample
from rl_trainer.model import loading
from rl_trainer.model.experts import routers
from rl_trainer.model.learner import Learner
from tests.contract.rl_sampler.engine_server import EngineServer, generate
from tests.models.families import SIZES, SPEC, config_of
from tests.models.tiny_model import tiny_tokenizer

PROMPTS = [[11, 3, 7, 14, 5, 9, 2, 8], [4, 4, 9], [12, 1, 6, 6, 13, 2]]
NEW_TOKENS = 64
EXACT = 1e-4


def sampled(url: str, prompt: list[int]) -> Sample:
    """A response with its choices of experts."""
    asked = {"return_routed_experts": True, "routed_experts_start_len": 0}
    meta = generate(url, prompt, length=NEW_TOKENS, **asked)
    tokens = [*prompt, *(token for _, token, *_ in meta["output_token_logprobs"])]
    piece = narrowed(base64.b64decode(meta["routed_experts"]), tokens=len(tokens) - 1)
    routing = assembled([(0, piece)], tokens=len(tokens))
    assert routing is not None
    choices = np.frombuffer(routing.canonical, "<i2").reshape(len(tokens), -1)
    given = [0.0] * len(prompt)
    return Sample(
        tokens=torch.tensor(tokens),
        mask=torch.arange(len(tokens)) >= len(prompt),
        logprobs=torch.tensor([*given, *(each for each, *_ in meta["output_token_logprobs"])]),
        temperature=1.0,
        policy_steps=torch.zeros(len(tokens), dtype=torch.int64),
        choices=torch.from_numpy(choices.copy()),
    )


def learner(folder: Path, *, routing: str, precision: Any) -> Learner:
    training = {"steps": 1, "precision": precision}
    spec = RLJobSpec.model_validate(
        SPEC | {"training": training, "algorithm": {"experts": {"routing": routing}}}
    )
    return Learner(loading.load(folder, precision=precision, uri="s3://models/m"), spec)


def gap(
    folder: Path, samples: list[Sample], *, routing: str, precision: Any
) -> tuple[float, float]:
    """Mean and largest difference of a trainer's log-probabilities from the samples'."""
    measured = learner(folder, routing=routing, precision=precision).score(samples, temperature=1.0)
    return measured.mean, measured.largest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A mixture of 16 experts in six layers."""
    torch.manual_seed(0)
    made = tmp_path / "model"
    config = config_of("qwen3_moe")
    config.num_experts, config.num_hidden_layers = 16, 6
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(made)
    tiny_tokenizer().save_pretrained(made)
    return made


def test_the_engines_choices_give_its_log_probabilities(folder: Path, tmp_path: Path) -> None:
    kept = ("--enable-return-routed-experts",)
    with EngineServer.running(model=folder, folder=tmp_path, arguments=kept) as engine:
        samples = [sampled(engine.url, prompt) for prompt in PROMPTS for _ in range(4)]
    assert gap(folder, samples, routing="Replay", precision="FP32")[1] <= EXACT
    assert gap(folder, samples, routing="Own", precision="FP32")[1] <= EXACT


def test_replay_takes_away_most_of_what_flipped_experts_change(folder: Path) -> None:
    """The sampler is the same model in bfloat16, the trainer computes in float32."""
    sampler = learner(folder, routing="Own", precision="BF16")
    chosen: dict[int, torch.Tensor] = {}
    for layer, router in routers._routers(sampler.policy.module).items():
        router.register_forward_hook(
            lambda _, __, outputs, layer=layer: chosen.__setitem__(layer, outputs[2])
        )
    samples = []
    for number in range(12):
        generator = torch.Generator().manual_seed(number)
        tokens = torch.randint(2, SIZES["vocab_size"], (72,), generator=generator)
        sample = Sample(
            tokens=tokens,
            mask=torch.arange(len(tokens)) >= 8,
            logprobs=torch.zeros(len(tokens)),
            temperature=1.0,
            policy_steps=torch.zeros(len(tokens), dtype=torch.int64),
        )
        (generated_logprobs,) = sampler.models.values(
            [sample], lambda packed: sampler.models.logprobs(sampler.policy, packed)
        )
        logprobs = torch.zeros(len(tokens)).masked_scatter(sample.mask, generated_logprobs)
        choices = torch.stack([chosen[layer] for layer in sorted(chosen)], dim=1)
        samples.append(
            replace(sample, logprobs=logprobs, choices=choices.flatten(1).to(torch.int16))
        )
    own = gap(folder, samples, routing="Own", precision="FP32")
    replayed = gap(folder, samples, routing="Replay", precision="FP32")
    assert replayed[0] < 0.7 * own[0], (own, replayed)
    assert replayed[1] < 0.3 * own[1], (own, replayed)
