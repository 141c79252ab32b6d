"""Finds the program in a response, and tells in words how one ended."""

from __future__ import annotations

import re

from rl_sampler.sandbox.wire import Ending, Outcome

FENCE = re.compile(
    r"^```[ \t]*(?:python|py|Python)[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE
)
ENDINGS: dict[Ending, str] = {
    "processor": "[ended: it used all of its processor time]",
    "wall": "[ended: it waited for too long]",
}
NOTHING = "[it printed nothing]"


def last_block(text: str) -> str | None:
    """The last complete ```` ```python ```` block of a text; None where there is none."""
    found = FENCE.findall(text)
    return found[-1] if found else None


def told(outcome: Outcome) -> str:
    """What a program wrote, and why it was ended."""
    parts = [outcome.output, outcome.errors, ENDINGS.get(outcome.ending, "")]
    return "\n".join(part.rstrip("\n") for part in parts if part.strip()) or NOTHING
