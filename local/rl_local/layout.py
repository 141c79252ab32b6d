"""Paths and names: the checkout, the cache that is kept, the state that `down` removes."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rl_local import progress
from rl_local.errors import DeadlinePassedError

ROOT = Path(__file__).resolve().parents[2]
NODE = "local"
REGISTRY_PORT = 5000
REGISTRY = f"localhost:{REGISTRY_PORT}"
IMAGE_PREFIX = f"{REGISTRY}/rl-operator"
BRIDGE = "rl0"
NETWORK = "rl-operator"
POD_RANGE = "10.244.0.0/16"
NODE_RANGE = "10.244.0.0/24"
SERVICE_RANGE = "10.96.0.0/16"
DNS_ADDRESS = "10.96.0.10"
CGROUP = "rl-operator"
RUN_AS = 65532
# What a machine has once, whatever the folders of its clusters are.
MACHINE_LOCKS = ("cluster", "registry")


@dataclass(frozen=True, slots=True)
class Layout:
    """The folders of one local cluster.

    Attributes:
        cache: built binaries, image layers, pushed images; kept by ``down``.
        state: everything of the running cluster; removed by ``down``.
        root: the checkout.
        run: what all clusters of this machine share, and what must not survive a reboot.
    """

    cache: Path
    state: Path
    root: Path = ROOT
    run: Path = Path("/run/rl-operator")

    @classmethod
    def from_environment(cls) -> Layout:
        """The layout that ``RL_CACHE`` and ``RL_STATE`` name, or the default folders."""
        cache = os.environ.get("RL_CACHE") or str(Path.home() / ".cache/rl-operator")
        state = os.environ.get("RL_STATE") or "/var/lib/rl-operator"
        return cls(cache=Path(cache).absolute(), state=Path(state).absolute())

    @property
    def logs(self) -> Path:
        """Logs of builds; they outlive the cluster."""
        return self.cache / "logs"

    @property
    def scratch(self) -> Path:
        """Work folders of builds; those of ended processes may be removed."""
        return self.cache / "scratch"

    @property
    def tools(self) -> Path:
        """Links with plain names to the binaries of the current versions."""
        return self.cache / "bin/current"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, with one context, ``local``."""
        return self.state / "kubeconfig"

    @property
    def containerd_socket(self) -> Path:
        """Where the cluster's own containerd listens."""
        return self.state / "containerd/containerd.sock"

    @property
    def pulled(self) -> Path:
        """Images that containerd pulled; kept, so that the next cluster need not pull them."""
        return self.cache / "containerd"

    @property
    def buildah_run(self) -> Path:
        """Buildah's run folder; it must not survive a reboot."""
        name = hashlib.sha256(str(self.cache).encode()).hexdigest()[:8]
        return self.run / f"buildah-{name}"


@contextlib.contextmanager
def locked(
    layout: Layout, name: str, *, seconds: float = 3600, shared: bool = False
) -> Iterator[None]:
    """Hold the lock ``name``; the kernel releases it when the process ends.

    Those of ``MACHINE_LOCKS`` are the machine's, the others the cache's.

    Raises:
        DeadlinePassedError: another process held it for longer than ``seconds``.
    """
    folder = (layout.run if name in MACHINE_LOCKS else layout.cache) / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    deadline = time.monotonic() + seconds
    announced = False
    with (folder / name).open("w") as file:
        while True:
            try:
                fcntl.flock(file, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not announced:
                    progress.say(f"waiting for another run that holds {file.name}")
                    announced = True
                if time.monotonic() > deadline:
                    raise DeadlinePassedError(
                        f"another run held {file.name} for {seconds:.0f} s; stop it or wait for it"
                    ) from None
                time.sleep(0.1)
        yield


def try_lock(layout: Layout, name: str) -> contextlib.ExitStack | None:
    """Take the lock ``name`` without waiting; None when another process holds it."""
    stack = contextlib.ExitStack()
    try:
        stack.enter_context(locked(layout, name, seconds=-1))
    except DeadlinePassedError:
        return None
    return stack
