from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_contracts.spec.resources import RLJobSpec
from rl_trainer.algorithm.samples import Sample
from rl_trainer.model import loading
from rl_trainer.model.learner import Learner
from rl_trainer.model.policy import Policy
from tests.models.tiny_model import VOCABULARY, save_tiny

SPEC: dict[str, Any] = {
    "model": {"uri": "s3://models/tiny"},
    "data": {"train": [{"name": "sums", "uri": "s3://data/train.jsonl"}]},
    "reward": {"scorers": [{"kind": "ExactMatch"}]},
    "samplers": [{"name": "main"}],
}

MakeSpec = Callable[..., RLJobSpec]
MakeLearner = Callable[..., Learner]
MakeSamples = Callable[..., list[Sample]]


def budget(tokens: int) -> dict[str, dict[str, int]]:
    return {"training": {"maxTokensPerMicrobatch": tokens}}


@pytest.fixture(autouse=True)
def _deterministic() -> None:
    torch.use_deterministic_algorithms(True)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def make_spec() -> MakeSpec:
    def make(**sections: Any) -> RLJobSpec:
        training = {"steps": 10, "precision": "FP32", **sections.pop("training", {})}
        return RLJobSpec.model_validate(SPEC | {"training": training} | sections)

    return make


@pytest.fixture
def load_policy(tiny_folder: Path) -> Callable[[], Policy]:
    return lambda: loading.load(tiny_folder, precision="FP32", uri="s3://models/tiny")


@pytest.fixture
def make_learner(load_policy: Callable[[], Policy], make_spec: MakeSpec) -> MakeLearner:
    def make(**sections: Any) -> Learner:
        return Learner(load_policy(), make_spec(**sections))

    return make


@pytest.fixture
def make_samples() -> MakeSamples:
    def make(lengths: Sequence[int] = (3, 9, 5, 12, 7, 4), *, seed: int = 0) -> list[Sample]:
        generator = torch.Generator().manual_seed(seed)
        return [_sample(length, generator) for length in lengths]

    return make


def _sample(length: int, generator: torch.Generator) -> Sample:
    mask = torch.rand(length, generator=generator) < 0.6
    mask[0], mask[-1] = False, True
    logprobs = -2.8 + 0.2 * torch.randn(length, generator=generator)
    return Sample(
        tokens=torch.randint(VOCABULARY, (length,), generator=generator),
        mask=mask,
        logprobs=torch.where(mask, logprobs, torch.zeros(())),
        temperature=1.0,
        policy_steps=torch.zeros(length, dtype=torch.int64),
        advantage=float(torch.randn((), generator=generator)),
        weight=1.0,
    )
