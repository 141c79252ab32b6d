"""A real engine's choices of experts, and the trainer's log-probabilities with and without them."""

from __future__ import annotations

import base64
import json
import urllib.request
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
from rl_trainer.model.learner import Learner
from tests.contract.rl_sampler.engine_server import ANSWER_SECONDS, EngineServer
from tests.families import SPEC, config_of
from tests.tiny_model import tiny_tokenizer

PROMPTS = [[11, 3, 7, 14, 5, 9, 2, 8], [4, 4, 9], [12, 1, 6, 6, 13, 2]]
NEW_TOKENS = 64
EXACT = 1e-4


def sampled(url: str, prompt: list[int]) -> Sample:
    """A response with its choices of experts."""
    parameters = {"max_new_tokens": NEW_TOKENS, "temperature": 1.0, "ignore_eos": True}
    body = {
        "input_ids": prompt,
        "sampling_params": parameters,
        "return_logprob": True,
        "return_routed_experts": True,
        "routed_experts_start_len": 0,
    }
    request = urllib.request.Request(
        f"{url}/generate",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
        meta = json.load(answer)["meta_info"]
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


def gap(
    folder: Path, samples: list[Sample], *, routing: str, precision: Any
) -> tuple[float, float]:
    """Mean and largest difference of the trainer's log-probabilities from the engine's."""
    training = {"steps": 1, "precision": precision}
    spec = RLJobSpec.model_validate(
        SPEC | {"training": training, "algorithm": {"experts": {"routing": routing}}}
    )
    policy = loading.load(folder, precision=precision, uri="s3://models/m")
    found = Learner(policy, spec).score(samples, temperature=1.0)
    return found.mean, found.largest


@pytest.mark.parametrize(("dtype", "precision"), [("float32", "FP32"), ("bfloat16", "BF16")])
def test_replayed_choices_bring_the_trainer_near_the_engine(
    dtype: str, precision: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    folder = tmp_path / "model"
    config = config_of("qwen3_moe")
    config.num_experts, config.num_hidden_layers = 16, 6
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    server = ("--enable-return-routed-experts", "--dtype", dtype)
    with EngineServer.running(model=folder, folder=tmp_path, arguments=server) as engine:
        samples = [sampled(engine.url, prompt) for prompt in PROMPTS for _ in range(4)]
    own = gap(folder, samples, routing="Own", precision=precision)
    replayed = gap(folder, samples, routing="Replay", precision=precision)
    if precision == "FP32":
        assert replayed[1] <= EXACT, (own, replayed)
    else:
        assert replayed[0] < own[0], (own, replayed)
