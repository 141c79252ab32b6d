"""Workloads as tests read them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from rl_operator.kube.metadata import Child, Meta
from rl_operator.render import workload
from tests.unit.rl_operator.builders import IMAGES, a_meta, a_spec

Raw = dict[str, Any]
QUEUED: Raw = {"scheduling": {"provider": "Kueue", "queueName": "team"}}


STAMP = {"uid": "w", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}


def demand(**sections: Any) -> Raw:
    return workload.render(a_meta(), a_spec(**QUEUED | sections), images=IMAGES)


def stored(status: Callable[[Raw], Raw] | None = None, **sections: Any) -> Raw:
    """A Workload as the API server has it."""
    raw = copy.deepcopy(demand(**sections))
    raw["metadata"] |= STAMP
    if status is not None:
        raw["status"] = status(raw)
    return raw


def child_of(raw: Raw) -> Child:
    """What is observed of it."""
    return Child(kind="Workload", meta=Meta.parse(raw), raw=raw)


def pod_sets(raw: Raw) -> dict[str, Raw]:
    return {pod_set["name"]: pod_set for pod_set in raw["spec"]["podSets"]}
