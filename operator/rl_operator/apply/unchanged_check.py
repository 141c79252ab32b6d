"""Looks by the clock at what has not changed end before anything is parsed, rendered or decided.

A look that finds an object at rest notes what it was made from: the versions that the store held,
the gist of what the document store said, and for how long the clock alone would change nothing.
As long as all of that holds, another look would find the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from rl_operator.attempts import ends
from rl_operator.cache.cached_reader import Looks
from rl_operator.kube.kinds import Key
from rl_operator.state.decisions import AttemptContext, Wait
from rl_operator.state.progress import Reading
from rl_operator.state.snapshot import Job, PoolSnapshot
from rl_operator.status.status_input import StatusInput


@dataclass(frozen=True, slots=True)
class Source:
    """What the document store is asked about."""

    namespace: str
    secret: str
    run: str


@dataclass(frozen=True, slots=True)
class _Still:
    until: float
    source: Source
    gist: bytes


class Stillness:
    """Which objects are as their last look found them."""

    def __init__(
        self, looks: Looks, *, gist: Callable[[Source], bytes], clock: Callable[[], float]
    ) -> None:
        """Prepare.

        Args:
            looks: what is known of the cluster.
            gist: of what the document store says now; empty where it does not answer.
            clock: monotonic seconds.
        """
        self._looks, self._gist, self._clock = looks, gist, clock
        self._still: dict[Key, _Still] = {}

    def note(self, key: Key, job: Job, reading: Reading, *, seconds: float) -> None:
        """A look was made; without a change the clock decides nothing for so many seconds."""
        self.forget(key)
        if seconds > 0 and reading.gist and job.spec is not None:
            meta, secret = job.meta, job.spec.storage.secret_name
            source = Source(namespace=meta.namespace, secret=secret, run=meta.run)
            self._still[key] = _Still(self._clock() + seconds, source, reading.gist)

    def holds(self, key: Key) -> bool:
        """Whether a look would find what the last one found."""
        still = self._still.get(key)
        if still is None or self._clock() >= still.until or not self._looks.same(key):
            return False
        return self._gist(still.source) == still.gist

    def forget(self, key: Key) -> None:
        """Nothing is known of an object, or it is gone."""
        self._still.pop(key, None)


def of_job(status_input: StatusInput, context: AttemptContext) -> float:
    """Seconds for which the clock changes nothing about a Ready job; 0 where that is not known."""
    spec = status_input.snapshot.job.spec
    blocked_reason = (
        status_input.stall is not None
        or status_input.blocked_reason
        or status_input.hold is not None
    )
    if spec is None or spec.scheduling.queued or blocked_reason:
        return 0.0
    runs = isinstance(status_input.decision, Wait) and status_input.decision.why == "Running"
    return ends.seconds_left(context) if runs else 0.0


def of_pool(snapshot: PoolSnapshot, reading: Reading) -> float:
    """As ``of_job``, of a pool that serves one job's run.

    One that the operator scales is judged by its looks, and a pod without a sampler by the clock.
    """
    spec = snapshot.pool.spec
    if spec is None or spec.shared or spec.template.autoscaling.mode == "Builtin":
        return 0.0
    heard = {sampler.pod for sampler in reading.samplers}
    live = (pod for pod in snapshot.pods if pod.live)
    return math.inf if all(one.name in heard for one in live) else 0.0
