"""Rollouts as the learner takes them: unpacked, checked, with an advantage."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from rl_contracts.documents import trained
from rl_contracts.documents.arrays import ITEM_BYTES
from rl_contracts.documents.batch import Batch, BatchMember, TrainedDigest
from rl_contracts.documents.rollout import ImageSpan, Rollout, TokenRange, VersionSpan
from rl_contracts.images.placeholders import Placeholders

INT32, FLOAT32 = "<i4", "<f4"


class Source(Protocol):
    """Reads tokens that were left out."""

    def read(self, samples: Sequence[Sample]) -> list[Sample]:
        """The same samples with their tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """What is known of a sample whose tokens were left out: its rollout in the store has them."""

    sequence: int
    """Which of the rollout's trained sequences it is, from 0."""
    length: int
    """Tokens, prompt included."""
    generated: int
    sha256: str
    """Of the arrays that were left out."""
    source: Source | None = None
    """Set by the rank that received it."""


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
    unread: Unread | None = None
    """Set where ``tokens``, ``mask``, ``logprobs`` and ``policy_steps`` were left out."""

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


ARRAYS = ("tokens", "mask", "logprobs", "policy_steps")


def without_tokens(samples: Iterable[Sample]) -> list[Sample]:
    """Samples of whole rollouts in the store, for ranks that read the tokens of their share."""
    seen: Counter[str] = Counter()
    left = []
    for sample in samples:
        unread = Unread(
            sequence=seen[sample.rollout],
            length=len(sample),
            generated=sample.num_generated,
            sha256=sha256_of_tokens(sample),
        )
        seen[sample.rollout] += 1
        left.append(
            replace(
                sample,
                tokens=torch.zeros(0, dtype=torch.int64),
                mask=torch.zeros(0, dtype=torch.bool),
                logprobs=torch.zeros(0, dtype=torch.float32),
                policy_steps=torch.zeros(0, dtype=torch.int32),
                unread=unread,
            )
        )
    return left


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


def sha256_of_tokens(sample: Sample) -> str:
    """Digest of the arrays that ``without_tokens`` leaves out."""
    hasher = hashlib.sha256()
    for name in ARRAYS:
        hasher.update(getattr(sample, name).numpy().tobytes())
    return hasher.hexdigest()


def sequences(rollout: Rollout, *, advantage: float = 0.0, weight: float = 1.0) -> list[Sample]:
    """Unpack a rollout in which ``fault`` finds nothing: its sequences, all with one advantage.

    A sequence in which nothing was generated has nothing to train and is left out.
    """
    return _samples(rollout, BatchMember(rollout=rollout.id, advantage=advantage, weight=weight))


def batch_samples(batch: Batch, rollouts: dict[str, Rollout]) -> list[Sample]:
    """The samples of a batch, in its order; raises IntegrityError where one is missing."""
    trained.check_present(batch, rollouts)
    return [
        sample for member in batch.members for sample in _samples(rollouts[member.rollout], member)
    ]


def digest(samples: Iterable[Sample]) -> TrainedDigest:
    """Digest of the tensors of samples, in their order."""
    return trained.digest(_sequence(sample) for sample in samples)


def _samples(rollout: Rollout, member: BatchMember) -> list[Sample]:
    return [
        Sample(
            tokens=_tensor(sequence.tokens, INT32, torch.int64),
            mask=_tensor(sequence.mask, "u1", torch.bool),
            logprobs=_tensor(sequence.logprobs, FLOAT32, torch.float32),
            temperature=sequence.temperature,
            policy_steps=_tensor(sequence.policy_steps, INT32, torch.int32),
            rollout=sequence.rollout,
            group=sequence.group,
            advantage=member.advantage,
            weight=member.weight,
            token_advantages=_tensor(sequence.advantages, FLOAT32, torch.float32)
            if member.token_advantages
            else None,
            returns=_tensor(sequence.returns, FLOAT32, torch.float32) if sequence.returns else None,
            images=sequence.images,
        )
        for sequence in trained.rollout_sequences(rollout, member)
    ]


def _sequence(sample: Sample) -> trained.Sequence:
    return trained.Sequence(
        rollout=sample.rollout,
        group=sample.group,
        temperature=sample.temperature,
        tokens=_bytes(sample.tokens, INT32),
        positions=_bytes(torch.arange(len(sample)), INT32),
        mask=_bytes(sample.mask, "u1"),
        logprobs=_bytes(sample.logprobs, FLOAT32),
        policy_steps=_bytes(sample.policy_steps, INT32),
        advantages=_bytes(sample.advantages, FLOAT32),
        weights=_bytes(torch.full((sample.num_generated,), sample.weight), FLOAT32),
        returns=b"" if sample.returns is None else _bytes(sample.returns, FLOAT32),
        images=sample.images,
    )


def _tensor(packed: bytes, kind: str, dtype: torch.dtype) -> Tensor:
    return torch.from_numpy(np.frombuffer(packed, dtype=kind).copy()).to(dtype)


def _bytes(tensor: Tensor, kind: str) -> bytes:
    return tensor.numpy().astype(kind).tobytes()


def fault(
    rollout: Rollout,
    *,
    vocabulary: int,
    max_tokens: int,
    placeholders: Placeholders | None = None,
) -> str:
    """What makes a rollout unusable; empty when nothing does.

    Args:
        rollout: as a sampler wrote it.
        vocabulary: number of token ids that the model knows.
        max_tokens: longest sequence that the model and a microbatch hold.
        placeholders: of images; None where the model sees none.
    """
    if rollout.error is not None:
        return f"it ended with an error: {rollout.error.message}"
    arrays = (rollout.tokens, rollout.logprobs)
    if any(len(array) != ITEM_BYTES * len(rollout.mask) for array in arrays):
        return "tokens, mask and log-probabilities differ in length"
    if not 1 <= rollout.num_generated < rollout.num_tokens:
        return "it holds no prompt or no generated token"
    if set(rollout.mask) - {0, 1}:
        return "its mask has entries other than 0 and 1"
    wrong = _sequence_fault(rollout, max_tokens=max_tokens)
    if wrong:
        return wrong
    wrong = _value_fault(rollout, vocabulary=vocabulary)
    if wrong:
        return wrong
    return _image_fault(rollout, placeholders) or _cover_fault(rollout)


def _image_fault(rollout: Rollout, placeholders: Placeholders | None) -> str:
    if not rollout.images:
        return ""
    if placeholders is None:
        return "it shows images, and the model sees none"
    tokens = np.frombuffer(rollout.tokens, INT32)
    at = 0
    for image in rollout.images:
        inside = any(
            sequence.start <= image.start < image.end <= sequence.end
            for sequence in rollout.sequences
        )
        side, count = placeholders.side, image.end - image.start
        fits = image.width % side == image.height % side == 0
        if not inside or image.start < at or not fits or any(rollout.mask[image.start : image.end]):
            return "an image is not within what a sequence was shown"
        if (image.width // side) * (image.height // side) != count:
            return f"{count} tokens stand for an image of {image.width} x {image.height} pixels"
        if (tokens[image.start : image.end] != placeholders.token).any():
            return "tokens that stand for an image are not its placeholders"
        at = image.end
    return ""


def _value_fault(rollout: Rollout, *, vocabulary: int) -> str:
    tokens = np.frombuffer(rollout.tokens, INT32)
    if tokens.min() < 0 or tokens.max() >= vocabulary:
        return f"it holds a token outside the vocabulary of {vocabulary}"
    logprobs = np.frombuffer(rollout.logprobs, FLOAT32)
    if not np.isfinite(logprobs).all() or logprobs.max() > 1e-3:
        return "it holds a log-probability that is positive or not finite"
    if not math.isfinite(rollout.reward):
        return f"its reward is {rollout.reward}"
    return ""


def _sequence_fault(rollout: Rollout, *, max_tokens: int) -> str:
    for sequence in rollout.sequences:
        if not 0 <= sequence.start < sequence.end <= rollout.num_tokens:
            return f"its sequences start at {rollout.sequence_starts}"
        if rollout.mask[sequence.start] != 0:
            return "a sequence starts with a generated token"
        length = sequence.end - sequence.start
        if length > max_tokens:
            return f"it holds a sequence of {length} tokens, more than the {max_tokens} that fit"
    return ""


def _cover_fault(rollout: Rollout) -> str:
    if not _covered(rollout, rollout.spans):
        return "its version spans do not cover exactly its generated tokens"
    if rollout.turns and not _covered(rollout, [turn.response for turn in rollout.turns]):
        return "its turns do not cover exactly its generated tokens"
    return ""


def _covered(rollout: Rollout, spans: Sequence[VersionSpan | TokenRange]) -> bool:
    spanned = bytearray(rollout.num_tokens)
    for span in spans:
        if not 0 <= span.start <= span.end <= rollout.num_tokens:
            return False
        if any(spanned[span.start : span.end]):
            return False
        spanned[span.start : span.end] = b"\1" * (span.end - span.start)
    return bytes(spanned) == rollout.mask
