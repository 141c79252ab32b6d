"""Losses and gradients of TRL's own GRPOTrainer on the same model and batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rl_contracts.spec.resources import RLJobSpec
from rl_trainer.algorithm.samples import Sample
from rl_trainer.model import loading
from rl_trainer.model.learner import Learner
from tests.models.tiny_model import END, VOCABULARY, save_tiny

pytestmark = pytest.mark.filterwarnings("ignore")  # of TRL and what it imports

LENGTHS = [(3, 4), (2, 7), (4, 1), (3, 5)]
"""Prompt and completion of each rollout."""
ADVANTAGES = [1.2, -0.7, 0.4, -1.5]
LONGEST = 9


def samples() -> list[Sample]:
    generator = torch.Generator().manual_seed(5)
    samples: list[Sample] = []
    for (prompt, completion), advantage in zip(LENGTHS, ADVANTAGES, strict=True):
        length = prompt + completion
        mask = torch.arange(length) >= prompt
        logprobs = -2.6 + 0.5 * torch.randn(length, generator=generator)
        samples.append(
            Sample(
                tokens=torch.randint(END, (length,), generator=generator),
                mask=mask,
                logprobs=torch.where(mask, logprobs, 0.0),
                temperature=1.0,
                policy_steps=torch.zeros(length, dtype=torch.int64),
                rollout=str(len(samples)),
                group="g",
                advantage=advantage,
            )
        )
    return samples


def padded(rows: list[Tensor], *, left: bool, fill: float = 0) -> Tensor:
    width = max(map(len, rows))
    missing = [torch.full((width - len(row),), fill, dtype=row.dtype) for row in rows]
    pairs = zip(missing, rows, strict=True)
    return torch.stack([torch.cat([gap, row] if left else [row, gap]) for gap, row in pairs])


def trl_inputs(batch: list[Sample], reference: list[Tensor]) -> dict[str, Any]:
    prompts = [sample.tokens[~sample.mask] for sample in batch]
    completions = [sample.tokens[sample.mask] for sample in batch]
    return {
        "prompt_ids": padded(prompts, left=True),
        "prompt_mask": padded([torch.ones_like(prompt) for prompt in prompts], left=True),
        "completion_ids": padded(completions, left=False),
        "completion_mask": padded(
            [torch.ones_like(completion) for completion in completions], left=False
        ),
        "advantages": torch.tensor([sample.advantage for sample in batch]),
        "old_per_token_logps": padded(
            [sample.logprobs[sample.mask] for sample in batch], left=False
        ),
        "ref_per_token_logps": padded(reference, left=False),
        "num_items_in_batch": torch.tensor(sum(sample.num_generated for sample in batch)),
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny"))


def trl_loss(
    folder: Path,
    where: Path,
    batch: list[Sample],
    reference: list[Tensor],
    *,
    trainer: str = "GRPO",
    **options: Any,
) -> tuple[float, dict[str, Tensor]]:
    from datasets import Dataset  # slow
    from transformers import AutoModelForCausalLM, AutoTokenizer

    make, config = trainer_of(trainer)
    trl = make(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=config(
            output_dir=str(where),
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=LONGEST,
            temperature=1.0,
            use_cpu=True,
            bf16=False,
            report_to=[],
            **options,
        ),
        train_dataset=Dataset.from_list([{"prompt": "1"}]),
        processing_class=AutoTokenizer.from_pretrained(folder),
    )
    trl.model.eval()  # one window without accumulation; the model has no dropout
    loss = trl._compute_loss(trl.model, trl_inputs(batch, reference))
    loss.backward()
    parameters = dict(trl.model.named_parameters())
    return float(loss.detach()), {
        name: parameter.grad for name, parameter in parameters.items() if parameter.grad is not None
    }


def trainer_of(name: str) -> tuple[Any, Any]:
    """TRL's trainer of a loss, and its configuration."""
    from trl import GRPOConfig, GRPOTrainer  # slow
    from trl.experimental.gmpo import GMPOConfig, GMPOTrainer

    return {"GRPO": (GRPOTrainer, GRPOConfig), "GMPO": (GMPOTrainer, GMPOConfig)}[name]


def our_loss(
    folder: Path, batch: list[Sample], algorithm: dict[str, Any]
) -> tuple[float, dict[str, Tensor]]:
    spec = RLJobSpec.model_validate(
        {
            "model": {"uri": "s3://models/tiny"},
            "data": {"train": [{"name": "sums", "uri": "s3://data/train.jsonl"}]},
            "reward": {"scorers": [{"kind": "ExactMatch"}]},
            "samplers": [{"name": "main"}],
            "algorithm": algorithm,
            "training": {
                "steps": 1,
                "precision": "FP32",
                "maxTokensPerMicrobatch": 16,
                "optimizer": {"maxGradientNorm": 1e6},
            },
        }
    )
    learner = Learner(loading.load(folder, precision="FP32", uri="s3://models/tiny"), spec)
    if spec.algorithm.kl is not None:
        assert learner.models.reference is not None
        shift(learner.models.reference.policy.module)
    loss = learner.update(batch, step=1).loss
    parameters = learner.parameters.items()
    return loss, {
        name: parameter.grad for name, parameter in parameters if parameter.grad is not None
    }


def shift(module: torch.nn.Module) -> None:
    """Make a reference that differs from the policy."""
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))


def reference_logprobs(folder: Path, batch: list[Sample]) -> list[Tensor]:
    policy = loading.load(folder, precision="FP32", uri="s3://models/tiny")
    shift(policy.module)
    policy.module.eval()
    logprobs = []
    with torch.no_grad():
        for sample in batch:
            logs = policy.module(input_ids=sample.tokens[None]).logits[0].log_softmax(-1)
            chosen = logs[:-1].gather(-1, sample.tokens[1:, None])[:, 0]
            logprobs.append(chosen[sample.mask[1:]])
    return logprobs


CLIP = {"clipLow": 0.2, "clipHigh": 0.28}
OPSM = {"correction": {"kind": "OPSM", "threshold": 0.05}}
EPSILON = {"epsilon": 0.2, "epsilon_high": 0.28}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "DAPO": ({"loss": {"kind": "DAPO"}}, {"loss_type": "dapo", **EPSILON}),
    "GRPO": (
        {"loss": CLIP | {"aggregation": "SequenceMean"}},
        {"loss_type": "grpo", **EPSILON},
    ),
    "token mean": ({"loss": CLIP}, {"loss_type": "bnpo", **EPSILON}),
    "Dr. GRPO": (
        {"loss": CLIP | {"aggregation": "ConstantLength", "length": LONGEST}},
        {"loss_type": "dr_grpo", **EPSILON},
    ),
    "dual clip": (
        {"loss": CLIP | {"dualClip": 1.5}},
        {"loss_type": "bnpo", "delta": 1.5, **EPSILON},
    ),
    "CISPO": (
        {"loss": {"kind": "CISPO", "clipHigh": 0.5}},
        {"loss_type": "cispo", "epsilon_high": 1.5},
    ),
    "GSPO": (
        {"loss": {"kind": "GSPO", "clipLow": 0.2, "clipHigh": 0.3}},
        {
            "loss_type": "grpo",
            "importance_sampling_level": "sequence",
            "epsilon": 0.2,
            "epsilon_high": 0.3,
        },
    ),
    "SAPO": (
        {"loss": {"kind": "SAPO", "tauNegative": 1.3}},
        {"loss_type": "sapo", "sapo_temperature_neg": 1.3},
    ),
    "GMPO": (
        {"loss": {"kind": "GMPO"}, "kl": {"coefficient": 0.3}},
        {"trainer": "GMPO", "beta": 0.3},
    ),
    "KL": (
        {"loss": CLIP, "kl": {"coefficient": 0.3}},
        {"loss_type": "bnpo", "beta": 0.3, "use_bias_correction_kl": False, **EPSILON},
    ),
    "unbiased KL": (
        {"loss": CLIP, "kl": {"coefficient": 0.3, "gradient": "Unbiased"}},
        {"loss_type": "bnpo", "beta": 0.3, "use_bias_correction_kl": True, **EPSILON},
    ),
    "entropy bonus": (
        {"loss": CLIP, "entropyCoefficient": 0.2},
        {"loss_type": "bnpo", "entropy_coef": 0.2, **EPSILON},
    ),
    "off-policy sequence mask": (
        {"loss": CLIP, "offPolicy": OPSM},
        {"loss_type": "bnpo", "off_policy_mask_threshold": 0.05, **EPSILON},
    ),
}


@pytest.mark.parametrize(("ours", "theirs"), CASES.values(), ids=CASES.keys())
def test_loss_and_gradient_are_those_of_trl(
    folder: Path, tmp_path: Path, ours: dict[str, Any], theirs: dict[str, Any]
) -> None:
    batch = samples()
    assert int(max(sample.tokens.max() for sample in batch)) < VOCABULARY
    reference = reference_logprobs(folder, batch)
    expected, wanted = trl_loss(folder, tmp_path, batch, reference, **theirs)
    loss, gradients = our_loss(folder, batch, ours)
    assert loss == pytest.approx(expected, abs=1e-5)
    assert gradients.keys() == wanted.keys()
    for name, gradient in gradients.items():
        assert torch.allclose(gradient, wanted[name], atol=1e-5), name
    assert any(float(gradient.abs().max()) > 1e-3 for gradient in gradients.values())
