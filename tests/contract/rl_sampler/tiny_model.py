"""A random Qwen3 of a few thousand parameters with a byte-level tokenizer, made without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

HIDDEN, LAYERS, HEADS, KEY_VALUE_HEADS, HEAD, FEED_FORWARD = 64, 2, 2, 1, 32, 128
END = "<|end|>"
ADDED = ("<|pad|>", END, "<|user|>", "<|assistant|>")
TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message.role != 'user' -%}{{- raise_exception('only users here') -}}{%- endif -%}"
    "{{- '<|user|>' ~ message.content ~ '<|end|>' -}}{%- endfor -%}{{- '<|assistant|>' -}}"
)
VOCABULARY = 256 + len(ADDED)

Tensors = dict[str, NDArray[np.floating[Any]]]


def tensors(seed: int) -> Tensors:
    """Weights in Hugging Face names; the output layer is tied to the embedding."""
    random = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> NDArray[np.float32]:
        return random.normal(0, 0.1, (rows, columns)).astype(np.float32)

    def ones(size: int) -> NDArray[np.float32]:
        return np.ones(size, dtype=np.float32)

    made = {
        "model.embed_tokens.weight": matrix(VOCABULARY, HIDDEN),
        "model.norm.weight": ones(HIDDEN),
    }
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        made |= {
            at + "input_layernorm.weight": ones(HIDDEN),
            at + "post_attention_layernorm.weight": ones(HIDDEN),
            at + "self_attn.q_proj.weight": matrix(HEADS * HEAD, HIDDEN),
            at + "self_attn.k_proj.weight": matrix(KEY_VALUE_HEADS * HEAD, HIDDEN),
            at + "self_attn.v_proj.weight": matrix(KEY_VALUE_HEADS * HEAD, HIDDEN),
            at + "self_attn.o_proj.weight": matrix(HIDDEN, HEADS * HEAD),
            at + "self_attn.q_norm.weight": ones(HEAD),
            at + "self_attn.k_norm.weight": ones(HEAD),
            at + "mlp.gate_proj.weight": matrix(FEED_FORWARD, HIDDEN),
            at + "mlp.up_proj.weight": matrix(FEED_FORWARD, HIDDEN),
            at + "mlp.down_proj.weight": matrix(HIDDEN, FEED_FORWARD),
        }
    return made


def write_model(folder: Path, *, seed: int = 0) -> None:
    """Write config, tokenizer and weights in Hugging Face layout."""
    folder.mkdir(parents=True, exist_ok=True)
    end = ADDED.index(END) + 256
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEY_VALUE_HEADS,
        "head_dim": HEAD,
        "intermediate_size": FEED_FORWARD,
        "max_position_embeddings": 16_384,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "vocab_size": VOCABULARY,
        "eos_token_id": end,
        "hidden_act": "silu",
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [end]}))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={sign: i for i, sign in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(text, special=True) for text in ADDED])
    core.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "eos_token": END,
                "pad_token": ADDED[0],
                "chat_template": TEMPLATE,
                "clean_up_tokenization_spaces": False,
            }
        )
    )
    (folder / "model.safetensors").write_bytes(save(tensors(seed), metadata={"format": "pt"}))
