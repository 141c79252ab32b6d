"""Rows and marks from RLJobs and SamplerPools, of any version, as the API server has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rl_console import times
from rl_console.dashboard.shown import line, seconds_of
from rl_console.jobs import JobObject

MOST_MARKS = 300
MOST_TEXT = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job within the list of runs."""

    namespace: str
    name: str
    phase: str
    step: int
    steps: int
    reward: float | None
    accuracy: float | None
    version: int
    lag: int | None
    samplers: str
    tokens_per_second: float | None
    failures: int
    started: float
    ended: float
    model: str
    ready: str
    """Reason and message of condition Ready."""

    @property
    def share(self) -> float:
        """Progress in [0, 1]."""
        return min(1.0, self.step / self.steps) if self.steps else 0.0


def job_row(raw: Mapping[str, Any]) -> JobRow:
    """A row for one RLJob."""
    job = JobObject.parse(raw)
    status = job.status
    ready = next((each for each in status.conditions if each.type == "Ready"), None)
    spec = raw.get("spec") or {}
    return JobRow(
        namespace=job.namespace,
        name=job.name,
        phase=status.phase,
        step=status.progress.step,
        steps=status.progress.steps,
        reward=status.progress.reward,
        accuracy=status.progress.accuracy,
        version=status.weights.version,
        lag=status.weights.lag,
        samplers=f"{status.samplers.ready}/{status.samplers.desired}",
        tokens_per_second=status.progress.tokens_per_second,
        failures=status.failures,
        started=seconds_of(status.start_time),
        ended=seconds_of(status.completion_time),
        model=str((spec.get("model") or {}).get("uri") or ""),
        ready=line(f"{ready.reason}: {ready.message}", MOST_TEXT) if ready else "",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that happened, on the time axis of a run."""

    time: float
    kind: str
    """``incident``, ``attempt``, ``suspension``, ``scaling``, ``condition``, ``event`` or
    ``notice``."""
    title: str
    text: str = ""

    def plain(self) -> dict[str, Any]:
        """As JSON for a page's script, without characters that control anything."""
        return {**asdict(self), "title": line(self.title), "text": line(self.text, MOST_TEXT)}


def marks(
    raw: Mapping[str, Any],
    pools: Iterable[Mapping[str, Any]] = (),
    events: Iterable[Mapping[str, Any]] = (),
) -> list[Mark]:
    """All marks of a job, oldest first."""
    status = JobObject.parse(raw).status
    marks = [
        *_attempts(status.attempts),
        *_conditions(status.conditions),
        *(
            Mark(time=seconds_of(each.time), kind="notice", title=each.reason, text=each.message)
            for each in status.notices
        ),
        *_scalings(pools),
        *map(_event, events),
    ]
    if status.last_failure is not None:
        failure = status.last_failure
        title = f"Attempt {failure.attempt} failed: {failure.reason}"
        at = seconds_of(failure.time)
        marks.append(Mark(time=at, kind="incident", title=title, text=failure.message))
    known = (each for each in marks if each.time > 0)
    return sorted(known, key=lambda each: each.time)[-MOST_MARKS:]


def _attempts(attempts: Sequence[Any]) -> Iterable[Mark]:
    for each in attempts:
        began = seconds_of(each.start_time)
        yield Mark(time=began, kind="attempt", title=f"Attempt {each.attempt} began")
        if each.end_time is not None:
            kind = "suspension" if each.result == "Suspended" else "attempt"
            if each.result in ("Failed", "Ignored", "Refused"):
                kind = "incident"
            title = f"Attempt {each.attempt}: {each.result}"
            yield Mark(time=seconds_of(each.end_time), kind=kind, title=title, text=each.reason)


def _conditions(conditions: Sequence[Any]) -> Iterable[Mark]:
    for each in conditions:
        at = seconds_of(each.last_transition_time)
        kind = "incident" if each.type == "Stalled" and each.status == "True" else "condition"
        title = f"{each.type}={each.status}, {each.reason}"
        yield Mark(time=at, kind=kind, title=title, text=each.message)


def _scalings(pools: Iterable[Mapping[str, Any]]) -> Iterable[Mark]:
    for pool in pools:
        name = (pool.get("metadata") or {}).get("name", "")
        for each in (pool.get("status") or {}).get("lastScale") or []:
            title = f"Pool {name}: {each.get('before')} → {each.get('after')} samplers"
            text = f"{each.get('reason', '')}: {each.get('message', '')}"
            yield Mark(time=seconds_of(each.get("time")), kind="scaling", title=title, text=text)


def _event(event: Mapping[str, Any]) -> Mark:
    kind = "incident" if event.get("type") == "Warning" else "event"
    title = line(event.get("reason") or "Event")
    at = seconds_of(times.of_event(event))
    return Mark(time=at, kind=kind, title=title, text=str(event.get("note") or ""))


def pools_of(pools: Iterable[Mapping[str, Any]], job: str) -> list[Mapping[str, Any]]:
    """The pools that serve a job, by name."""
    serving = []
    for pool in pools:
        status, spec = pool.get("status") or {}, pool.get("spec") or {}
        assigned = (status.get("assignment") or {}).get("job")
        beside = [each.get("job") for each in status.get("beside") or []]
        if job in (spec.get("job"), assigned, *beside):
            serving.append(pool)
    return sorted(serving, key=lambda pool: str(pool["metadata"]["name"]))
