"""Writes as the API server itself counts them."""

from __future__ import annotations

from benchmarks.operator.lab.api import Api

VERBS = ("APPLY", "PATCH", "PUT", "POST", "DELETE")
MADE = (
    "rljobs",
    "samplerpools",
    "configmaps",
    "networkpolicies",
    "poddisruptionbudgets",
    "deployments",
    "pytorchjobs",
)
"""What an operator of RLJobs writes, and but for PUTs, by which controllers say statuses, nobody
else."""


def counted(api: Api) -> dict[str, float]:
    """Successful writes so far by verb and resource."""
    counts: dict[str, float] = {}
    for line in api.text("/metrics").splitlines():
        if not line.startswith("apiserver_request_total{"):
            continue
        labels, value = line.removeprefix("apiserver_request_total{").rsplit("} ", 1)
        label_values = dict(part.split("=", 1) for part in labels.split(","))
        verb, code = label_values["verb"].strip('"'), label_values["code"].strip('"')
        if verb in VERBS and code.startswith("2"):
            key = f"{verb} {label_values['resource'].strip(chr(34))}"
            counts[key] = counts.get(key, 0) + float(value)
    return counts


def since(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """What has been written between two counts; Leases and trials left out."""
    moved = {key: count - before.get(key, 0) for key, count in after.items()}
    return {key: count for key, count in moved.items() if count and not key.endswith(" leases")}


def of_operator(moved: dict[str, float], *, jobs: int) -> float:
    """Writes of an operator for each job, without the user's own creation and without Events."""
    ours = sum(
        count
        for key, count in moved.items()
        if key.split()[1] in MADE and not key.startswith("PUT ")
    )
    return round(ours / jobs - 1, 2)
