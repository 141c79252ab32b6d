"""Follows a job on a cluster, and explains its failure."""

from __future__ import annotations

import time
from dataclasses import dataclass

from rich.console import Console

from rl_console.cluster.kube import Cluster
from rl_console.errors import (
    ConsoleError,
    NotFoundError,
    RequestRefusedError,
    StageFailedError,
    TimeOverError,
)
from rl_console.following.display import display
from rl_console.following.failure import LOG_LINES, choose_log, describe, troubles
from rl_console.following.follow import Ending, Limits, Time, follow
from rl_console.plain_text import plain
from rl_console.pods import PodView
from rl_console.view import Snapshot, duration, why

OPERATOR_SELECTOR = "app.kubernetes.io/part-of=rl-operator,app.kubernetes.io/component=operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A job on a cluster, and the console to show it on."""

    cluster: Cluster
    console: Console
    namespace: str
    job: str
    before: float = 0.0
    """Seconds that had passed when following began; added to the times shown."""

    def follow(self, limits: Limits) -> Ending:
        """Show the job until it ends or a limit is reached."""
        with display(self.console, before=self.before) as shown:
            time_ = Time(monotonic=time.monotonic, sleep=time.sleep)
            return follow(self._read, shown, limits=limits, time=time_)

    def _read(self, left: float) -> Snapshot:
        ends = time.monotonic() + left
        job = self.cluster.within(left).job(self.namespace, self.job)
        pools = self.cluster.within(ends - time.monotonic()).pools(self.namespace, self.job)
        return Snapshot(job=job, pools=tuple(pools))

    def explain(self, ending: Ending) -> StageFailedError:
        """Build the error of a job that did not complete: condition, remedy and log.

        Condition and remedy do not depend on pods; the log is left out where they cannot be read.
        """
        condition, remedy = describe(ending, job=self._meant)
        if ending.error is not None:  # the next request would wait for the API server once more
            return StageFailedError(condition, remedy=remedy)
        cluster = self.cluster.within(ending.left)
        try:
            pods = cluster.pods_of(self.namespace, self.job)
            operators = _operators(cluster)
            condition = " ".join([condition, *troubles(pods)])
            wanted = choose_log(pods, operators)
            if wanted is None:
                return StageFailedError(condition, remedy=remedy)
            log = cluster.log_tail(
                wanted.pod, wanted.container, lines=LOG_LINES, previous=wanted.previous
            )
        except ConsoleError as error:  # e.g. a viewer may read jobs and no pods
            return StageFailedError(f"{condition} (No log is shown: {error})", remedy=remedy)
        name = f"{wanted.pod.namespace}/{wanted.pod.name} {wanted.container}"
        return StageFailedError(condition, remedy=remedy, log_name=name, log=log)

    def finish(self, ending: Ending) -> None:
        """Return if the job completed.

        Raises:
            TimeOverError: it has not ended in time, which is no failure.
            NotFoundError: it was deleted, or never was there.
            ClusterUnavailableError: the API server does not answer.
            StageFailedError: it failed or is stalled.
        """
        if ending.succeeded:
            return
        if ending.error is not None and (ending.snapshot is None or ending.kind == "Unreachable"):
            raise ending.error
        if ending.kind == "Deleted":
            raise NotFoundError(
                doing=f"following RLJob {self.namespace}/{self.job}",
                remedy="It was deleted; to run it again, create it from its manifest",
            )
        if ending.kind != "Deadline" or ending.snapshot is None:
            raise self.explain(ending)
        status = ending.snapshot.job.status
        outage = f" when it was last read. At the end {ending.message}" if ending.error else ""
        raise TimeOverError(
            f"{self.job} has not ended after {duration(ending.seconds)}: {status.phase}, "
            f"step {status.progress.step}/{status.progress.steps}, {why(status)}{outage}",
            remedy=f"The job goes on; `kubectl rl follow {self._meant}` shows it again",
        )

    @property
    def _meant(self) -> str:
        """The job in a command of a message."""
        return f"{self.job} {self.cluster.options(self.namespace)}"


def _operators(cluster: Cluster) -> list[PodView]:
    try:
        return cluster.pods("", OPERATOR_SELECTOR)
    except RequestRefusedError:  # a user of one namespace may not see the operator's
        return []


def print_failure(console: Console, failure: StageFailedError) -> None:
    """Print a failure in the order in which a person needs it."""
    console.print(
        f"\nFAILED: {plain(failure.condition)}", style="bold red", markup=False, soft_wrap=True
    )
    console.print(f"Remedy: {failure.remedy}", markup=False, soft_wrap=True)
    if failure.log:
        console.print(f"\nLast lines of {failure.log_name}:", markup=False)
        for text in failure.log:
            console.print(f"  {plain(text)}", markup=False, highlight=False, soft_wrap=True)
