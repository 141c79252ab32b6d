"""Records as a file holds them, before their columns are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rl_contracts.documents.harbor import HarborTask


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRecord:
    """A record of a file, or why it could not be decoded."""

    place: str
    """Place in the file, e.g. ``line 7``, counted from 1; no two records have the same."""
    value: object = None
    """The decoded JSON value."""
    harbor: HarborTask | None = None
    """What its pod needs, where it is a Harbor task."""
    problem: str = ""
    """What is wrong with its encoding; empty when it was decoded."""
    columns: Sequence[str] = ()
    """All columns of its file, where the value has only those that are read; empty: the value's."""


class UnreadableError(ValueError):
    """The file cannot be read beyond this place, so skipping a record would not help."""
