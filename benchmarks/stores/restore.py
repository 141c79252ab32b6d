"""Stores restored from backups of every age: what is lost, what the run says, when it goes on.

In each case a trainer, a process as in its pod, trains on a real document store and bucket and is
killed. Backups that were made some steps before take the place of what is there, and the next
trainer starts. The sampler lives on. Of the API server's cases the trainer's part is rehearsed with
the attempt's ordinal and the job's UID that its pod would get, and the operator's part by the
functions that choose the next ordinal and that compare two statuses for events.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support.result import Result, chosen_cases
from benchmarks.support.samplers import running_stores, scratch
from rl_contracts import env
from rl_contracts.documents.run import Run
from rl_contracts.spec.lifecycle import Lifecycle
from rl_contracts.spec.status import AttemptStatus, ProgressStatus, RLJobStatus
from rl_operator.attempts import lifecycle
from rl_operator.process.events import of_change
from rl_operator.state.decisions import AttemptContext, Begin
from tests.contract.backups import NO_DOCUMENTS, Bucket, Documents
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World
from tests.waiting import until

STEPS, END = 30, 7
"""Steps of the run, and the step after which the trainer is killed."""
CHECKPOINTS = {"everySteps": 2, "keepLast": 1}
LONGEST_SECONDS = 120.0
"""Two leases of claims that were restored with the documents, and the trainer's start."""
NOW = -1
"""The store is not restored."""
LOST = 0
"""Nothing of the run is left in the store."""
TOO_LATE = 4
LAST_ATTEMPT = 3
"""Ordinal of the trainer that is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """To which step each store is restored."""

    documents: int = NOW
    bucket: int = NOW
    attempt: int = 4
    """Ordinal that the API server gives to the next trainer; an older server gives a lower one."""
    another_uid: bool = False


CASES = {
    "document store older": Case(documents=4),
    "bucket older": Case(bucket=4),
    "both of one time": Case(documents=4, bucket=4),
    "bucket older than an older document store": Case(documents=5, bucket=3),
    "document store older than an older bucket": Case(documents=3, bucket=5),
    "document store lost": Case(documents=LOST),
    "bucket lost": Case(bucket=LOST),
    "both lost": Case(documents=LOST, bucket=LOST),
    "API server older": Case(attempt=2),
    "API server and document store older": Case(documents=4, attempt=2),
    "job created again": Case(attempt=1, another_uid=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """What became of a run."""

    went_on: bool
    seconds: float
    lost: int
    """Steps that were committed and are not in the lineage any more."""
    message: str

    @property
    def names_loss(self) -> bool:
        """Whether a message says that steps are lost, not only that a checkpoint is."""
        return any(reason in self.message for reason in ("RunWentBack", "StoreRestored", "RunLost"))

    @property
    def row(self) -> str:
        """A row of the table."""
        state = "goes on" if self.went_on else "refused"
        return f"{state:8} {self.seconds:5.1f} s  {self.lost} steps lost  {self.message}"


def main() -> None:
    """Rehearse and print."""
    names, _ = chosen_cases(__doc__, CASES)
    result = Result("stores.restore")
    ends = {}
    for name in names:
        with scratch() as folder, running_world(folder) as world:
            ends[name] = rehearse(world, CASES[name])
        print(f"{name:42} {ends[name].row}", flush=True)
    result.figures = {name: end.row for name, end in ends.items()}
    slowest = max(end.seconds for end in ends.values())
    result.at_most("seconds until it goes on or is refused", slowest, LONGEST_SECONDS)
    silent = [name for name, end in ends.items() if end.lost and not end.names_loss]
    result.at_most("losses that nothing names", len(silent), 0)
    result.print()


@contextmanager
def running_world(folder: Path) -> Iterator[World]:
    """Stores, a run, and a sampler that lives through everything."""
    with running_stores(folder) as (settings, stores):
        world = World.make(folder, stores, settings, steps=STEPS, checkpoint=CHECKPOINTS)
        with sampling(TestSampler(stores, RUN, pause_seconds=0.1)):
            yield world


def rehearse(world: World, case: Case) -> End:
    """Train, kill, restore, and start the next trainer."""
    documents, buckets = train_until_killed(world)
    before = world.run
    if case.documents != NOW:
        documents[case.documents].restore(world.stores)
    if case.bucket != NOW:
        buckets[case.bucket].restore(world.stores)
    if case.another_uid:
        return create_again(world, before)
    kept = world.stores.runs.get(RUN)
    started, attempt = time.monotonic(), case.attempt
    messages = []
    while True:
        trainer = start(world, attempt=attempt)
        first = kept.step if kept else 0
        until(
            lambda: trainer.poll() is not None or moved(world, trainer, first),  # noqa: B023
            what="the run to go on or to be refused",
            seconds=2 * LONGEST_SECONDS,
        )
        if trainer.poll() != TOO_LATE:
            break
        messages.append(f"attempt {attempt} ended with exit code {TOO_LATE};")
        attempt = next_attempt(world.run, attempt)
    seconds = time.monotonic() - started
    went_on = trainer.poll() is None
    kill(trainer)
    run = world.run
    messages += [notice.reason for notice in run.notices]
    if case.attempt > LAST_ATTEMPT:  # else the status that was written before is gone, too
        after = status(kept.step if kept else 0)
        messages += [each.reason for each in of_change(status(before.step), after)]
    if not went_on and run.outcome is not None:
        messages.append(f"{run.outcome.reason}: {run.outcome.message}")
    lost = before.step - (kept.step if kept else 0)
    return End(went_on=went_on, seconds=seconds, lost=lost, message=" ".join(messages))


def train_until_killed(world: World) -> tuple[dict[int, Documents], dict[int, Bucket]]:
    """Train with attempt 3, back up both stores after each step, and kill the trainer."""
    prefix = world.stores.run_prefix(RUN)
    documents, buckets = {LOST: NO_DOCUMENTS}, {LOST: Bucket(prefix, {})}
    trainer = start(world, attempt=LAST_ATTEMPT)
    for step in range(1, END + 1):
        until(lambda: at_step(world, step), what=f"step {step}", seconds=300, interval=0.01)  # noqa: B023
        documents[step] = Documents.of(world.stores)
        buckets[step] = Bucket.of(world.stores, prefix)
    kill(trainer)
    return documents, buckets


def at_step(world: World, step: int) -> bool:
    """Whether the run has so many steps."""
    run = world.stores.runs.get(RUN)
    return run is not None and run.step >= step


def moved(world: World, trainer: subprocess.Popen[bytes], step: int) -> bool:
    """Whether the run has more steps than it was restored with, by a living trainer."""
    return trainer.poll() is None and at_step(world, step + 1)


def create_again(world: World, before: Run) -> End:
    """A job with another UID trains another run, and names the one that it leaves."""
    other, started = "99999999-8888", time.monotonic()
    trainer = start(world, attempt=1, run=other)
    until(
        lambda: (run := world.stores.runs.get(other)) is not None and bool(run.notices),
        what="the notice",
        seconds=LONGEST_SECONDS,
    )
    kill(trainer)
    (notice,) = world.stores.runs.require(other).notices
    seconds = time.monotonic() - started
    assert world.run.step == before.step
    return End(went_on=True, seconds=seconds, lost=0, message=f"{notice.reason}: {notice.message}")


def next_attempt(run: Run, attempt: int) -> int:
    """The ordinal that the operator gives to the attempt after one that has ended."""
    context = AttemptContext(
        status=RLJobStatus(attempt=attempt, attempts=[_ended(attempt)]),
        lifecycle=Lifecycle(),
        trainer=None,
        others_active=False,
        pods=(),
        run=run,
        run_known=True,
        job=RUN,
        may_begin=True,
        now=time.time(),
        store_now=time.time(),
    )
    decision = lifecycle.decide(context)
    assert isinstance(decision, Begin)
    return decision.attempt


def status(step: int) -> RLJobStatus:
    """What the operator wrote of a run at a step."""
    return RLJobStatus(run_id=RUN, progress=ProgressStatus(step=step))


def _ended(attempt: int) -> AttemptStatus:
    return AttemptStatus(attempt=attempt, start_time="2026-01-01T00:00:00Z", result="Ignored")


def start(world: World, *, attempt: int, run: str = RUN) -> subprocess.Popen[bytes]:
    """A trainer as its pod starts it."""
    return world.process(**{env.ATTEMPT: str(attempt), env.RUN: run, env.JOB_UID: run})


def kill(trainer: subprocess.Popen[bytes]) -> None:
    """End it at once, unless it has ended."""
    trainer.kill()
    trainer.wait()


if __name__ == "__main__":
    main()
