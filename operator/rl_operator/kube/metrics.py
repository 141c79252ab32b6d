"""The operator's own metrics."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)

RECONCILES = Counter(
    "rl_operator_reconciles",
    "Reconciles by kind of object and result (ok, conflict, error).",
    ["kind", "result"],
    registry=REGISTRY,
)
RECONCILE_SECONDS = Histogram(
    "rl_operator_reconcile_seconds",
    "Time that one reconcile took.",
    ["kind"],
    buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
    registry=REGISTRY,
)
WRITES = Counter(
    "rl_operator_api_writes",
    "Writes to the API server by verb and kind; at rest only Leases are written.",
    ["verb", "kind"],
    registry=REGISTRY,
)
REQUESTS = Counter(
    "rl_operator_api_requests",
    "Requests to the API server, reads among them, by verb, kind and HTTP status (0: no answer).",
    ["verb", "kind", "status"],
    registry=REGISTRY,
)
RETRIES = Counter(
    "rl_operator_retries",
    "Objects requeued after a conflict or an error.",
    ["kind"],
    registry=REGISTRY,
)
QUEUE_SECONDS = Histogram(
    "rl_operator_queue_seconds",
    "Time from when an object was due to when a worker took it.",
    buckets=(0.001, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
    registry=REGISTRY,
)
WATCH_SILENCE = Gauge(
    "rl_operator_watch_silence_seconds",
    "Time since the last event of a watch; a bookmark arrives about once a minute.",
    ["path"],
    registry=REGISTRY,
)
EVENTS_DROPPED = Counter(
    "rl_operator_events_dropped",
    "Events that were not posted: refused, too many, or no time left when the process stopped.",
    registry=REGISTRY,
)
CONTAINER_RESTARTS = Counter(
    "rl_operator_container_restarts",
    "Restarts of containers of sampler pods that this process has seen, their pods being kept.",
    ["pool_namespace", "pool", "container"],
    registry=REGISTRY,
)
QUEUED = Gauge("rl_operator_queue_length", "Objects waiting for a worker.", registry=REGISTRY)
LEADER = Gauge("rl_operator_leader", "1 while this operator holds the Lease.", registry=REGISTRY)


class JobPhases(Collector):
    """The phase of each job, as its last reconcile read it; a scrape reads no object.

    The labels are not ``namespace`` and ``job``, which Prometheus sets itself.
    """

    def __init__(self) -> None:
        self._phases: dict[tuple[str, str], str] = {}

    def set(self, namespace: str, job: str, phase: str) -> None:
        """Note the phase of a job."""
        self._phases[namespace, job] = phase

    def remove(self, namespace: str, job: str) -> None:
        """Forget a job that is gone."""
        self._phases.pop((namespace, job), None)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """One series of value 1 for each job."""
        family = GaugeMetricFamily(
            "rl_operator_job_phase",
            "1 for the phase that an RLJob is in.",
            labels=("rljob_namespace", "rljob", "phase"),
        )
        for (namespace, job), phase in sorted(self._phases.copy().items()):
            family.add_metric((namespace, job, phase), 1)
        yield family


JOB_PHASES = JobPhases()
REGISTRY.register(JOB_PHASES)
