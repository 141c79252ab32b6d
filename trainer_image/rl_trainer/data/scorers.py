"""Scorers that records name must be known to the samplers: better now than at a record's turn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rl_contracts.documents.sampler import Sampler, SamplerState
from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.spec.reward import named_like
from rl_trainer.data.dataset import Dataset


def check_scorers(datasets: Iterable[Dataset], *, samplers: Sequence[Sampler]) -> None:
    """Look up every scorer that a record names.

    Args:
        datasets: all sources.
        samplers: of the run; a scorer must be known to each that is not gone. Without any, what a
            sampler does not know ends its task.

    Raises:
        RefusedError: the first scorer that some sampler does not know, with file and place.
    """
    registered = [
        set(sampler.scorers) for sampler in samplers if sampler.state != SamplerState.GONE
    ]
    if not registered:
        return
    known = set.intersection(*registered)
    for dataset in datasets:
        for kind, where in dataset.scorers.items():
            if named_like(kind, known) is None:
                raise _refused(kind, where, known)


def _refused(kind: str, where: str, known: set[str]) -> RefusedError:
    return RefusedError(
        Refusal(
            field="spec.reward.scorers",
            value=kind,
            reason="ScorerUnknown",
            message=f"{where} asks for scorer {kind}, which not all samplers know.",
            remedy=f"Use one of: {', '.join(sorted(known)) or 'none'}.",
        )
    )
