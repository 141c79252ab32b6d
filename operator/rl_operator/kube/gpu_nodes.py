"""The memory of the cluster's GPUs, as NVIDIA's feature discovery labels the nodes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from rl_operator.kube.api_errors import ClusterError
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.kinds import NODE

log = logging.getLogger(__name__)

LABEL = "nvidia.com/gpu.memory"
"""MiB of each GPU of a node; under MIG's strategy ``single`` those of an instance."""
KEPT_SECONDS = 300.0
Labels = Mapping[str, str]


class GpuNodes:
    """Labels of the nodes that have GPUs, read at most every ``KEPT_SECONDS``. For any thread."""

    def __init__(self, cluster: Cluster, *, clock: Callable[[], float]) -> None:
        """Read nothing yet; ``clock`` gives monotonic seconds."""
        self._cluster, self._clock = cluster, clock
        self._nodes: tuple[Labels, ...] = ()
        self._until = float("-inf")
        self._lock = threading.Lock()

    def memory_gib(self, selector: Labels) -> float | None:
        """GiB of the largest GPU on the nodes that a node selector matches.

        Args:
            selector: labels that a node must have; empty: any node.

        Returns:
            None if no such node is labelled, or the operator may not list nodes.
        """
        sizes = [
            int(labels[LABEL]) / 1024
            for labels in self._labels()
            if labels.get(LABEL, "").isdecimal() and selector.items() <= labels.items()
        ]
        return max(sizes, default=0.0) or None

    def _labels(self) -> tuple[Labels, ...]:
        with self._lock:
            if self._clock() >= self._until:
                try:
                    self._nodes = tuple(self._cluster.labels(NODE, selector=LABEL))
                except ClusterError as error:
                    log.warning("the memory of the nodes' GPUs is not known: %s", error)
                    self._nodes = ()
                self._until = self._clock() + KEPT_SECONDS
            return self._nodes
