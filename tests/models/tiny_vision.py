"""Tiny vision-language models with random weights, and images for them, made on the spot."""

from __future__ import annotations

import dataclasses
import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForImageTextToText, PreTrainedTokenizerFast
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from rl_contracts.documents.rollout import ImageSpan
from rl_trainer.algorithm.samples import Sample
from tests.models.families import sample

SPECIAL = (
    "<pad>",
    "<end>",
    "<system>",
    "<user>",
    "<assistant>",
    "<tool>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
PAD, END, _, USER, ASSISTANT, TOOL, START, STOP, IMAGE, VIDEO = range(10, 20)
VOCABULARY = 32
TEMPLATE = """\
{%- for message in messages -%}
{{ '<' ~ message.role ~ '>' }}
{%- if message.content is string -%}{{ message.content }}{%- else -%}
{%- for part in message.content -%}
{%- if part.type == 'image' -%}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}
{%- else -%}{{ part.text }}{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{ '<end>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<assistant>' }}{%- endif -%}
"""
TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
    "bos_token_id": None,
    "eos_token_id": END,
    "pad_token_id": PAD,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "mrope_section": [2, 1, 1],
    },
}
VISION: dict[str, Any] = {
    "depth": 2,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_heads": 2,
    "out_hidden_size": 32,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "initializer_range": 0.2,
}
SEEING: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "qwen2_5_vl": ({}, {"patch_size": 14, "window_size": 112, "fullatt_block_indexes": [1]}),
    "qwen3_vl": (
        {"head_dim": 8},
        {"patch_size": 16, "num_position_embeddings": 64, "deepstack_visual_indexes": [0]},
    ),
}
"""Fields of ``text_config`` and ``vision_config`` beside the ones above, by ``model_type``."""


def seeing_config(family: str) -> Any:
    text, vision = SEEING[family]
    return AutoConfig.for_model(
        family,
        text_config=TEXT | text,
        vision_config=VISION | vision,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        vision_start_token_id=START,
        vision_end_token_id=STOP,
        tie_word_embeddings=False,
    )


def side(family: str) -> int:
    """Pixels on each side of what a token stands for."""
    return 2 * int(SEEING[family][1]["patch_size"])


def save_seeing(folder: Path, family: str = "qwen2_5_vl", seed: int = 0) -> Path:
    """Write model, tokenizer and image processor in Hugging Face layout."""
    torch.manual_seed(seed)
    config = seeing_config(family)
    AutoModelForImageTextToText.from_config(config, dtype=torch.float32).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    square = side(family) ** 2
    processor = Qwen2VLImageProcessorPil(
        patch_size=side(family) // 2,
        size={"shortest_edge": square, "longest_edge": 64 * square},
    )
    (folder / "preprocessor_config.json").write_text(processor.to_json_string())
    return folder


def tokenizer() -> PreTrainedTokenizerFast:
    """Digits are tokens 0-9; then come the special tokens."""
    core = Tokenizer(models.WordLevel({d: int(d) for d in "0123456789"}, unk_token="0"))
    core.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    core.decoder = decoders.Fuse()
    core.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    return PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token=SPECIAL[0], eos_token=SPECIAL[1], chat_template=TEMPLATE
    )


def picture(height: int, width: int, seed: int = 0, kind: str = "PNG") -> bytes:
    """An image file of random pixels."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


class Album(dict[str, bytes]):
    """Stored images by SHA-256."""

    def add(self, family: str, height: int, width: int, *, start: int, seed: int = 0) -> ImageSpan:
        """Store an image of height x width tokens that stands at ``start``."""
        pixels = side(family)
        file = picture(height * pixels, width * pixels, seed)
        sha256 = hashlib.sha256(file).hexdigest()
        self[sha256] = file
        return ImageSpan(
            sha256=sha256,
            width=width * pixels,
            height=height * pixels,
            start=start,
            end=start + height * width,
        )


class AlbumStore:
    """In the place of the store of a run's images."""

    def __init__(self, album: Album) -> None:
        self.album = album

    def get(self, sha256: str, /) -> bytes:
        return self.album[sha256]


def seeing_sample(album: Album, family: str, *sizes: tuple[int, int], seed: int = 0) -> Sample:
    """A sample whose prompt shows images of these heights and widths in tokens."""
    plain = sample(8 + seed, seed)
    # No placeholder but those of images; and one that the policy generated, a token like any other.
    words = plain.tokens % IMAGE
    words[-2] = IMAGE
    shown, spans = [words[:1]], []
    for number, (height, width) in enumerate(sizes):
        start = sum(map(len, shown)) + 1
        spans.append(album.add(family, height, width, start=start, seed=100 * seed + number))
        tokens = [START, *[IMAGE] * (height * width), STOP]
        shown.append(torch.tensor(tokens))
    whole = torch.cat([*shown, words[1:]])
    added = len(whole) - len(words)
    return dataclasses.replace(
        plain,
        tokens=whole,
        mask=torch.cat([torch.zeros(added, dtype=torch.bool), plain.mask]),
        logprobs=torch.full((len(whole),), -3.0),
        policy_steps=torch.zeros(len(whole), dtype=torch.int64),
        images=tuple(spans),
    )
