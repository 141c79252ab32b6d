"""One job in full, as text for a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rl_console import times
from rl_console.jobs import JobObject, PoolObject
from rl_console.output import Column, lines, table
from rl_console.view import Snapshot, count, duration, number, rate, why
from rl_contracts.spec.status import RLJobStatus

POOLS = (
    Column(heading="POOL"),
    Column(heading="DESIRED", right=True),
    Column(heading="READY", right=True),
    Column(heading="SERVING", right=True),
    Column(heading="POLICY", right=True),
    Column(heading="LAG", right=True),
    Column(heading="LAST CHANGE", text=True),
)
DATA = (
    Column(heading="DATA"),
    Column(heading="SPLIT"),
    Column(heading="RECORDS", right=True),
    Column(heading="SKIPPED", right=True),
    Column(heading="ACCURACY", right=True),
    Column(heading="PASS@K", right=True),
    Column(heading="LOSS", right=True),
)
ATTEMPTS = (
    Column(heading="ATTEMPT", right=True),
    Column(heading="RESULT"),
    Column(heading="REASON"),
    Column(heading="REPLICAS", right=True),
    Column(heading="TOOK", right=True),
)
CONDITIONS = (
    Column(heading="CONDITION"),
    Column(heading="STATUS"),
    Column(heading="REASON"),
    Column(heading="SINCE", right=True),
    Column(heading="MESSAGE", text=True),
)


def describe_job(snapshot: Snapshot, *, width: int | None) -> str:
    """Facts, pools, data, attempts and conditions of a job; parts without rows are left out.

    Args:
        snapshot: the job and its pools.
        width: columns of the terminal; None: as many as are needed.
    """
    status = snapshot.job.status
    parts = [
        lines([("job", f"{snapshot.job.namespace}/{snapshot.job.name}"), *_facts(status)]),
        *(
            table(columns, rows, width=width)
            for columns, rows in (
                (POOLS, [_pool(pool) for pool in snapshot.pools]),
                (DATA, list(_datasets(status))),
                (ATTEMPTS, list(_attempts(status))),
                (CONDITIONS, list(_conditions(status))),
            )
            if rows
        ),
    ]
    return "\n\n".join(parts)


def describe_progress(job: JobObject, *, width: int | None) -> str:
    """How far a job is and what it has learned, and its sources of data."""
    status = job.status
    facts = [
        ("job", f"{job.namespace}/{job.name}"),
        ("state", f"{status.phase}: {why(status)}"),
        *list(_progress(status))[:3],
        ("final model", status.final_model or "none yet"),
    ]
    rows = list(_datasets(status))
    return "\n\n".join([lines(facts), *([table(DATA, rows, width=width)] if rows else [])])


def _facts(status: RLJobStatus) -> Iterator[tuple[str, str]]:
    yield "phase", status.phase
    yield "state", why(status)
    yield from _progress(status)
    yield "resources", _resources(status)
    yield "run", status.run_id
    yield "started", status.start_time or ""
    yield "ended", status.completion_time or ""
    yield "final model", status.final_model
    last = status.last_failure
    if last is not None:
        yield "last failure", f"attempt {last.attempt}, {last.reason}: {last.message}"
    yield "next attempt", status.next_retry_time or ""
    for notice in status.notices:
        yield "notice", f"{notice.time} {notice.reason}: {notice.message}"


def _progress(status: RLJobStatus) -> Iterator[tuple[str, str]]:
    progress, weights, samplers = status.progress, status.weights, status.samplers
    left = progress.seconds_left
    yield (
        "step",
        f"{progress.step} of {progress.steps or '?'}"
        + (f", {duration(left)} left" if left is not None else ""),
    )
    yield "reward", f"{number(progress.reward, 3)}, accuracy {number(progress.accuracy, 3)}"
    yield "policy", f"version {weights.version}, lag {count(weights.lag)}"
    yield (
        "samplers",
        f"{samplers.ready} of {samplers.desired} ready, {count(samplers.serving)} serving, "
        f"backlog {count(progress.backlog)}, {rate(progress.tokens_per_second)} tokens/s",
    )
    yield (
        "trainer",
        f"{status.trainer.ready} of {status.trainer.desired} ready, attempt {status.attempt}, "
        f"waited {progress.trainer_wait_share:.0%} of its time, "
        f"{status.failures} failures that count",
    )


def _resources(status: RLJobStatus) -> str:
    wanted = status.resources
    return f"{wanted.gpus} GPUs, {wanted.cpu} CPU, {wanted.memory} memory"


def _pool(pool: PoolObject) -> Sequence[str]:
    status = pool.status
    last = status.last_scale[-1] if status.last_scale else None
    numbers = (pool.replicas, status.ready, status.serving, status.version, status.lag)
    change = f"{last.before} to {last.after}: {last.reason}" if last else ""
    return (pool.name, *map(count, numbers), change)


def _datasets(status: RLJobStatus) -> Iterator[Sequence[str]]:
    for source in status.datasets:
        rates = (source.accuracy, source.pass_at_k, source.loss)
        yield (
            source.name,
            source.split,
            str(source.records),
            str(source.skipped),
            *(number(value, 3) for value in rates),
        )


def _attempts(status: RLJobStatus) -> Iterator[Sequence[str]]:
    for attempt in status.attempts:
        end = times.parse(attempt.end_time) if attempt.end_time else times.now()
        took = (end - times.parse(attempt.start_time)).total_seconds()
        yield (
            str(attempt.attempt),
            attempt.result,
            attempt.reason,
            str(attempt.replicas),
            times.short(took),
        )


def _conditions(status: RLJobStatus) -> Iterator[Sequence[str]]:
    now = times.now()
    for each in status.conditions:
        since = times.age(each.last_transition_time, now)
        yield each.type, each.status, each.reason, since, each.message
