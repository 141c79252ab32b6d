"""Model families as tiny random models, and what the trainer makes of each."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from rl_contracts.spec.resources import RLJobSpec
from rl_trainer.algorithm.packing import collate
from rl_trainer.algorithm.samples import Sample
from rl_trainer.model import loading, weights
from rl_trainer.model.learner import Learner
from rl_trainer.model.policy import Policy
from tests.models.written_model import write_model

SIZES: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "initializer_range": 0.2,
}
HEADS = {"head_dim": 24}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LATENT = {
    "num_key_value_heads": 4,
    "moe_intermediate_size": 32,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {},
    "qwen2": {},
    "qwen3": HEADS | {"tie_word_embeddings": True},
    "qwen3_moe": HEADS | EXPERTS,
    "qwen2_moe": EXPERTS | {"shared_expert_intermediate_size": 48},
    "gemma3_text": HEADS,
    "phi3": {},
    "glm4": HEADS,
    "gpt_oss": HEADS | {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 4},
    "deepseek_v3": LATENT,
}
"""Fields of a config beside ``SIZES``, by ``model_type``."""
SPEC: dict[str, Any] = {
    "model": {"uri": "s3://models/tiny"},
    "data": {"train": [{"name": "sums", "uri": "s3://data/train.jsonl"}]},
    "reward": {"scorers": [{"kind": "ExactMatch"}]},
    "samplers": [{"name": "main"}],
    "training": {"steps": 3, "precision": "FP32", "optimizer": {"learningRate": 1e-3}},
}


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What became of a family."""

    gap: float
    """Largest difference of log-probabilities between a packed pass and a plain one."""
    changed: bool
    """A step has changed the weights."""
    reload_gap: float
    """Largest difference between the trained model and its export, loaded again."""


def config_of(family: str) -> Any:
    return AutoConfig.for_model(family, **SIZES | FAMILIES[family])


def trained(family: str, folder: Path) -> Trained:
    """Load, train a step, export and load again; raises what loading refuses."""
    torch.manual_seed(0)
    made, exported = folder / "made", folder / "exported"
    module = AutoModelForCausalLM.from_config(config_of(family), dtype=torch.float32)
    module.save_pretrained(made)
    policy = loading.load(made, precision="FP32", uri="s3://models/tiny")
    samples = [sample(length, seed) for seed, length in enumerate((9, 14, 7, 12))]
    gap = largest(logprobs(policy, samples, packed=True), logprobs(policy, samples, packed=False))
    before = logprobs(policy, samples, packed=True)
    learner = Learner(policy, RLJobSpec.model_validate(SPEC))
    learner.update(samples, step=1)
    after = logprobs(learner.policy, samples, packed=True)
    exported.mkdir()
    write_model(weights.snapshot(learner.policy, precision="FP32"), exported)
    (exported / "config.json").write_bytes((made / "config.json").read_bytes())
    again = loading.load(exported, precision="FP32", uri="s3://models/tiny")
    return Trained(
        gap=gap,
        changed=largest(before, after) > 0,
        reload_gap=largest(after, logprobs(again, samples, packed=True)),
    )


def sample(length: int, seed: int) -> Sample:
    generator = torch.Generator().manual_seed(seed)
    return Sample(
        tokens=torch.randint(2, SIZES["vocab_size"], (length,), generator=generator),
        mask=torch.arange(length) >= 3,
        logprobs=torch.full((length,), -5.0),
        temperature=1.0,
        policy_steps=torch.zeros(length, dtype=torch.int64),
        rollout=str(seed),
        group=str(seed // 2),
        advantage=(-1.0) ** seed,
    )


def logprobs(policy: Policy, samples: list[Sample], *, packed: bool) -> torch.Tensor:
    """Of the generated tokens, with the model in evaluation."""
    was_training = policy.module.training
    policy.module.eval()
    with torch.no_grad():
        if packed:
            row = collate(samples, tuple(range(len(samples))))
            values = dataclasses.replace(policy, half=None).token_logprobs(row, temperature=1.0)
        else:
            values = torch.cat([_plain(policy, each) for each in samples])
    policy.module.train(was_training)
    return values


def _plain(policy: Policy, sequence: Sample) -> torch.Tensor:
    logits = policy.module(input_ids=sequence.tokens[None], use_cache=False).logits[0].float()
    chosen = logits[:-1].log_softmax(-1).gather(-1, sequence.tokens[1:, None])[:, 0]
    picked: torch.Tensor = chosen[sequence.mask[1:]]
    return picked


def largest(first: torch.Tensor, second: torch.Tensor) -> float:
    return float((first - second).abs().max())
