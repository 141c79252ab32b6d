"""Counts restarts of single containers, which the kubelet makes without replacing their pod."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rl_operator.kube.kinds import Key
from rl_operator.kube.metrics import CONTAINER_RESTARTS
from rl_operator.state.pod import Pod

Counts = dict[tuple[str, str], int]
"""The kubelet's count, by the pod's uid and the container's name."""


@dataclass(slots=True)
class ContainerRestarts:
    """What has been counted of each pool. A new process counts from what it sees first."""

    _seen: dict[Key, Counts] = field(default_factory=dict)

    def observe(self, key: Key, pods: Iterable[Pod]) -> None:
        """Count what has been restarted since the last look."""
        now: Counts = {
            (pod.uid, each.name): each.restarts for pod in pods for each in pod.containers
        }
        before = self._seen.get(key, now)
        for (uid, name), restarts in now.items():
            more = restarts - before.get((uid, name), 0)
            if more > 0:
                CONTAINER_RESTARTS.labels(key.namespace, key.name, name).inc(more)
        self._seen[key] = now

    def forget(self, key: Key) -> None:
        """Drop a pool that is gone, with its series."""
        self._seen.pop(key, None)
        CONTAINER_RESTARTS.remove_by_labels({"pool_namespace": key.namespace, "pool": key.name})
