"""One source of a job's data, parsed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rl_contracts.documents.datasets.example import Example
from rl_contracts.spec.data import DatasetSource, StoredRollouts

Split = Literal["train", "validation", "test"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A parsed source with its examples."""

    source: DatasetSource | StoredRollouts
    split: Split
    examples: Sequence[Example]
    """At least one, in the order of its files."""
    skipped: int = 0
    """Bad records that were left out."""
    first_skipped: tuple[str, ...] = ()
    """Place and problem of the first of them."""
    scorers: Mapping[str, str] = field(default_factory=dict)
    """Scorers that records name, and where each is named first."""
    revision: str = ""
    """Commit of an hf:// source."""
    sha256: str = ""
    """SHA-256 of the examples in their order."""
