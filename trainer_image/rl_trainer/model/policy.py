"""A policy: an unmodified transformers model with float32 masters, and how it computes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
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
from rl_trainer.distributed.tensor_ranks import TensorRanks
from rl_trainer.model import attention, flops, memory, microbatch, sharding
from rl_trainer.model.quantization import Originals


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A causal language model and how it computes."""

    module: Any
    """transformers model; parameters are float32 and are the masters."""
    device: torch.device
    bf16: bool
    """Forward and backward in bfloat16 where that is safe (autocast)."""
    run_layers: Callable[..., Tensor] | None = None
    """Runs the layers where the parameters are divided among ranks."""
    offload: bool = False
    """What layers keep for the backward pass waits in host memory."""
    offload_parameters: bool = False
    """Parameters and gradients lie in host memory, but for those of the layer that runs."""
    adapter: AdapterEntry | None = None
    """Where adapters are trained instead of all weights: whose."""
    originals: Originals | None = None
    """Where frozen weights are quantized: what they were."""
    ranks: TensorRanks | None = None
    """Those that compute each layer together with this one; None where this one does so alone."""
    around: Callable[[Any], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
    """Given the module, what its layers are run in."""

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
        if self.adapter is None:
            return named
        return {name: parameter for name, parameter in named.items() if parameter.requires_grad}

    def states(self, packed: Packed) -> Tensor:
        """States that predict the generated tokens, ``[N, H]``."""
        saving = memory.saving(self.device, offload=self.offload)
        with self.precision(), saving, self.around(self.module):
            hidden = (self.run_layers or partial(hidden_states, self.module))(
                input_ids=packed.tokens, position_ids=packed.positions, lengths=packed.lengths
            )
        return hidden.flatten(0, 1)[packed.sources]

    def token_logprobs(
        self, packed: Packed, *, temperature: float, states: Tensor | None = None
    ) -> Tensor:
        """Log-probability of each generated token, float32 ``[N]``, differentiable.

        Args:
            packed: the tokens.
            temperature: > 0, of the distribution.
            states: of these tokens, where they are known.
        """
        hidden = self.states(packed) if states is None else states
        with self.precision():
            return token_logprobs(
                hidden,
                packed.targets,
                head=self.head,
                temperature=temperature,
                chunk_tokens=self.chunk_tokens,
                vocabulary=self.vocabulary_part,
            )

    def measured_logprobs(
        self, packed: Packed, *, temperature: float, states: Tensor | None = None
    ) -> TokenStatistics:
        """As ``token_logprobs``, with the entropies, which have no gradient."""
        hidden = self.states(packed) if states is None else states
        with self.precision():
            return measured_logprobs(
                hidden,
                packed.targets,
                head=self.head,
                temperature=temperature,
                chunk_tokens=self.chunk_tokens,
                vocabulary=self.vocabulary_part,
            )

    def token_statistics(
        self,
        packed: Packed,
        *,
        temperature: float,
        states: Tensor | None = None,
        reference: tuple[Policy, Tensor] | None = None,
    ) -> TokenStatistics:
        """Log-probabilities, entropies and, given a reference, divergences over the vocabulary.

        Args:
            packed: the tokens.
            temperature: > 0, of the distributions.
            states: of these tokens, where they are known.
            reference: it and its states of these tokens.
        """
        hidden = self.states(packed) if states is None else states
        other = None
        if reference is not None:
            other = (reference[1], reference[0].head)
        with self.precision():
            return token_statistics(
                hidden,
                packed.targets,
                head=self.head,
                temperature=temperature,
                chunk_tokens=self.chunk_tokens_of_statistics,
                reference=other,
                vocabulary=self.vocabulary_part,
            )

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
        if self.bf16:
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return contextlib.nullcontext()


def hidden_states(
    module: Any, *, input_ids: Tensor, position_ids: Tensor, lengths: Sequence[int]
) -> Tensor:
    """Of the last layer, ``[1, T, H]``, for a row of sequences of these lengths."""
    with attention.packed(lengths):
        hidden: Tensor = module.base_model(
            input_ids=input_ids, position_ids=position_ids, use_cache=False
        ).last_hidden_state
    return hidden


def _part_of_logits(layer: Any, ranks: TensorRanks, hidden: Tensor) -> Tensor:
    """Logits of the tokens whose rows this rank holds; states get all ranks' gradients."""
    bias = None if layer.bias is None else sharding.part(layer.bias)
    return functional.linear(ranks.shared(hidden), sharding.part(layer.weight), bias)
