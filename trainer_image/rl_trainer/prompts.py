"""Examples as tasks."""

from __future__ import annotations

from rl_contracts.documents.dataset import Example
from rl_contracts.documents.task import Message


def messages(example: Example, *, system_prompt: str) -> list[Message]:
    """The chat that asks an example's query; no system message when the prompt is empty."""
    system = [Message(role="system", content=system_prompt)] if system_prompt else []
    return [*system, Message(role="user", content=example.query)]
