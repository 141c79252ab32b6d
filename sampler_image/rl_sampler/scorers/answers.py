"""Extracts the answer from a response, by the manifest's ``reward.answerSchema``."""

from __future__ import annotations

import re
from collections.abc import Callable

OPEN, CLOSE = "<answer>", "</answer>"
FINAL = "Final Answer:"
BRACES = re.compile(r"\\(?:boxed|fbox)\s*\{|\\.|[{}]", re.DOTALL)
INNERMOST = re.compile(r"<answer>((?:(?!</?answer>).)*)</answer>", re.DOTALL)


def tagged_answer(response: str) -> str | None:
    """Text of the last ``<answer>…</answer>`` that holds no other tag; None where there is none."""
    answers = INNERMOST.findall(response)
    return answers[-1] if answers else None


def boxed_answer(response: str) -> str | None:
    r"""Content of the last ``\boxed{…}`` or ``\fbox{…}`` whose braces match.

    A nested box is part of the outer box's content; ``\{`` and ``\}`` are not braces. A single
    pass, so that no response takes long.
    """
    content = None
    opened: list[int | None] = []  # where a box's content starts; None for any other brace
    for token in BRACES.finditer(response):
        if token[0].endswith("{") and token[0] != "\\{":
            opened.append(token.end() if token[0] != "{" else None)
        elif token[0] == "}" and opened:
            start = opened.pop()
            content = response[start : token.start()] if start is not None else content
    return content


def final_answer(response: str) -> str | None:
    """The text after the last ``Final Answer:``; None where there is none."""
    _, mark, answer = response.rpartition(FINAL)
    return answer.strip() if mark else None


def whole_response(response: str) -> str | None:
    """The whole response, unchanged."""
    return response


ANSWERS: dict[str, Callable[[str], str | None]] = {
    "Answer": tagged_answer,
    "Boxed": boxed_answer,
    "FinalAnswer": final_answer,
    "Raw": whole_response,
}
"""By ``reward.answerSchema``."""
