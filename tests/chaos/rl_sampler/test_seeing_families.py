"""SGLang's log-probabilities of vision-language models on a CPU, beside transformers'."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForImageTextToText
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from tests.contract.rl_sampler.engine_server import EngineServer, generate
from tests.models.tiny_vision import (
    ASSISTANT,
    END,
    IMAGE,
    SEEING,
    START,
    STOP,
    USER,
    picture,
    save_seeing,
)
from tests.models.tiny_vision import side as side_of

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "models.md"
GAP = 1e-4
HEIGHT, WIDTH = 3, 2
NEW_TOKENS = 12


def proven(family: str) -> bool:
    """Whether the table of models says that the engine was compared."""
    row = re.search(rf"^\| `{family}` \|.*\| (\w+) \|$", PAGE.read_text(), re.MULTILINE)
    assert row is not None, f"no row of {family}"
    return row[1] == "proven"


@torch.no_grad()
def plain(folder: Path, prompt: list[int], output: list[int], file: Path) -> list[float]:
    """Log-probabilities of the output by transformers; every placeholder must be the image's."""
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
    processor = Qwen2VLImageProcessorPil.from_pretrained(folder)
    given = processor(str(file), do_resize=False, return_tensors="pt")
    tokens = torch.tensor([[*prompt, *output]])
    shown = (tokens == IMAGE).to(torch.int32)
    logits = model(input_ids=tokens, mm_token_type_ids=shown, **given).logits[0].log_softmax(-1)
    places = range(len(prompt) - 1, len(prompt) - 1 + len(output))
    return [float(logits[at, token]) for at, token in zip(places, output, strict=True)]


@pytest.mark.parametrize("family", [family for family in SEEING if proven(family)])
def test_the_engine_sees_an_image_as_transformers_does(family: str, tmp_path: Path) -> None:
    side = side_of(family)
    folder, image = save_seeing(tmp_path / "model", family), picture(HEIGHT * side, WIDTH * side)
    (tmp_path / "image.png").write_bytes(image)
    short = [USER, START, IMAGE, STOP, 1, 2, END, ASSISTANT]
    long = [USER, START, *[IMAGE] * (HEIGHT * WIDTH), STOP, 1, 2, END, ASSISTANT]
    with EngineServer.running(model=folder, folder=tmp_path) as engine:
        shown = "data:image/png;base64," + base64.b64encode(image).decode()
        meta = generate(engine.url, short, length=NEW_TOKENS, image_data=[shown])
    assert meta["prompt_tokens"] == len(long)
    pairs = meta["output_token_logprobs"]
    output = [token for _, token, *_ in pairs]
    if IMAGE in output:  # transformers would take it for another image
        pairs, output = pairs[: output.index(IMAGE)], output[: output.index(IMAGE)]
    own = plain(folder, long, output, tmp_path / "image.png")
    gaps = [abs(pair[0] - value) for pair, value in zip(pairs, own, strict=True)]
    assert max(gaps) <= GAP, gaps
