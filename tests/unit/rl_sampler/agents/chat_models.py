"""Tokenizers with the chat templates of real models, as the trl package carries them."""

from __future__ import annotations

from pathlib import Path

import trl
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from rl_contracts.images.placeholders import Placeholders
from rl_sampler.agents.prompt import Prompts

CHATML = ("<|im_end|>", "<|im_start|>", "<|endoftext|>")
LLAMA = ("<|eot_id|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>")
VISION = ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>")
IMAGE, SIDE = VISION[1], 28
QUOTE = '<|"|>'
"""A special token that JSON writes with a backslash."""
GEMMA = ("<end_of_turn>", "<bos>", "<start_of_turn>")
SPECIAL: dict[str, tuple[str, ...]] = {
    "qwen2_5": CHATML,
    "qwen3": CHATML,
    "qwen3_instruct_2507": CHATML,
    "qwen3_5_think": CHATML,
    "llama3": LLAMA,
    "llama3_1": LLAMA,
    "llama3_2": LLAMA,
    "glm4moe": ("<|observation|>", "<|user|>", "<|assistant|>", "<|system|>"),
    "gemma3": GEMMA,
    "phi3": ("<|end|>", "<|user|>", "<|assistant|>"),
    "cohere": ("<|END|>",),
    "qwen2_5_vl": (*CHATML, *VISION),
    "qwen3_vl": (*CHATML, *VISION),
    "gptoss": (
        "<|return|>",
        "<|call|>",
        "<|end|>",
        "<|start|>",
        "<|channel|>",
        "<|message|>",
        "<|constrain|>",
    ),
    "deepseekv3": ("<｜end▁of▁sentence｜>", "<｜Assistant｜>"),
}
"""By template: its special tokens, the one that ends a turn first."""


def byte_prompts(template: str, special: tuple[str, ...], *, ends: int = 1) -> Prompts:
    """Byte-level tokens and some special ones; the first ``ends`` of them end a turn."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={sign: i for i, sign in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(text, special=True) for text in special])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=special[0],
        bos_token=special[1] if len(special) > 1 else None,
        chat_template=template,
    )
    sees = IMAGE in special
    image = Placeholders(token=tokenizer.convert_tokens_to_ids(IMAGE), side=SIDE)
    return Prompts(
        tokenizer,
        vocabulary=len(tokenizer),
        stop_tokens=tuple(tokenizer.convert_tokens_to_ids(list(special[:ends]))),
        placeholders=image if sees else None,
    )


def real_prompts(name: str) -> Prompts:
    """A real model family's template."""
    path = Path(trl.__file__).parent / "chat_templates" / f"{name}.jinja"
    ends = 2 if name == "gptoss" else 1
    return byte_prompts(path.read_text(), SPECIAL[name], ends=ends)


def quoting_prompts() -> Prompts:
    """A template that shows what tools and arguments say as it is, with a token ``QUOTE``."""
    path = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"
    template = path.read_text().replace("tool | tojson", "tool.function.description")
    shown = template.replace("tool_call.arguments | tojson", "tool_call.arguments.x")
    return byte_prompts(shown, (*CHATML, QUOTE))
