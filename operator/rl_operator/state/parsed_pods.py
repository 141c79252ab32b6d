"""A cache of parsed pods."""

from __future__ import annotations

import threading

from rl_operator.kube.metadata import Raw
from rl_operator.state.pod import Pod

KEPT_PODS = 4000


class _Pods:
    """Parsed pods by uid and resourceVersion, which identify a state of an object."""

    def __init__(self, kept: int) -> None:
        self._kept, self._found = kept, dict[tuple[str, str], Pod]()
        self._lock = threading.Lock()

    def parse(self, raw: Raw) -> Pod:
        """Parse a pod, or return the cached one of this state; the oldest are evicted."""
        known = (raw["metadata"]["uid"], raw["metadata"]["resourceVersion"])
        pod = self._found.get(known)
        if pod is None:
            pod = Pod.parse(raw)
            with self._lock:
                self._found[known] = pod
                while len(self._found) > self._kept:
                    del self._found[next(iter(self._found))]
        return pod


parsed_pod = _Pods(KEPT_PODS).parse
