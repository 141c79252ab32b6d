"""What makes a rollout unusable: as its head shows it, and as its arrays do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rl_contracts.documents.arrays import ITEM_BYTES
from rl_contracts.documents.head import RolloutHead
from rl_contracts.documents.rollout import Rollout, TokenRange, VersionSpan
from rl_contracts.documents.routing import Routing
from rl_contracts.images.placeholders import Placeholders

INT16, INT32, FLOAT32 = "<i2", "<i4", "<f4"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What choices of experts must be, so that a model can be trained with them."""

    items: int
    """Of a token: layers times experts of a token."""
    experts: int
    """Of a layer."""


def head_fault(head: RolloutHead, *, max_tokens: int) -> str:
    """What makes a rollout unusable, as far as its head shows it; empty when nothing does.

    Args:
        head: of a rollout as a sampler wrote it.
        max_tokens: longest sequence that the model and a microbatch hold.
    """
    if head.error is not None:
        return f"it ended with an error: {head.error.message}"
    parts, turns = head.summary.sequences, head.summary.turns
    if not parts or any(not 1 <= part.generated < part.length for part in parts):
        return "it holds no prompt or no generated token"
    if any(turn.generated < 0 for turn in turns) or head.num_generated != sum(
        turn.generated for turn in turns
    ):
        return "its turns do not cover exactly its generated tokens"
    if any(turn.generated == 0 for turn in turns):
        return "one of its turns has no generated token, to which its reward could be given"
    longest = max(part.length for part in parts)
    if longest > max_tokens:
        return f"it holds a sequence of {longest} tokens, more than the {max_tokens} that fit"
    if not math.isfinite(head.reward):
        return f"its reward is {head.reward}"
    return ""


def fault(
    rollout: Rollout,
    *,
    vocabulary: int,
    max_tokens: int,
    placeholders: Placeholders | None = None,
    replayed: Replayed | None = None,
) -> str:
    """What makes a rollout unusable; empty when nothing does.

    Args:
        rollout: as a sampler wrote it.
        vocabulary: number of token ids that the model knows.
        max_tokens: longest sequence that the model and a microbatch hold.
        placeholders: of images; None where the model sees none.
        replayed: where the engine's choices of experts are trained.
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
    if replayed is not None and (wrong := _routing_fault(rollout, rollout.routing, replayed)):
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


def _routing_fault(rollout: Rollout, routing: Routing | None, replayed: Replayed) -> str:
    """Choices must be known of each token but the last ones of sequences, which predict none."""
    if routing is None:
        return (
            "it holds no choices of experts, which algorithm.experts.routing Replay needs: the "
            "engine did not return them"
        )
    size = routing.items * routing.item_bytes
    if routing.items != replayed.items or len(routing.data) != size * rollout.num_tokens:
        return (
            f"its choices of experts are {routing.items} numbers for {routing.tokens} tokens, not "
            f"{replayed.items} for {rollout.num_tokens}"
        )
    chosen = np.frombuffer(routing.canonical, INT16).reshape(-1, routing.items)
    if chosen.max() >= replayed.experts:
        return f"it holds a choice of expert {chosen.max()} of {replayed.experts}"
    unknown = set(np.flatnonzero((chosen < 0).any(axis=1)).tolist())
    unknown -= {sequence.end - 1 for sequence in rollout.sequences}
    if unknown:
        return f"it holds no choices of experts for its token {min(unknown)}"
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
