from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from rl_contracts.capacity.experts import ADAPTED, ROUTERS
from tests.models.families import config_of
from tests.models.tiny_model import VOCABULARY


def written(family: str, folder: Path) -> Path:
    """A folder with a random model of a family."""
    torch.manual_seed(0)
    config = config_of(family)
    # A padding token's embedding is zero, whose norm has gradients of any size.
    config.vocab_size, config.pad_token_id = VOCABULARY, None
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=sorted(ROUTERS))
def mixture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module", params=ADAPTED)
def adaptable(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the families whose experts can have adapters; tests of refusals have the others."""
    return written(request.param, tmp_path_factory.mktemp(request.param))
