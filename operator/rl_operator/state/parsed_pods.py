"""Pods parsed once for each of their states, whoever reads them."""

from __future__ import annotations

import threading

from rl_operator.kube.metadata import Raw
from rl_operator.state.pod import Pod

KEPT_PODS = 4000


class _Pods:
    """Parsed pods by uid and version, which tell any two states of objects apart."""

    def __init__(self, kept: int) -> None:
        self._kept, self._found = kept, dict[tuple[str, str], Pod]()
        self._lock = threading.Lock()

    def parse(self, raw: Raw) -> Pod:
        """Parse a pod, or use what was made of this very state; the oldest are forgotten."""
        known = (raw["metadata"]["uid"], raw["metadata"]["resourceVersion"])
        found = self._found.get(known)
        if found is None:
            found = Pod.parse(raw)
            with self._lock:
                self._found[known] = found
                while len(self._found) > self._kept:
                    del self._found[next(iter(self._found))]
        return found


parsed_pod = _Pods(KEPT_PODS).parse
