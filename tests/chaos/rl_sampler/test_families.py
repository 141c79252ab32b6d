"""SGLang's log-probabilities of each family that its CPU path runs, beside transformers'."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.contract.rl_sampler.engine_server import EngineServer, generate
from tests.models.families import FAMILIES, config_of
from tests.models.tiny_model import tiny_tokenizer
from tests.models.tiny_vision import SEEING

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "models.md"
ROW = r"^\| `(\w+)` \| [^|]+ \| \w+ \| proven \|"
PROVEN = [each for each in re.findall(ROW, PAGE.read_text(), re.MULTILINE) if each not in SEEING]
PROMPT = [11, 3, 7, 14, 5, 9, 2, 8]
NEW_TOKENS = 12
GAP = 1e-4


def sampled(url: str) -> tuple[list[int], list[float]]:
    """Sampled tokens and their log-probabilities, as the engine gives them."""
    pairs = generate(url, PROMPT, length=NEW_TOKENS)["output_token_logprobs"]
    return [token for _, token, *_ in pairs], [logprob for logprob, *_ in pairs]


@torch.no_grad()
def plain(model: Any, tokens: list[int]) -> list[float]:
    """Log-probabilities of the tokens behind the prompt, by transformers."""
    whole = torch.tensor([[*PROMPT, *tokens]])
    distribution = model(input_ids=whole, use_cache=False).logits[0].log_softmax(-1)
    places = range(len(PROMPT) - 1, len(PROMPT) - 1 + len(tokens))
    return [float(distribution[at, token]) for at, token in zip(places, tokens, strict=True)]


@pytest.mark.parametrize("family", PROVEN)
def test_the_engine_samples_as_transformers_computes(family: str, tmp_path: Path) -> None:
    assert family in FAMILIES
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config_of(family), dtype=torch.float32).eval()
    folder = tmp_path / "model"
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    with EngineServer.running(model=folder, folder=tmp_path) as engine:
        tokens, logprobs = sampled(engine.url)
    assert len(tokens) == NEW_TOKENS
    gaps = [abs(a - b) for a, b in zip(logprobs, plain(model, tokens), strict=True)]
    assert max(gaps) <= GAP, gaps
