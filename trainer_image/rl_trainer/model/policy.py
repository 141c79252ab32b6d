"""A policy: an unmodified transformers model with float32 masters, and how it computes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from rl_contracts.capacity.shape import longest_of
from rl_contracts.documents.manifest import AdapterEntry
from rl_trainer.algorithm.logprobs import (
    CHUNK_LOGITS,
    Head,
    TokenStatistics,
    measured_logprobs,
    token_logprobs,
    token_statistics,
)
from rl_trainer.algorithm.packing import Packed
from rl_trainer.algorithm.vocabulary import WHOLE, Vocabulary
from rl_trainer.distributed.context_ranks import ContextRanks
from rl_trainer.distributed.tensor_ranks import TensorRanks
from rl_trainer.model import memory, microbatch
from rl_trainer.model.attention import within_sequences
from rl_trainer.model.experts.routers import Routers
from rl_trainer.model.files.stored_weights import StoredWeights
from rl_trainer.model.parallel import sharding
from rl_trainer.model.quantization import Originals
from rl_trainer.model.usage import flops
from rl_trainer.model.vision import Vision, showing


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A causal language model, which may see images, and how it computes."""

    module: Any
    """transformers model; parameters are float32 and are the masters."""
    device: torch.device
    half: torch.dtype | None
    """Forward and backward in bfloat16 or float16 where that is safe (autocast); None: float32."""
    run_layers: Callable[..., Tensor] | None = None
    """Runs the layers where the parameters are divided among ranks."""
    offload: bool = False
    """What layers keep for the backward pass waits in host memory."""
    offload_parameters: bool = False
    """Parameters and gradients lie in host memory, but for those of the layer that runs."""
    adapter: AdapterEntry | None = None
    """Where adapters are trained instead of all weights: whose."""
    merges: bool = False
    """What is published are whole weights, with the adapters merged into them."""
    originals: Originals | None = None
    """Where frozen weights are quantized: what they were."""
    ranks: TensorRanks | None = None
    """Those that compute each layer together with this one; None where this one does so alone."""
    context: ContextRanks | None = None
    """Those that share each row of tokens with this one; None where this one has it alone."""
    stored: StoredWeights | None = None
    """The files that ``module``, which lies on ``meta``, is filled from; None: it is filled."""
    vision: Vision | None = None
    """What makes the model's images; None where it has no vision tower."""
    around: Callable[[Any], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
    """Given the module, what its layers are run in."""
    routers: Routers | None = None
    """Of its layers with experts, where they are watched."""

    @property
    def served_adapter(self) -> AdapterEntry | None:
        """Where adapters alone are published: whose."""
        return None if self.merges else self.adapter

    @property
    def vocabulary(self) -> int:
        """Number of token ids that the embedding holds."""
        return int(self.module.get_input_embeddings().weight.shape[0])

    @property
    def max_positions(self) -> int | None:
        """Longest sequence that the model was made for; None when its config does not say."""
        return longest_of(self.module.config.to_dict())

    @property
    def sequence_work(self) -> Callable[[int], int]:
        """How much work a sequence of so many tokens is, beside others."""
        return flops.sequence_work(microbatch.known_shape(self.module.config.to_dict()))

    @property
    def head(self) -> Head:
        """The output layer: logits of ``vocabulary_part``."""
        layer = self.module.get_output_embeddings()
        return layer if self.ranks is None else partial(_part_of_logits, layer, self.ranks)

    @property
    def vocabulary_part(self) -> Vocabulary:
        """The tokens whose logits this rank computes."""
        if self.ranks is None:
            return WHOLE
        first = self.ranks.rank * (self.vocabulary // self.ranks.size)
        return Vocabulary(first=first, ranks=self.ranks)

    def parameters(self) -> dict[str, torch.nn.Parameter]:
        """Trained parameters by name, tied ones once."""
        named = dict(self.module.named_parameters())
        return {name: parameter for name, parameter in named.items() if parameter.requires_grad}

    def states(self, packed: Packed) -> Tensor:
        """States that predict the generated tokens of ``own``, ``[n, H]``."""
        saving = memory.saving(self.device, offload=self.offload)
        with self.precision(), saving, self.around(self.module), self._routed(packed):
            hidden = (self.run_layers or partial(hidden_states, self.module))(
                packed=packed, context=self.context, vision=self.vision
            )
        return own_states(hidden, packed, self.context)

    def _routed(self, packed: Packed) -> contextlib.AbstractContextManager[None]:
        if self.routers is None:
            return contextlib.nullcontext()
        return self.routers.over(packed, self.context)

    def own(self, packed: Packed) -> slice:
        """Which of the N generated tokens this rank has the states of."""
        return own_tokens(packed, self.context)

    def _together(self, values: Tensor, packed: Packed) -> Tensor:
        """Numbers of all N tokens, of this rank's own."""
        if self.context is None:
            return values
        first, count = self.own(packed).start, len(packed.targets)
        return self.context.together(values, first=first, count=count)

    def _all_together(self, own: TokenStatistics, packed: Packed) -> TokenStatistics:
        entropies, divergences = own.entropies, own.divergences
        return TokenStatistics(
            logprobs=self._together(own.logprobs, packed),
            entropies=None if entropies is None else self._together(entropies, packed),
            divergences=None if divergences is None else self._together(divergences, packed),
        )

    def token_logprobs(
        self, packed: Packed, *, temperature: float, states: Tensor | None = None
    ) -> Tensor:
        """Log-probability of each generated token, float32 ``[N]``, differentiable.

        Args:
            packed: the tokens.
            temperature: > 0, of the distribution.
            states: of ``own``, where they are known.
        """
        hidden = self.states(packed) if states is None else states
        with self.precision():
            logprobs = token_logprobs(
                hidden,
                packed.targets[self.own(packed)],
                head=self.head,
                temperature=temperature,
                chunk_tokens=self.chunk_tokens,
                vocabulary=self.vocabulary_part,
            )
        return self._together(logprobs, packed)

    def measured_logprobs(
        self, packed: Packed, *, temperature: float, states: Tensor | None = None
    ) -> TokenStatistics:
        """As ``token_logprobs``, with the entropies, which have no gradient."""
        hidden = self.states(packed) if states is None else states
        with self.precision():
            measured = measured_logprobs(
                hidden,
                packed.targets[self.own(packed)],
                head=self.head,
                temperature=temperature,
                chunk_tokens=self.chunk_tokens,
                vocabulary=self.vocabulary_part,
            )
        return self._all_together(measured, packed)

    def token_statistics(
        self,
        packed: Packed,
        *,
        temperature: float,
        states: Tensor | None = None,
        reference: tuple[Policy, Tensor] | None = None,
        trains_entropy: bool = True,
    ) -> TokenStatistics:
        """Log-probabilities, entropies and, given a reference, divergences over the vocabulary.

        Args:
            packed: the tokens.
            temperature: > 0, of the distributions.
            states: of ``own``, where they are known.
            reference: it and its states of ``own``.
            trains_entropy: as of ``logprobs.token_statistics``.
        """
        hidden = self.states(packed) if states is None else states
        other = None
        if reference is not None:
            other = (reference[1], reference[0].head)
        with self.precision():
            statistics = token_statistics(
                hidden,
                packed.targets[self.own(packed)],
                head=self.head,
                temperature=temperature,
                chunk_tokens=self.chunk_tokens_of_statistics,
                reference=other,
                trains_entropy=trains_entropy,
                vocabulary=self.vocabulary_part,
            )
        return self._all_together(statistics, packed)

    @property
    def chunk_tokens(self) -> int:
        """Tokens whose logits are held at a time."""
        held = self.vocabulary // (1 if self.ranks is None else self.ranks.size)
        return max(1, CHUNK_LOGITS // held)

    @property
    def chunk_tokens_of_statistics(self) -> int:
        """The same where probabilities and their logs live beside the logits."""
        return max(1, self.chunk_tokens // 3)

    def precision(self) -> contextlib.AbstractContextManager[object]:
        """In which its layers are to be run."""
        if self.half is not None:
            return torch.autocast(self.device.type, dtype=self.half)
        return contextlib.nullcontext()


def hidden_states(
    module: Any,
    *,
    packed: Packed,
    context: ContextRanks | None = None,
    vision: Vision | None = None,
) -> Tensor:
    """Of the last layer of a causal model, as ``run_row``."""
    if vision is not None:
        return run_row_with_images(module.base_model, packed, vision)
    return run_row(module.base_model, packed, context)


def run_row_with_images(layers: Any, packed: Packed, vision: Vision) -> Tensor:
    """Of the last layer of a model that sees images, ``[1, T, H]``; on one rank."""
    given = vision.inputs(layers, packed)
    with within_sequences.packed(packed.lengths), showing(packed):
        hidden: Tensor = layers(input_ids=packed.tokens, use_cache=False, **given).last_hidden_state
    return hidden


def run_row(layers: Any, packed: Packed, context: ContextRanks | None) -> Tensor:
    """Of the last layer, ``[1, T, H]``; ``[1, t, H]`` for the tokens of this rank of several."""
    tokens, positions, lengths = packed.tokens, packed.positions, packed.lengths
    if context is not None:
        tokens, lengths = context.part(tokens), context.lengths(lengths)
        positions = context.part(positions)
    with within_sequences.packed(lengths, context):
        hidden: Tensor = layers(
            input_ids=tokens, position_ids=positions, use_cache=False
        ).last_hidden_state
    return hidden


def own_tokens(packed: Packed, context: ContextRanks | None) -> slice:
    """Which of the N generated tokens have their states on this rank: neighbours in a row."""
    if context is None:
        return slice(0, len(packed.targets))
    borders = torch.tensor(context.span(packed.tokens.shape[1]), device=packed.sources.device)
    first, last = torch.searchsorted(packed.sources, borders).tolist()
    return slice(first, last)


def own_states(hidden: Tensor, packed: Packed, context: ContextRanks | None) -> Tensor:
    """States that predict the generated tokens of this rank, ``[n, H]``."""
    sources = packed.sources[own_tokens(packed, context)]
    if context is not None:
        sources = sources - context.span(packed.tokens.shape[1])[0]
    return hidden.flatten(0, 1)[sources]


def _part_of_logits(layer: Any, ranks: TensorRanks, hidden: Tensor) -> Tensor:
    """Logits of the tokens whose rows this rank holds; states get all ranks' gradients."""
    bias = None if layer.bias is None else sharding.part(layer.bias)
    return functional.linear(ranks.shared(hidden), sharding.part(layer.weight), bias)
