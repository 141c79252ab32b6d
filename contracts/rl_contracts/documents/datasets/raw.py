"""Records as a file holds them, before anybody knows their columns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRecord:
    """One record, or why there is none in its place."""

    place: str
    """Within the file, e.g. ``line 7``; counted from 1."""
    value: object = None
    """As JSON has it."""
    problem: str = ""
    """What is wrong with its encoding; empty when it could be read."""


class UnreadableError(ValueError):
    """From this place on the file cannot be read: leaving out a record would not help."""
