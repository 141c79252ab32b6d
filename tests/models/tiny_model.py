"""A causal language model of a few thousand parameters with a tokenizer, made on the spot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

SPECIAL = ("<pad>", "<end>", "<system>", "<user>", "<assistant>")
VOCABULARY = 16
END = 11
ASSISTANT = 14
TEMPLATE = (
    "{%- for message in messages -%}{{ '<' ~ message.role ~ '>' ~ message.content ~ '<end>' }}"
    "{%- endfor -%}{%- if add_generation_prompt -%}{{ '<assistant>' }}{%- endif -%}"
)


def tiny_model(seed: int = 0, **changes: Any) -> Any:
    """A Qwen3 model with random float32 weights."""
    torch.manual_seed(seed)
    values: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 64,
        "tie_word_embeddings": True,
        "eos_token_id": END,
        "pad_token_id": 10,
        "bos_token_id": None,
        # Wider than the default, so that untrained log-probabilities differ from token to token.
        "initializer_range": 0.2,
    }
    return Qwen3ForCausalLM(Qwen3Config(**values | changes))


def tiny_tokenizer(digits: str = "0123456789") -> PreTrainedTokenizerFast:
    """Digits are tokens 0-9, in the order given; then come the special tokens."""
    ids = {digit: token for token, digit in enumerate(digits)}
    core = Tokenizer(models.WordLevel(ids, unk_token="0"))
    core.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    core.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    return PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token=SPECIAL[0], eos_token=SPECIAL[1], chat_template=TEMPLATE
    )


def save_tiny(folder: Path, *, seed: int = 0, **changes: Any) -> Path:
    """Write model and tokenizer in Hugging Face layout."""
    tiny_model(seed, **changes).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder
