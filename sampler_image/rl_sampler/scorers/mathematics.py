"""Scorer ``Math``: compares answers as mathematics, in the container ``code``."""

from __future__ import annotations

from rl_sampler.code.client import CodeContainer, CodeContainerError
from rl_sampler.code.math_checker import PROCESSOR_SECONDS
from rl_sampler.code.replies import Compared
from rl_sampler.scorers.response import Response, ScoringError

MAX_CHARACTERS = 2000
"""Of an answer; a longer one is wrong."""
ANSWER_SECONDS = 1800.0
"""For a comparison with all those that wait before it."""


class MathScorer:
    """Compares with the reference by value."""

    def __init__(self, code: CodeContainer, *, seconds: float = PROCESSOR_SECONDS) -> None:
        """Compare in this container, with so many seconds of processor time for each answer."""
        self._code, self._seconds = code, seconds

    async def __call__(self, response: Response) -> float:
        """1 where answer and reference have the same value, else 0.

        Fractions, decimals, per cent, sets, intervals, equations and rearranged terms are compared
        by their value. Units and words around an expression are ignored. An answer that is too
        long or too hard to compare is wrong.

        Raises:
            ScoringError: the comparison failed.
        """
        answer = response.answer
        if answer is None or not answer.strip() or len(answer) > MAX_CHARACTERS:
            return 0.0
        if answer == response.reference:
            return 1.0
        request = {
            "call": "compare",
            "reference": response.reference,
            "answer": answer,
            "seconds": self._seconds,
        }
        try:
            compared = await self._code.ask(request, Compared, seconds=ANSWER_SECONDS)
        except (CodeContainerError, TimeoutError) as error:
            raise ScoringError(f"two answers could not be compared: {error}") from error
        if compared.failure is not None:
            raise ScoringError(compared.failure.message)
        return float(compared.same)
