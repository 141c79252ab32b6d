"""Responses of an earlier attempt, given to a program that asks for the same again.

A program that promises to repeat its requests is started again where its sampler died. A request
whose context is that of a stored response, to the token, is answered with it: the policy sampled it
there, so it is data as it was. Any other request is sampled.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from rl_contracts.documents.arrays import unpack_float32, unpack_int32
from rl_contracts.documents.rollout import Rollout, StopReason, moved
from rl_sampler.agents.trace import SampledResponse


class Past:
    """The responses of one stored rollout, each of which is given once."""

    def __init__(self, saved: Rollout | None = None, *, stop_tokens: Sequence[int] = ()) -> None:
        """Take what was saved.

        Args:
            saved: by an earlier attempt; None: there is nothing.
            stop_tokens: that end a response.
        """
        self.continues = saved.id if saved is not None else ""
        self.given = 0
        """Responses that were given again."""
        self._stops = frozenset(stop_tokens)
        self._left: dict[bytes, list[SampledResponse]] = {}
        if saved is not None and saved.routing is None:
            for context, response in _responses(saved):
                self._left.setdefault(context, []).append(response)

    def take(self, context: Sequence[int], *, longest: int) -> SampledResponse | None:
        """The stored response to a context; None where there is none that this request could have.

        Args:
            context: token ids of the request.
            longest: most tokens of the response.
        """
        if not self._left:
            return None  # without a copy of the context
        waiting = self._left.get(array("i", context).tobytes(), [])
        for response in waiting:
            if self._fits(response, longest):
                waiting.remove(response)
                self.given += 1
                return response
        return None

    def _fits(self, response: SampledResponse, longest: int) -> bool:
        """Whether the response ended as one to this request ends: by a token, or at its limit."""
        if response.reason is StopReason.LENGTH:
            return len(response.tokens) == longest
        return len(response.tokens) <= longest and response.tokens[-1] in self._stops


def _responses(saved: Rollout) -> list[tuple[bytes, SampledResponse]]:
    """Each response with its context, as int32."""
    tokens, logprobs = unpack_int32(saved.tokens), unpack_float32(saved.logprobs)
    listed = []
    for turn in saved.turns:
        start, end = turn.response.start, turn.response.end
        sequence = max((at for at in saved.sequence_starts if at <= start), default=0)
        spans = moved(
            (span for span in saved.spans if start <= span.start and span.end <= end), by=-start
        )
        response = SampledResponse(
            tokens=array("i", tokens[start:end]),
            logprobs=array("d", logprobs[start:end]),
            spans=spans,
            reason=turn.stop_reason,
        )
        listed.append((array("i", tokens[sequence:start]).tobytes(), response))
    return listed
