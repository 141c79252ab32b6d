"""Workloads as tests read them."""

from __future__ import annotations

from typing import Any

Raw = dict[str, Any]
QUEUED: Raw = {"scheduling": {"provider": "Kueue", "queueName": "team"}}


def pod_sets(raw: Raw) -> dict[str, Raw]:
    return {pod_set["name"]: pod_set for pod_set in raw["spec"]["podSets"]}
