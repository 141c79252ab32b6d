"""SGLang with an adapter of a vision-language model on a CPU, beside merged weights."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rl_contracts import adapters
from rl_contracts.spec.training.lora import TARGETS, LoRA
from rl_trainer.model import lora, weights
from tests import tiny_vision
from tests.chaos.rl_sampler.test_seeing_families import GAP, HEIGHT, NEW_TOKENS, WIDTH, plain
from tests.contract.rl_sampler.engine.lora import post
from tests.contract.rl_sampler.engine_server import EngineServer, generate
from tests.tiny_vision import ASSISTANT, END, IMAGE, START, STOP, USER, picture, save_seeing, side

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
        layer = name.removesuffix(".weight").replace(adapters.TEXT, adapters.SEEING_TEXT)
        first = tensors.get(adapters.tensor_name(layer, "lora_A"))
        if first is not None:
            second = tensors[adapters.tensor_name(layer, "lora_B")]
            state[name] = lora.merged(state[name], first, second, scaling=2.0)
    save_file(state, merged / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("family", ["qwen2_5_vl"])
def test_the_engine_serves_an_adapter_as_the_merged_weights(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a processor SGLang rounds other widths up, and then refuses the adapter's.
    monkeypatch.setitem(tiny_vision.TEXT, "intermediate_size", 128)
    folder, merged = (save_seeing(tmp_path / name, family) for name in ("model", "merged"))
    adapter_of(folder, tmp_path / "adapter", merged)
    image = picture(HEIGHT * side(family), WIDTH * side(family))
    (tmp_path / "image.png").write_bytes(image)
    short = [USER, START, IMAGE, STOP, 1, 2, END, ASSISTANT]
    long = [USER, START, *[IMAGE] * (HEIGHT * WIDTH), STOP, 1, 2, END, ASSISTANT]
    with EngineServer.running(model=folder, folder=tmp_path, arguments=ARGUMENTS) as engine:
        given = {"lora_name": "run.1", "lora_path": str(tmp_path / "adapter")}
        assert post(engine, "/load_lora_adapter", **given)["success"]
        shown = "data:image/png;base64," + base64.b64encode(image).decode()
        meta = generate(engine.url, short, length=NEW_TOKENS, image_data=[shown], lora_path="run.1")
    pairs = meta["output_token_logprobs"]
    output = [token for _, token, *_ in pairs]
    if IMAGE in output:  # transformers would take it for another image
        pairs, output = pairs[: output.index(IMAGE)], output[: output.index(IMAGE)]
    assert output
    for model, same in ((merged, True), (folder, False)):
        own = plain(model, long, output, tmp_path / "image.png")
        gaps = [abs(pair[0] - value) for pair, value in zip(pairs, own, strict=True)]
        assert (max(gaps) <= GAP) is same, (model.name, gaps)
