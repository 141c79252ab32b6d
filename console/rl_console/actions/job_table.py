"""Jobs as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, get_args

from rl_console import times
from rl_console.errors import UsageError
from rl_console.jobs import JobObject
from rl_console.output import Column, Listing
from rl_console.view import condition, count, number
from rl_contracts.spec.resources import GROUP
from rl_contracts.spec.status import Phase

COLUMNS = (
    Column(heading="NAME"),
    Column(heading="PHASE"),
    Column(heading="STEP", right=True),
    Column(heading="REWARD", right=True),
    Column(heading="POLICY", right=True),
    Column(heading="TRAINER", right=True),
    Column(heading="SAMPLERS", right=True),
    Column(heading="AGE", right=True),
    Column(heading="ACCURACY", right=True, wide=True),
    Column(heading="LAG", right=True, wide=True),
    Column(heading="ATTEMPT", right=True, wide=True),
    Column(heading="GPUS", right=True, wide=True),
    Column(heading="QUEUE", wide=True),
    Column(heading="REASON", wide=True),
    Column(heading="ACTIVITY", wide=True, text=True),
)
NAMESPACE = Column(heading="NAMESPACE")


def phase_of(written: str) -> str:
    """The phase that a person means, in capitals or not; empty for an empty text.

    Raises:
        UsageError: there is no such phase: the API server would find no job that has it.
    """
    phases: dict[str, str] = {each.casefold(): each for each in get_args(Phase)}
    if written and written.casefold() not in phases:
        raise UsageError(
            f"--phase {written}: there is no such phase", remedy=f"Use {', '.join(phases.values())}"
        )
    return phases.get(written.casefold(), "")


def job_listing(
    jobs: Sequence[Mapping[str, Any]], *, namespace: str, single: bool = False
) -> Listing:
    """Jobs as a table and as they are.

    Args:
        jobs: as the API server has them.
        namespace: of all of them; empty: they are of several, and the table names each.
        single: the listing is about one job.
    """
    now = times.now()
    rows = [_row(raw, now) for raw in jobs]
    if not namespace:
        rows = [(raw["metadata"]["namespace"], *row) for raw, row in zip(jobs, rows, strict=True)]
    place = f"namespace {namespace}" if namespace else "any namespace"
    return Listing(
        columns=COLUMNS if namespace else (NAMESPACE, *COLUMNS),
        rows=rows,
        objects=jobs,
        kind=f"rljob.{GROUP}",
        single=single,
        empty=f"No RLJobs in {place}.",
    )


def _row(raw: Mapping[str, Any], now: datetime) -> tuple[str, ...]:
    job = JobObject.parse(raw)
    status = job.status
    progress, ready = status.progress, condition(status, "Ready")
    return (
        job.name,
        status.phase,
        f"{progress.step}/{progress.steps or '?'}",
        number(progress.reward, 3),
        str(status.weights.version),
        status.trainer.summary,
        status.samplers.summary,
        times.age(raw["metadata"].get("creationTimestamp"), now),
        number(progress.accuracy, 3),
        count(status.weights.lag),
        str(status.attempt),
        str(status.resources.gpus),
        ((raw.get("spec") or {}).get("scheduling") or {}).get("queueName", ""),
        ready.reason if ready else "",
        progress.phase,
    )
