"""Rollouts as the learner takes them: planned from their heads, then read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from rl_contracts.documents import trained
from rl_contracts.documents.arrays import ITEM_BYTES, pack_float32
from rl_contracts.documents.batch import Batch, BatchMember, TrainedDigest
from rl_contracts.documents.head import RolloutHead
from rl_contracts.documents.rollout import ImageSpan, Rollout
from rl_contracts.errors import IntegrityError

INT16, INT32, FLOAT32 = "<i2", "<i4", "<f4"


class Source(Protocol):
    """Reads the tokens of samples."""

    def read(self, samples: Sequence[Sample]) -> list[Sample]:
        """The same samples with their tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """What is known of a sample whose tokens were not read: its rollout in the store has them."""

    sequence: int
    """Which of the rollout's trained sequences it is, from 0."""
    length: int
    """Tokens, prompt included."""
    generated: int
    sha256: str
    """See ``trained.Sequence.sha256``."""
    head: str
    """Digest of the rollout's head, from which the step was planned."""
    source: Source | None = None
    """Set by the rank that is to read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One sequence of T tokens, prompt included; several stretches of it may be generated.

    Example: prompt ``[5, 6]`` and response ``[7, 2]`` are ``tokens = [5, 6, 7, 2]``,
    ``mask = [0, 0, 1, 1]``, ``logprobs = [0, 0, -0.3, -0.1]``.
    """

    tokens: Tensor
    """int64."""
    mask: Tensor
    """bool, true where the policy generated the token; never at the first."""
    logprobs: Tensor
    """float32, the sampler's own at ``temperature``; 0 where the mask is false."""
    temperature: float
    policy_steps: Tensor
    """int32, training steps of the policy that generated the token; 0 where the mask is false."""
    rollout: str = ""
    """Its id, for messages."""
    group: str = ""
    """Its task's id."""
    advantage: float = 0.0
    """Of all generated tokens, where they have none of their own."""
    weight: float = 1.0
    token_advantages: Tensor | None = None
    """float32 ``[num_generated]``."""
    returns: Tensor | None = None
    """float32 ``[num_generated]``: what the critic is trained to predict."""
    values: Tensor | None = None
    """float32 ``[num_generated]``: what it predicted before the step, where it was asked."""
    proximal: Tensor | None = None
    """float32 ``[num_generated]``: log-probabilities before the step, where they were computed."""
    reference: Tensor | None = None
    """float32 ``[num_generated]``: the reference's log-probabilities, where they were computed."""
    images: tuple[ImageSpan, ...] = ()
    """Which tokens stand for images, ascending."""
    choices: Tensor | None = None
    """int16 ``[T, layers * experts of a token]``: the engine's choices of experts, -1 where they
    are not known; None where it was not asked for them."""
    unread: Unread | None = None
    """Set while ``tokens``, ``mask``, ``logprobs`` and ``policy_steps`` were not read."""

    @property
    def num_generated(self) -> int:
        """Generated tokens."""
        return int(self.mask.sum()) if self.unread is None else self.unread.generated

    @property
    def advantages(self) -> Tensor:
        """Of each generated token, float32 ``[num_generated]``."""
        if self.token_advantages is not None:
            return self.token_advantages
        return torch.full((self.num_generated,), self.advantage, dtype=torch.float32)

    def __len__(self) -> int:
        """Tokens, prompt included."""
        return len(self.tokens) if self.unread is None else self.unread.length


NO_TOKENS: dict[str, Any] = {
    "tokens": torch.zeros(0, dtype=torch.int64),
    "mask": torch.zeros(0, dtype=torch.bool),
    "logprobs": torch.zeros(0, dtype=torch.float32),
    "policy_steps": torch.zeros(0, dtype=torch.int32),
}
"""The arrays of a sample that was not read; shared, so that many of them are sent as one."""
ARRAYS = tuple(NO_TOKENS)
READ = (*ARRAYS, "images", "choices")
"""Fields of a sample that are set when it is read."""


def with_tokens(samples: Sequence[Sample], indices: Iterable[int]) -> list[Sample]:
    """The samples, those at some indices with their tokens; raises what their source raises."""
    present = list(samples)
    missing = [index for index in indices if present[index].unread is not None]
    if not missing:
        return present
    unread = present[missing[0]].unread
    assert unread is not None
    assert unread.source is not None, "nothing can read these samples"
    read = unread.source.read([present[index] for index in missing])
    for index, sample in zip(missing, read, strict=True):
        present[index] = sample
    return present


def sequences(rollout: Rollout) -> list[Sample]:
    """The sequences of a rollout in which ``fault`` finds nothing, without an advantage.

    A sequence in which nothing was generated has nothing to train and is left out.
    """
    return [
        Sample(
            tokens=_tensor(sequence.tokens, INT32, torch.int64),
            mask=_tensor(sequence.mask, "u1", torch.bool),
            logprobs=_tensor(sequence.logprobs, FLOAT32, torch.float32),
            temperature=sequence.temperature,
            policy_steps=_tensor(sequence.policy_steps, INT32, torch.int32),
            rollout=sequence.rollout,
            group=sequence.group,
            images=sequence.images,
            choices=_tensor(sequence.routing, INT16, torch.int16).reshape(sequence.num_tokens, -1)
            if sequence.routing
            else None,
        )
        for sequence in trained.unweighted_sequences(rollout)
    ]


def unread(head: RolloutHead) -> list[Sample]:
    """The sequences of a rollout, without tokens and without an advantage."""
    return _unread(head, BatchMember(rollout=head.id, advantage=0.0))


def batch_samples(batch: Batch, heads: Mapping[str, RolloutHead]) -> list[Sample]:
    """The samples of a batch without their tokens, in its order.

    Raises:
        IntegrityError: a rollout is missing, or has not as many tokens as the batch says.
    """
    trained.check_present(batch, heads)
    return [sample for member in batch.members for sample in _unread(heads[member.rollout], member)]


def digest(samples: Iterable[Sample]) -> TrainedDigest:
    """Digest of samples without tokens, in their order."""
    return trained.digest(_weighted(sample) for sample in samples)


def _unread(head: RolloutHead, member: BatchMember) -> list[Sample]:
    advantages = _of_each_token(head, member.token_advantages, "advantages")
    returns = _of_each_token(head, member.token_returns, "returns")
    planned, first, head_sha256 = [], 0, head.sha256
    for number, sequence in enumerate(head.summary.sequences):
        part = slice(first, first + sequence.generated)
        first += sequence.generated
        planned.append(
            Sample(
                **NO_TOKENS,
                temperature=head.temperature,
                rollout=head.id,
                group=head.task,
                advantage=member.advantage,
                weight=member.weight,
                token_advantages=None if advantages is None else advantages[part],
                returns=None if returns is None else returns[part],
                unread=Unread(
                    sequence=number,
                    length=sequence.length,
                    generated=sequence.generated,
                    sha256=sequence.sha256,
                    head=head_sha256,
                ),
            )
        )
    return planned


def _of_each_token(head: RolloutHead, packed: bytes, what: str) -> Tensor | None:
    if not packed:
        return None
    if len(packed) != ITEM_BYTES * head.num_generated:
        raise IntegrityError(
            f"rollout {head.id}: {len(packed) // ITEM_BYTES} {what} for {head.num_generated} "
            "generated tokens"
        )
    return _tensor(packed, FLOAT32, torch.float32)


def _weighted(sample: Sample) -> trained.Weighted:
    assert sample.unread is not None, "a batch names its sequences by the digests in their heads"
    advantages = sample.token_advantages
    return trained.Weighted(
        group=sample.group,
        num_tokens=sample.unread.length,
        num_generated=sample.unread.generated,
        sha256=sample.unread.sha256,
        advantages=(
            pack_float32([sample.advantage]) if advantages is None else _bytes(advantages, FLOAT32)
        ),
        weight=pack_float32([sample.weight]),
        returns=b"" if sample.returns is None else _bytes(sample.returns, FLOAT32),
    )


def _tensor(packed: bytes, kind: str, dtype: torch.dtype) -> Tensor:
    return torch.from_numpy(np.frombuffer(packed, dtype=kind).copy()).to(dtype)


def _bytes(tensor: Tensor, kind: str) -> bytes:
    return tensor.numpy().astype(kind).tobytes()
