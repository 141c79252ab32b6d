"""Examples as what a task asks."""

from __future__ import annotations

from rl_contracts.documents.datasets.example import Example
from rl_contracts.documents.task import Message


def messages(example: Example, *, system_prompt: str) -> list[Message]:
    """The chat that asks an example.

    Args:
        example: whose own system message, if it begins with one, comes before any other.
        system_prompt: the manifest's; empty: none.
    """
    own = example.messages[0].role in ("system", "developer")
    system = [Message(role="system", content=system_prompt)] if system_prompt and not own else []
    return [*system, *example.messages]
