"""What a dataset's record becomes."""

from __future__ import annotations

from dataclasses import dataclass

from rl_contracts.documents.task import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One record of a dataset."""

    id: str
    """Unique within its source."""
    messages: tuple[Message, ...]
    """The conversation so far; ends with a user's turn."""
    answer: str
    """The reference."""
    scorer: str = ""
    """Judges it alone; empty: the manifest's scorers do."""
    answer_schema: str = ""
    """Empty: the manifest's."""
    scenario: tuple[str, ...] = ()
    """The user's further turns, or what a simulated one wants."""
