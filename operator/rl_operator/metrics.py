"""The operator's own metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY = CollectorRegistry()

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
    "Writes to the API server by verb and kind; in a quiet hour only Leases are written.",
    ["verb", "kind"],
    registry=REGISTRY,
)
QUEUED = Gauge("rl_operator_queue_length", "Objects that wait for a worker.", registry=REGISTRY)
LEADER = Gauge("rl_operator_leader", "1 while this operator holds the Lease.", registry=REGISTRY)
