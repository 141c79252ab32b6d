"""The lineage of a run: the batches that lead to its head. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rl_contracts.documents.run import Run

HEADER_FIELDS = ("step", "epoch", "parent", "state")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The header of a batch: all but its members."""

    id: str
    step: int
    epoch: int
    parent: str | None
    state: str

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Header:
        """Build from the stored fields."""
        return cls(id=stored["_id"], **{name: stored[name] for name in HEADER_FIELDS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """The batches that lead to a run's head."""

    steps: tuple[Header, ...]
    """Batches by ascending step."""
    broken_at: str = ""
    """Id of the first missing batch; empty: complete back to the first step."""
    off: tuple[Header, ...] = ()
    """Batches of the run that do not lead to its head."""

    def at(self, step: int) -> Header | None:
        """The batch that produced a step, or None."""
        return next((header for header in self.steps if header.step == step), None)

    def epochs(self) -> list[tuple[int, int, int]]:
        """Stretches of consecutive steps of the same epoch: first step, last step, epoch."""
        stretches: list[tuple[int, int, int]] = []
        for step in self.steps:
            if stretches and stretches[-1][2] == step.epoch:
                stretches[-1] = (stretches[-1][0], step.step, step.epoch)
            else:
                stretches.append((step.step, step.step, step.epoch))
        return stretches


def trace(run: Run, headers: Iterable[Header]) -> Lineage:
    """Follow parents back from the run's head."""
    known = {header.id: header for header in headers}
    chain: list[Header] = []
    name = run.head_batch
    while name is not None and name in known:
        chain.append(known.pop(name))  # popped: a cycle ends as a missing batch
        name = chain[-1].parent
    off = sorted(known.values(), key=lambda header: (header.step, header.epoch))
    return Lineage(steps=tuple(chain[::-1]), broken_at=name or "", off=tuple(off))
