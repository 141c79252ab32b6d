from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from rl_contracts.capacity.experts import ROUTERS
from tests.families import config_of
from tests.tiny_model import VOCABULARY


@pytest.fixture(scope="module", params=sorted(ROUTERS))
def mixture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(0)
    config = config_of(request.param)
    # A padding token's embedding is zero, whose norm has gradients of any size.
    config.vocab_size, config.pad_token_id = VOCABULARY, None
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    return folder
