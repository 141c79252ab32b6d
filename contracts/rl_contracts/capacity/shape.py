"""The sizes of a decoder, read from its ``config.json`` as transformers writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl_contracts.capacity.vision import VisionShape, vision_fields, vision_of
from rl_contracts.errors import RLError

FIELDS = (
    "model_type",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "tie_word_embeddings",
    "max_position_embeddings",
    "attention_bias",
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "n_shared_experts",
    "shared_expert_intermediate_size",
    "first_k_dense_replace",
    "decoder_sparse_step",
    "mlp_only_layers",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
)
"""Fields of a config that the shape depends on: all that a reader passes on."""
CONFIG_BYTES = 1 << 20
"""A longer ``config.json`` is not read: those of published models have a few kilobytes."""
LISTED_LAYERS = 512
"""Most entries of ``mlp_only_layers`` that are read."""
UNSTRETCHED = ("llama3", "yarn", "longrope")
"""Kinds of rotary scaling under which ``max_position_embeddings`` is the whole length."""
GEMMA = {
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "vocab_size": 262_208,
    "tie_word_embeddings": True,
    "max_position_embeddings": 131_072,
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma3_text": GEMMA,
    "gpt_oss": {"head_dim": 64, "attention_bias": True},
    "qwen2": {"attention_bias": "qkv"},
    "qwen2_moe": {"attention_bias": "qkv"},
    "qwen3": {"head_dim": 128},
    "qwen3_moe": {"head_dim": None},
}
"""What a published config leaves out: the defaults of transformers 5.19's config classes."""
BOTH_SIDES_NORMED = frozenset({"gemma2", "gemma3_text", "glm4"})
"""Families with a norm before and after attention and feed-forward: four a layer instead of two."""
HEADS_NORMED = frozenset({"qwen3", "qwen3_moe", "gemma3_text"})
"""Families that normalize each query's and key's head."""


FAMILIES = (
    *("llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "qwen2_moe", "gemma3_text", "phi3"),
    *("glm4", "deepseek_v3", "gpt_oss"),
)
"""``model_type`` of the language models whose sizes are compared with transformers' models."""
SEEING = {
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen3_vl": "qwen3",
    "qwen3_vl_text": "qwen3",
}
"""``model_type`` of models that see images, by that of the language model in them."""


class UnknownShapeError(RLError):
    """The config is not one of a decoder of attention and gated feed-forward layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Sizes of DeepSeek's attention over compressed keys and values (arXiv 2405.04434, 2.1)."""

    query_rank: int | None
    key_value_rank: int
    plain_width: int
    rotary_width: int
    value_width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A decoder: numbers of layers, heads and experts, and widths in numbers, not bytes."""

    family: str
    """``model_type`` of the config; that of the language model in one that sees images."""
    hidden: int
    layers: int
    heads: int
    key_value_heads: int
    head_width: int
    feed_forward: int
    """Width of a dense layer's feed-forward part."""
    vocabulary: int
    tied: bool
    """The output layer is the embedding."""
    max_positions: int | None = None
    """Longest sequence that it was made for, by its positions and their scaling."""
    experts: int = 0
    """0: none of the layers is a mixture of experts."""
    experts_per_token: int = 0
    expert_width: int = 0
    shared_width: int = 0
    """Width of the experts that every token passes."""
    expert_layers: int = 0
    biases: str = ""
    """Of the attention's layers: ``qkv``, ``qkvo`` or none."""
    latent: LatentAttention | None = None
    vision: VisionShape | None = None
    """Of a model that sees images."""

    @property
    def norms(self) -> int:
        """Norms of a layer, beside those of heads."""
        return 4 if self.family in BOTH_SIDES_NORMED else 2

    @property
    def normed_heads(self) -> bool:
        """Queries and keys are normalized."""
        return self.family in HEADS_NORMED

    @property
    def query_width(self) -> int:
        """Numbers of a token's queries, all heads together."""
        if self.latent is not None:
            return self.heads * (self.latent.plain_width + self.latent.rotary_width)
        return self.heads * self.head_width

    @property
    def value_width(self) -> int:
        """Numbers of a token's attention output, all heads together."""
        return self.heads * (self.latent.value_width if self.latent else self.head_width)

    @property
    def attention_parameters(self) -> int:
        """Of one layer, norms of heads included."""
        if self.latent is not None:
            return _latent(self.hidden, self.heads, self.latent)
        query, key_value = self.query_width, self.key_value_heads * self.head_width
        weights = 2 * self.hidden * (query + key_value)
        biases = (query + 2 * key_value) if self.biases else 0
        biases += self.hidden if self.biases == "qkvo" else 0
        sinks = self.heads if self.family == "gpt_oss" else 0
        return weights + biases + sinks + (2 * self.head_width if self.normed_heads else 0)

    @property
    def expert_parameters(self) -> int:
        """Of one layer's experts and router; 0 without experts."""
        if not self.experts:
            return 0
        biased = self.family == "gpt_oss"
        expert = 3 * self.hidden * self.expert_width
        expert += (2 * self.expert_width + self.hidden) if biased else 0
        router = self.experts * (self.hidden + biased)
        gate = self.hidden if self.family == "qwen2_moe" and self.shared_width else 0
        return self.experts * expert + router + 3 * self.hidden * self.shared_width + gate

    @property
    def dense_parameters(self) -> int:
        """Of one dense layer's feed-forward part."""
        return 3 * self.hidden * self.feed_forward

    @property
    def layer_parameters(self) -> int:
        """Of the largest layer."""
        widest = max(
            self.expert_parameters if self.expert_layers else 0,
            self.dense_parameters if self.expert_layers < self.layers else 0,
        )
        return self.attention_parameters + widest + self.norms * self.hidden

    @property
    def table_parameters(self) -> int:
        """Of the embedding; the output layer has as many."""
        return self.vocabulary * self.hidden

    @property
    def outer_parameters(self) -> int:
        """Outside of the layers: embedding, last norm, and the output layer unless it is tied."""
        return self.table_parameters * (1 if self.tied else 2) + self.hidden

    @property
    def parameters(self) -> int:
        """Of the whole model, tied ones once."""
        each = self.attention_parameters + self.norms * self.hidden
        dense = (self.layers - self.expert_layers) * self.dense_parameters
        experts = self.expert_layers * self.expert_parameters
        text = self.layers * each + dense + experts + self.outer_parameters
        return text + self.vision_parameters

    @property
    def body_parameters(self) -> int:
        """Of the model without its output layer, as a critic has it."""
        return self.parameters - (0 if self.tied else self.table_parameters)

    @property
    def layers_parameters(self) -> int:
        """Of all layers of the language model."""
        return self.parameters - self.outer_parameters - self.vision_parameters

    @property
    def vision_parameters(self) -> int:
        """Of the vision tower; 0 without one."""
        return 0 if self.vision is None else self.vision.parameters


def kept_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a ``config.json`` that its shape is read from: plain values, bounded in size.

    Anything else in the file, its size and its types are not trusted: numbers beyond 2^40 and
    other types are left out.
    """
    text = config.get("text_config")
    source = {**config, **text} if isinstance(text, Mapping) else config
    kept: dict[str, Any] = {}
    for name in FIELDS:
        value = source.get(name)
        if isinstance(value, bool) or (isinstance(value, int) and 0 <= value < 1 << 40):
            kept[name] = value
        elif isinstance(value, str) and name == "model_type":
            kept[name] = value[:64]
        elif isinstance(value, list) and name == "mlp_only_layers":
            kept[name] = [each for each in value[:LISTED_LAYERS] if isinstance(each, int)]
    positions = kept.get("max_position_embeddings")
    if positions is not None:
        kept["max_position_embeddings"] = min(int(positions * _stretch(source)), 1 << 40)
    return kept | vision_fields(config)


def longest_of(config: Mapping[str, Any]) -> int | None:
    """Tokens that the model of a config was made for; None where it does not say."""
    fields = kept_fields(config)
    defaults = DEFAULTS.get(str(fields.get("model_type", "")), {})
    return (defaults | fields).get("max_position_embeddings") or None


def _stretch(config: Mapping[str, Any]) -> float:
    """By how much rotary scaling lengthens ``max_position_embeddings``, as SGLang computes it.

    To a scaling of ``UNSTRETCHED`` transformers adds ``original_max_position_embeddings`` when it
    reads the config, and with that SGLang takes the length as it is.
    """
    scaling = config.get("rope_scaling") or config.get("rope_parameters")
    if not isinstance(scaling, Mapping) or "original_max_position_embeddings" in scaling:
        return 1.0  # the length is the scaled one
    factor = scaling.get("factor", 1.0)
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind in UNSTRETCHED or isinstance(factor, bool) or not isinstance(factor, (int, float)):
        return 1.0
    return float(factor) if 1.0 <= factor <= 1 << 20 else 1.0


def shape_of(config: Mapping[str, Any]) -> Shape:
    """The shape of the model of a ``config.json``.

    Args:
        config: the file's content, or ``kept_fields`` of it. With a ``text_config`` sizes
            are those of the language model.

    Raises:
        UnknownShapeError: a size is missing or is not a positive number.
    """
    fields = kept_fields(config)
    named = str(fields.get("model_type", ""))
    family = SEEING.get(named, named)
    fields = DEFAULTS.get(family, {}) | fields | {"model_type": family}
    heads = _positive(fields, "num_attention_heads")
    hidden = _positive(fields, "hidden_size")
    layers = _positive(fields, "num_hidden_layers")
    experts = _first(fields, ("num_experts", "num_local_experts", "n_routed_experts"))
    width = _positive(fields, "intermediate_size") if not experts else 0
    expert_width = fields.get("moe_intermediate_size") or fields.get("intermediate_size") or 0
    return Shape(
        family=family,
        hidden=hidden,
        layers=layers,
        heads=heads,
        key_value_heads=fields.get("num_key_value_heads") or heads,
        head_width=fields.get("head_dim") or max(1, hidden // heads),
        feed_forward=width or fields.get("intermediate_size") or 0,
        vocabulary=_positive(fields, "vocab_size"),
        tied=bool(fields.get("tie_word_embeddings", False)),
        max_positions=fields.get("max_position_embeddings"),
        experts=experts,
        experts_per_token=fields.get("num_experts_per_tok") or 0,
        expert_width=expert_width if experts else 0,
        shared_width=_shared(fields, expert_width) if experts else 0,
        expert_layers=_expert_layers(fields, layers) if experts else 0,
        biases=_biases(fields),
        latent=_latent_of(fields),
        vision=vision_of(fields),
    )


def _positive(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UnknownShapeError(f"config.json has no usable {name}")
    return value


def _first(fields: Mapping[str, Any], names: Sequence[str]) -> int:
    return next((int(fields[name]) for name in names if fields.get(name)), 0)


def _biases(fields: Mapping[str, Any]) -> str:
    value = fields.get("attention_bias")
    if fields.get("model_type") in ("qwen2", "qwen2_moe"):
        return "qkv"  # whatever the config says
    if fields.get("model_type") == "glm4":
        return "qkv" if value else ""
    return "qkvo" if value else ""


def _shared(fields: Mapping[str, Any], width: int) -> int:
    named = fields.get("shared_expert_intermediate_size")
    return int(named) if named else int(fields.get("n_shared_experts") or 0) * width


def _expert_layers(fields: Mapping[str, Any], layers: int) -> int:
    """Layers that are mixtures: all but the first dense ones, or every n-th."""
    first, every = fields.get("first_k_dense_replace") or 0, fields.get("decoder_sparse_step") or 1
    dense = set(fields.get("mlp_only_layers") or ())
    return sum(
        1
        for layer in range(min(layers, 4096))
        if layer >= first and layer not in dense and (layer + 1) % every == 0
    )


def _latent_of(fields: Mapping[str, Any]) -> LatentAttention | None:
    rank = fields.get("kv_lora_rank")
    if not rank:
        return None
    return LatentAttention(
        query_rank=fields.get("q_lora_rank"),
        key_value_rank=rank,
        plain_width=_positive(fields, "qk_nope_head_dim"),
        rotary_width=_positive(fields, "qk_rope_head_dim"),
        value_width=_positive(fields, "v_head_dim"),
    )


def _latent(hidden: int, heads: int, sizes: LatentAttention) -> int:
    query = heads * (sizes.plain_width + sizes.rotary_width)
    rank = sizes.query_rank
    queries = hidden * query if rank is None else hidden * rank + rank + rank * query
    compressed = hidden * (sizes.key_value_rank + sizes.rotary_width) + sizes.key_value_rank
    expanded = sizes.key_value_rank * heads * (sizes.plain_width + sizes.value_width)
    return queries + compressed + expanded + heads * sizes.value_width * hidden
