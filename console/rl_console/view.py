"""Formats a job's status for a person. Pure: status in, text out."""

from __future__ import annotations

from dataclasses import dataclass

from rl_console.jobs import JobObject, PoolObject
from rl_console.plain_text import plain_line
from rl_contracts.spec.status import Condition, RLJobStatus

MINUTE = 60
HOUR = 3600
ENDED_PHASES = frozenset({"Succeeded", "Stopped", "Failed"})
"""Phases of a job that is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A job and its pools at one moment."""

    job: JobObject
    pools: tuple[PoolObject, ...] = ()


def condition(status: RLJobStatus, kind: str) -> Condition | None:
    """The condition of a type, or None where it is absent."""
    return next((condition for condition in status.conditions if condition.type == kind), None)


def is_true(status: RLJobStatus, kind: str) -> bool:
    """Whether a condition exists and is True."""
    current = condition(status, kind)
    return current is not None and current.status == "True"


def has_ended(status: RLJobStatus) -> bool:
    """Whether a job is over: complete, failed or stopped."""
    return is_true(status, "Complete") or is_true(status, "Failed")


def duration(seconds: float) -> str:
    """Seconds as text, e.g. ``1 m 30 s``."""
    whole = round(seconds)
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return f"{whole // MINUTE} m {whole % MINUTE:02d} s"
    return f"{whole // HOUR} h {whole % HOUR // MINUTE:02d} m"


def number(value: float | None, digits: int) -> str:
    """A number with ``digits`` decimals; a dash for None."""
    return "–" if value is None else f"{value:.{digits}f}"


def count(value: int | None) -> str:
    """A count; a dash for None."""
    return "–" if value is None else str(value)


def rate(value: float | None) -> str:
    """A rate rounded to a whole number; a dash for None."""
    return "–" if value is None else f"{value:,.0f}"


def fields(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Labels and texts that describe a running job, in display order."""
    status = snapshot.job.status
    progress, weights, samplers = status.progress, status.weights, status.samplers
    left = "–" if progress.seconds_left is None else duration(progress.seconds_left)
    return [
        ("phase", status.phase),
        ("step", f"{progress.step}/{progress.steps}"),
        ("reward", number(progress.reward, 3)),
        ("accuracy", number(progress.accuracy, 3)),
        ("policy", f"version {weights.version}, lag {count(weights.lag)}"),
        (
            "samplers",
            f"{count(samplers.serving)} serving, {samplers.ready} ready, "
            f"{samplers.desired} desired",
        ),
        ("backlog", count(progress.backlog)),
        ("tokens/s", rate(progress.tokens_per_second)),
        ("trainer waits", f"{progress.trainer_wait_share:.0%}"),
        ("time left", left),
        ("trainer", doing(status)),
    ]


FINAL = ("Failed", "Complete", "Stalled")
"""Conditions whose message is the most important thing about a job, the first first."""


def why(status: RLJobStatus) -> str:
    """The message of the condition that decides what a person should do; else what is done."""
    for kind in FINAL:
        current = condition(status, kind)
        if current is not None and current.status == "True":
            return plain_line(f"{current.reason}: {current.message}")
    return doing(status)


def doing(status: RLJobStatus) -> str:
    """The phase that the trainer reports, else why the job is not Ready."""
    if status.progress.phase:
        return plain_line(status.progress.phase)
    ready = condition(status, "Ready")
    return (
        plain_line(f"{ready.reason}: {ready.message}") if ready else "not seen by the operator yet"
    )


def line(snapshot: Snapshot) -> str:
    """The job's status as a single line."""
    status = snapshot.job.status
    progress, samplers = status.progress, status.samplers
    parts = [
        status.phase,
        f"step {progress.step}/{progress.steps}",
        f"reward {number(progress.reward, 3)}",
        f"policy {status.weights.version} lag {count(status.weights.lag)}",
        f"samplers {count(samplers.serving)}/{samplers.ready}/{samplers.desired}",
        f"backlog {count(progress.backlog)}",
        f"{rate(progress.tokens_per_second)} tokens/s",
        f"waits {progress.trainer_wait_share:.0%}",
    ]
    if progress.seconds_left is not None:
        parts.append(f"left {duration(progress.seconds_left)}")
    if status.trainer.restarts or status.samplers.restarts:
        parts.append(f"restarts {status.trainer.restarts}+{status.samplers.restarts}")
    return " | ".join([*parts, doing(status)])
