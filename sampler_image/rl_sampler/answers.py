"""Takes the answer out of a response."""

from __future__ import annotations

import re
from collections.abc import Callable

OPEN, CLOSE = "<answer>", "</answer>"
INNERMOST = re.compile(r"<answer>((?:(?!</?answer>).)*)</answer>", re.DOTALL)


def tagged_answer(response: str) -> str | None:
    """Text of the last ``<answer>…</answer>`` that holds no other tag; None where there is none."""
    found = INNERMOST.findall(response)
    return found[-1] if found else None


def whole_response(response: str) -> str | None:
    """The response as it is."""
    return response


ANSWERS: dict[str, Callable[[str], str | None]] = {
    "Answer": tagged_answer,
    "Raw": whole_response,
}
"""By the manifest's ``reward.answerSchema``."""
