"""Takes the answer out of a response."""

from __future__ import annotations

import re
from collections.abc import Callable

OPEN, CLOSE = "<answer>", "</answer>"
FINAL = "Final Answer:"
BRACES = re.compile(r"\\(?:boxed|fbox)\s*\{|\\.|[{}]", re.DOTALL)
INNERMOST = re.compile(r"<answer>((?:(?!</?answer>).)*)</answer>", re.DOTALL)


def tagged_answer(response: str) -> str | None:
    """Text of the last ``<answer>…</answer>`` that holds no other tag; None where there is none."""
    found = INNERMOST.findall(response)
    return found[-1] if found else None


def boxed_answer(response: str) -> str | None:
    r"""Content of the last ``\boxed{…}`` or ``\fbox{…}`` whose braces match.

    A box in a box is part of the outer one's content; ``\{`` and ``\}`` are no braces. One
    pass, whatever the policy wrote.
    """
    found = None
    opened: list[int | None] = []  # where a box's content starts; None for any other brace
    for token in BRACES.finditer(response):
        if token[0].endswith("{") and token[0] != "\\{":
            opened.append(token.end() if token[0] != "{" else None)
        elif token[0] == "}" and opened:
            start = opened.pop()
            found = response[start : token.start()] if start is not None else found
    return found


def final_answer(response: str) -> str | None:
    """What follows the last ``Final Answer:``; None where there is none."""
    _, mark, answer = response.rpartition(FINAL)
    return answer.strip() if mark else None


def whole_response(response: str) -> str | None:
    """The response as it is."""
    return response


ANSWERS: dict[str, Callable[[str], str | None]] = {
    "Answer": tagged_answer,
    "Boxed": boxed_answer,
    "FinalAnswer": final_answer,
    "Raw": whole_response,
}
"""By the manifest's ``reward.answerSchema``."""
