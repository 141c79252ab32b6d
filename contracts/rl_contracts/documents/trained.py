"""Rebuilds from documents the sequences that the learner trains, and their digest.

The trainer makes its tensors from these sequences and writes the digest into the batch document
before it trains them, so that an audit can rebuild the sequences later and compare.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from rl_contracts.documents.arrays import (
    ITEM_BYTES,
    count_int32,
    repeat_float32,
    repeat_int32,
)
from rl_contracts.documents.batch import (
    FIRST_TRAINED_FORMAT,
    TRAINED_FORMAT,
    Batch,
    BatchMember,
    TrainedDigest,
)
from rl_contracts.documents.rollout import ImageSpan, Rollout, TokenRange
from rl_contracts.documents.routing import CANONICAL_BYTES
from rl_contracts.errors import IntegrityError


class Hasher(Protocol):
    """Of hashlib."""

    def update(self, data: bytes, /) -> None:
        """Take more bytes."""


SEQUENCE_FORMAT = "rl-operator/sequence/1"
"""Names how a sequence of a rollout becomes a digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """A sequence of T tokens, G of them generated, as packed little-endian arrays.

    Example: prompt ``[5, 6]`` and response ``[7, 2]`` with advantage 0.5 are tokens
    ``[5, 6, 7, 2]``, positions ``[0, 1, 2, 3]``, mask ``0 0 1 1``, advantages ``[0.5, 0.5]``.
    """

    rollout: str
    group: str
    """Task of the group: sequences of a group are adjacent, and updates take whole groups."""
    temperature: float
    tokens: bytes
    """int32 ``[T]``, prompt included."""
    positions: bytes
    """int32 ``[T]``: position of each token, from 0 in each sequence."""
    mask: bytes
    """uint8 ``[T]``, 1 where the policy generated the token."""
    logprobs: bytes
    """float32 ``[T]``, log-probabilities of the sampler at ``temperature``; 0 where the mask is
    0."""
    policy_steps: bytes
    """int32 ``[T]``, training steps of the policy that generated the token; 0 where the mask is
    0."""
    advantages: bytes
    """float32 ``[G]``."""
    weights: bytes
    """float32 ``[G]``, factor of the token's loss."""
    returns: bytes = b""
    """float32 ``[G]``, targets of the critic; empty without a critic."""
    images: tuple[ImageSpan, ...] = ()
    """Images that it shows, by its own tokens."""
    token_advantages: bool = False
    """Each token has an advantage of its own, not all the same."""
    routing: bytes = b""
    """int16 ``[T, items]``, the engine's choices of experts, -1 where they are not known; empty
    where it was not asked for them."""

    @property
    def num_tokens(self) -> int:
        """T."""
        return len(self.mask)

    @property
    def num_generated(self) -> int:
        """G."""
        return self.mask.count(1)

    @property
    def sha256(self) -> str:
        """Digest of what its rollout alone decides; ``docs/guides/audit.md`` defines the bytes."""
        hasher = hashlib.sha256(f"{SEQUENCE_FORMAT}\n".encode())
        hasher.update(struct.pack("<IId", self.num_tokens, self.num_generated, self.temperature))
        for array in (self.tokens, self.positions, self.mask, self.logprobs, self.policy_steps):
            hasher.update(array)
        self._add_images(hasher)
        if self.routing:
            hasher.update(b"routing")
            hasher.update(self.routing)
        return hasher.hexdigest()

    def _add_images(self, hasher: Hasher) -> None:
        for image in self.images:
            hasher.update(b"image" + bytes.fromhex(image.sha256))
            hasher.update(struct.pack("<IIII", image.start, image.end, image.width, image.height))


def unweighted_sequences(rollout: Rollout) -> list[Sequence]:
    """A rollout's sequences with generated tokens, as no batch has given them an advantage yet.

    Raises:
        IntegrityError: the lengths of the arrays do not match.
    """
    return rollout_sequences(rollout, BatchMember(rollout=rollout.id, advantage=0.0))


def rollout_sequences(rollout: Rollout, member: BatchMember) -> list[Sequence]:
    """The sequences of a member that are trained: those with generated tokens.

    Raises:
        IntegrityError: the lengths of the arrays do not match.
    """
    generated, advantages = _generated(rollout), _advantages(rollout, member)
    routing, of_token = _routing(rollout)
    if len(member.token_returns) not in (0, ITEM_BYTES * generated):
        raise IntegrityError(
            f"rollout {rollout.id}: {len(member.token_returns) // ITEM_BYTES} returns for "
            f"{generated} generated tokens"
        )
    steps = _policy_steps(rollout)
    parts = []
    first = 0  # of the generated tokens
    for sequence in rollout.sequences:
        whole = slice(sequence.start, sequence.end)
        items = slice(ITEM_BYTES * sequence.start, ITEM_BYTES * sequence.end)
        mask = rollout.mask[whole]
        count = mask.count(1)
        chosen = slice(ITEM_BYTES * first, ITEM_BYTES * (first + count))
        first += count
        if count:
            parts.append(
                Sequence(
                    rollout=rollout.id,
                    group=rollout.task,
                    temperature=rollout.temperature,
                    tokens=rollout.tokens[items],
                    positions=count_int32(len(mask)),
                    mask=mask,
                    logprobs=rollout.logprobs[items],
                    policy_steps=steps[items],
                    advantages=advantages[chosen],
                    weights=repeat_float32(member.weight, count),
                    returns=member.token_returns[chosen],
                    images=_images(rollout, sequence),
                    token_advantages=bool(member.token_advantages),
                    routing=routing[of_token * sequence.start : of_token * sequence.end],
                )
            )
    assert first == generated
    return parts


def sequences(batch: Batch, rollouts: Mapping[str, Rollout]) -> list[Sequence]:
    """All trained sequences of a batch, in batch order.

    Raises:
        IntegrityError: a rollout is missing, or the lengths of its arrays do not match.
    """
    check_present(batch, rollouts)
    return [
        sequence
        for member in batch.members
        for sequence in rollout_sequences(rollouts[member.rollout], member)
    ]


def check_present(batch: Batch, rollouts: Container[str]) -> None:
    """Raise IntegrityError when a rollout of a batch is not among those of these ids."""
    missing = [member.rollout for member in batch.members if member.rollout not in rollouts]
    if missing:
        raise IntegrityError(
            f"batch {batch.id}: rollout {missing[0]} is not in the store "
            f"({len(missing)} of {len(batch.members)} are missing)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighted:
    """A sequence of a batch, with its digest in the place of its tokens."""

    group: str
    num_tokens: int
    num_generated: int
    sha256: str
    """See ``Sequence.sha256``."""
    advantages: bytes
    """float32: one of all generated tokens, or one of each."""
    weight: bytes
    """float32, factor of the loss of all its tokens."""
    returns: bytes = b""
    """float32 ``[num_generated]``; empty without a critic."""


Given = TypeVar("Given", Sequence, Weighted)


def digest(given: Iterable[Weighted]) -> TrainedDigest:
    """Digest of sequences in their order; ``docs/guides/audit.md`` defines the bytes."""
    return _digest(TRAINED_FORMAT, given, _add)


def _digest(
    name: str, given: Iterable[Given], add: Callable[[Hasher, Given, int], None]
) -> TrainedDigest:
    """Digest in a format of this name; ``add`` gets each sequence and the number of its group."""
    hasher = hashlib.sha256(f"{name}\n".encode())
    count = tokens = generated = 0
    groups: dict[str, int] = {}
    for sequence in given:
        add(hasher, sequence, groups.setdefault(sequence.group, len(groups)))
        count += 1
        tokens += sequence.num_tokens
        generated += sequence.num_generated
    return TrainedDigest(
        format=name,
        sha256=hasher.hexdigest(),
        sequences=count,
        tokens=tokens,
        generated=generated,
    )


def _add(hasher: Hasher, sequence: Weighted, group: int) -> None:
    advantages = len(sequence.advantages) // ITEM_BYTES
    numbers = (sequence.num_tokens, sequence.num_generated, group, advantages)
    hasher.update(struct.pack("<IIII", *numbers))
    hasher.update(bytes.fromhex(sequence.sha256))
    hasher.update(sequence.advantages)
    hasher.update(sequence.weight)
    if sequence.returns:
        hasher.update(b"returns")
        hasher.update(sequence.returns)


def rebuilt_digest(given: Iterable[Sequence], *, like: TrainedDigest | None) -> TrainedDigest:
    """Digest of whole sequences, in the format of the digest that it is to be compared with.

    Args:
        given: all sequences of a batch, in its order.
        like: what the batch recorded; the newest format is used if it is None or unknown.
    """
    if like is not None and like.format == FIRST_TRAINED_FORMAT:
        return _digest(FIRST_TRAINED_FORMAT, given, _add_in_first_format)
    return digest(_weighted(sequence) for sequence in given)


def _weighted(sequence: Sequence) -> Weighted:
    own = sequence.token_advantages
    return Weighted(
        group=sequence.group,
        num_tokens=sequence.num_tokens,
        num_generated=sequence.num_generated,
        sha256=sequence.sha256,
        advantages=sequence.advantages if own else sequence.advantages[:ITEM_BYTES],
        weight=sequence.weights[:ITEM_BYTES],
        returns=sequence.returns,
    )


def _add_in_first_format(hasher: Hasher, sequence: Sequence, group: int) -> None:
    hasher.update(
        struct.pack(
            "<IIId", sequence.num_tokens, sequence.num_generated, group, sequence.temperature
        )
    )
    for array in (
        sequence.tokens,
        sequence.positions,
        sequence.mask,
        sequence.logprobs,
        sequence.policy_steps,
        sequence.advantages,
        sequence.weights,
    ):
        hasher.update(array)
    if sequence.returns:
        hasher.update(b"returns")
        hasher.update(sequence.returns)
    sequence._add_images(hasher)
    if sequence.routing:
        hasher.update(b"routing")
        hasher.update(sequence.routing)


def check_digest(batch: Batch, rebuilt: TrainedDigest) -> None:
    """Compare rebuilt tensors with the digest that the batch recorded when it was trained.

    Raises:
        IntegrityError: the digests differ, or the recorded format is unknown to this release.
    """
    wanted = batch.digest
    if wanted is None:  # written by a release without digests
        return
    if wanted.format != rebuilt.format:
        raise IntegrityError(
            f"batch {batch.id} was trained in format {wanted.format}, this release knows "
            f"{rebuilt.format}"
        )
    if wanted.sha256 != rebuilt.sha256:
        raise IntegrityError(
            f"batch {batch.id} (step {batch.step}): its documents give tensors with digest "
            f"{rebuilt.sha256}, but trained were those with digest {wanted.sha256}"
        )


def _generated(rollout: Rollout) -> int:
    tokens, lengths = len(rollout.mask), (len(rollout.tokens), len(rollout.logprobs))
    if lengths != (ITEM_BYTES * tokens, ITEM_BYTES * tokens):
        raise IntegrityError(
            f"rollout {rollout.id}: {tokens} tokens by its mask, but {lengths[0]} bytes of tokens "
            f"and {lengths[1]} of log-probabilities"
        )
    borders = [sequence.end for sequence in rollout.sequences]
    if borders != sorted(borders) or min(borders) < 0:
        raise IntegrityError(
            f"rollout {rollout.id}: sequences start at {rollout.sequence_starts} of {tokens} tokens"
        )
    return rollout.mask.count(1)


def _advantages(rollout: Rollout, member: BatchMember) -> bytes:
    generated = rollout.mask.count(1)
    advantages = member.token_advantages or repeat_float32(member.advantage, generated)
    if len(advantages) != ITEM_BYTES * generated:
        raise IntegrityError(
            f"rollout {rollout.id}: {len(advantages) // ITEM_BYTES} advantages for {generated} "
            "generated tokens"
        )
    return advantages


def _images(rollout: Rollout, sequence: TokenRange) -> tuple[ImageSpan, ...]:
    """The images of a sequence, counted from its first token."""
    return tuple(
        image.model_copy(
            update={"start": image.start - sequence.start, "end": image.end - sequence.start}
        )
        for image in rollout.images
        if sequence.start <= image.start < sequence.end
    )


def _routing(rollout: Rollout) -> tuple[bytes, int]:
    """Choices of all tokens, and bytes of a token."""
    choices = rollout.routing
    if choices is None:
        return b"", 0
    size, packed = CANONICAL_BYTES * choices.items, choices.canonical
    if len(packed) != size * len(rollout.mask):
        raise IntegrityError(
            f"rollout {rollout.id}: choices of experts for {choices.tokens} of its "
            f"{len(rollout.mask)} tokens"
        )
    return packed, size


def _policy_steps(rollout: Rollout) -> bytes:
    tokens = len(rollout.mask)
    steps = bytearray(ITEM_BYTES * tokens)
    for span in rollout.spans:
        if not 0 <= span.start <= span.end <= tokens:
            raise IntegrityError(
                f"rollout {rollout.id}: its version span {span.start}..{span.end} leaves its "
                f"{tokens} tokens"
            )
        items = slice(ITEM_BYTES * span.start, ITEM_BYTES * span.end)
        steps[items] = repeat_int32(span.step, span.end - span.start)
    return bytes(steps)
