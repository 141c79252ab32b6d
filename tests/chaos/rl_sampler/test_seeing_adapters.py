"""SGLang with an adapter of a vision-language model on a CPU, beside merged weights."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText

from rl_contracts import adapters
from rl_contracts.spec.training.lora import TARGETS, LoRA
from rl_trainer.model import lora, weights
from tests.chaos.rl_sampler.test_seeing_families import (
    GAP,
    HEIGHT,
    NEW_TOKENS,
    WIDTH,
    plain,
    proven,
)
from tests.contract.rl_sampler.engine.lora import post
from tests.contract.rl_sampler.engine_server import EngineServer, generate
from tests.models import tiny_vision
from tests.models.tiny_vision import (
    ASSISTANT,
    END,
    IMAGE,
    START,
    STOP,
    USER,
    VIDEO,
    picture,
    save_seeing,
    side,
)

ARGUMENTS = (
    "--enable-lora",
    "--lora-backend",
    "torch_native",
    "--max-lora-rank",
    "3",
    "--lora-target-modules",
    *TARGETS,
    "--lora-strict-loading",
)


ATTEMPTS, ENOUGH = 20, 4
OF_IMAGES = {START, STOP, IMAGE, VIDEO}


def adapter_of(base: Path, folder: Path, merged: Path) -> None:
    """An adapter with values, as the trainer writes it, and the model with it merged."""
    entry = adapters.adapter_entry(base, uri="s3://m/seeing", section=LoRA(rank=3, alpha=6))
    shapes = adapters.shapes(adapters.model_tensors(base), entry)
    generator = torch.Generator().manual_seed(5)
    tensors = {
        name: 0.2 * torch.randn(shape, generator=generator) for name, shape in shapes.items()
    }
    folder.mkdir()
    weights.write_adapter(tensors, entry, folder)
    state = load_file(merged / "model.safetensors")
    for name in state:
        layer = name.removesuffix(".weight")
        if layer.startswith(adapters.TEXT):
            layer = adapters.SEEING_TEXT + layer.removeprefix(adapters.TEXT)
        first = tensors.get(adapters.tensor_name(layer, "lora_A"))
        if first is not None:
            second = tensors[adapters.tensor_name(layer, "lora_B")]
            state[name] = lora.merged(state[name], first, second, scaling=2.0)
    save_file(state, merged / "model.safetensors", metadata={"format": "pt"})


@dataclass(frozen=True)
class Prompt:
    """What is asked, and the model's tokens of it."""

    asked: list[int]
    whole: list[int]
    shown: str = ""
    """An image as a data URI."""

    @property
    def images(self) -> dict[str, list[str]]:
        """Of the request."""
        return {"image_data": [self.shown]} if self.shown else {}


@dataclass(frozen=True)
class Sampled:
    """Tokens of a response, and their log-probabilities by the engine."""

    output: list[int]
    logprobs: list[float]


def response(engine: EngineServer, prompt: Prompt, **fields: object) -> Sampled:
    """The beginning of a response, before any token that transformers or SGLang take for pixels."""
    for _ in range(ATTEMPTS):
        meta = generate(engine.url, prompt.asked, length=NEW_TOKENS, **prompt.images, **fields)
        words = list(
            takewhile(lambda pair: pair[1] not in OF_IMAGES, meta["output_token_logprobs"])
        )
        if len(words) >= ENOUGH:
            return Sampled([token for _, token, *_ in words], [logprob for logprob, *_ in words])
    pytest.fail(f"none of {ATTEMPTS} responses has {ENOUGH} tokens before one of an image")


def again(engine: EngineServer, prompt: Prompt, answer: Sampled) -> list[float]:
    """What an engine gives the tokens of a response."""
    row = [*prompt.asked, *answer.output]
    meta = generate(engine.url, row, length=1, logprob_start_len=0, **prompt.images)
    return [logprob for logprob, *_ in meta["input_token_logprobs"][-len(answer.output) :]]


@torch.no_grad()
def of_text(folder: Path, prompt: Prompt, output: list[int]) -> list[float]:
    """Log-probabilities of a response to a prompt without images, by transformers."""
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
    row = torch.tensor([[*prompt.whole, *output]])
    logits = model(input_ids=row).logits[0].log_softmax(-1)
    return [float(logits[len(prompt.whole) - 1 + at, token]) for at, token in enumerate(output)]


def gap(logprobs: Sequence[float], others: Sequence[float]) -> float:
    return max(abs(a - b) for a, b in zip(logprobs, others, strict=True))


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_the_engine_serves_an_adapter_as_the_merged_weights(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an image as an engine of the merged weights: SGLang sees qwen3_vl's images otherwise."""
    # On a processor SGLang rounds other widths up, and then refuses the adapter's.
    monkeypatch.setitem(tiny_vision.TEXT, "intermediate_size", 128)
    folder, merged = (save_seeing(tmp_path / name, family) for name in ("model", "merged"))
    adapter_of(folder, tmp_path / "adapter", merged)
    image = picture(HEIGHT * side(family), WIDTH * side(family))
    (tmp_path / "image.png").write_bytes(image)
    shown = "data:image/png;base64," + base64.b64encode(image).decode()
    seeing = Prompt(
        asked=[USER, START, IMAGE, STOP, 1, 2, END, ASSISTANT],
        whole=[USER, START, *[IMAGE] * (HEIGHT * WIDTH), STOP, 1, 2, END, ASSISTANT],
        shown=shown,
    )
    text = [USER, 1, 2, 5, 3, END, ASSISTANT]
    reading = Prompt(asked=text, whole=text)
    with EngineServer.running(model=folder, folder=tmp_path, arguments=ARGUMENTS) as engine:
        given = {"lora_name": "run.1", "lora_path": str(tmp_path / "adapter")}
        assert post(engine, "/load_lora_adapter", **given)["success"]
        saw, read = (response(engine, each, lora_path="run.1") for each in (seeing, reading))
    for model, same in ((merged, True), (folder, False)):
        assert (gap(read.logprobs, of_text(model, reading, read.output)) <= GAP) is same
        if proven(family):
            own = plain(model, seeing.whole, saw.output, tmp_path / "image.png")
            assert (gap(saw.logprobs, own) <= GAP) is same
    with EngineServer.running(model=merged, folder=tmp_path) as engine:
        assert gap(saw.logprobs, again(engine, seeing, saw)) <= GAP
