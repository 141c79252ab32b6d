"""Plays the memory limit of readers' pods: a process beyond it is killed, and its pod says so."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kubernetes import client

from rl_contracts.spec.quantities import parse_quantity
from rl_operator.render.reader import CONTAINER, MEMORY, PREFIX
from tests.kube.kubelet import ReaderKubelet

LIMIT_BYTES = int(parse_quantity(MEMORY))
LOOK_SECONDS = 0.02
PAGE = os.sysconf("SC_PAGE_SIZE")
OOM_EXIT = 137


@dataclass
class MemoryLimit:
    """Watches the readers of a kubelet until the end of ``enforced``."""

    kubelet: ReaderKubelet
    killed: set[tuple[str, str]] = field(default_factory=set)
    """Namespace and uid of pods."""
    highest: dict[str, int] = field(default_factory=dict)
    """Most bytes that a reader of a namespace had, by namespace."""

    @contextlib.contextmanager
    def enforced(self) -> Iterator[MemoryLimit]:
        """Look at the readers until the end of the block."""
        over = threading.Event()
        loop = threading.Thread(target=self._loop, args=(over,), daemon=True)
        loop.start()
        try:
            yield self
        finally:
            over.set()
            loop.join()

    def _loop(self, over: threading.Event) -> None:
        while not over.wait(LOOK_SECONDS):
            for key, reader in list(self.kubelet.running.items()):
                if reader.process is None or key in self.killed:
                    continue
                held = resident_bytes(reader.process.pid)
                self.highest[key[0]] = max(held, self.highest.get(key[0], 0))
                if held > LIMIT_BYTES:
                    self.killed.add(key)
                    reader.process.kill()
                    self._report(*key)

    def _report(self, namespace: str, uid: str) -> None:
        core = client.CoreV1Api(self.kubelet.api)
        ended = {"exitCode": OOM_EXIT, "reason": "OOMKilled"}
        container = {
            "name": CONTAINER,
            "image": "x",
            "imageID": "",
            "ready": False,
            "restartCount": 1,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": ended},
        }
        status = {
            "conditions": [{"type": "Ready", "status": "False"}],
            "containerStatuses": [container],
        }
        for pod in core.list_namespaced_pod(namespace).items:
            if pod.metadata.uid == uid and pod.metadata.name.startswith(PREFIX):
                with contextlib.suppress(client.ApiException):  # it was deleted meanwhile
                    core.patch_namespaced_pod_status(
                        pod.metadata.name, namespace, {"status": status}
                    )


def resident_bytes(pid: int) -> int:
    """Of a process; 0 when it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0
