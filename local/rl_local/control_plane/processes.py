"""Starts, checks and stops the components by their records."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rl_local import progress
from rl_local.control_plane.components import Component
from rl_local.control_plane.probes import port_free
from rl_local.errors import CommandFailedError, DeadlinePassedError, LocalError
from rl_local.layout import Layout
from rl_local.system import records

# The API server waits up to a minute for its watchers, and loses nothing when it is killed.
STOP_SECONDS = 5
PORT_SECONDS = 3.0
"""How long to wait for a port; the kernel releases the port of an ended process a moment later."""
RECOVER_SECONDS = 20.0
"""A running process may be unresponsive this long: it is not restarted on a busy machine."""


def fingerprint(component: Component) -> str:
    """Digest of the command line and of the files that the process reads at its start."""
    whole = hashlib.sha256(repr(component.argv).encode())
    for path in component.files:
        whole.update(path.read_bytes())
    return whole.hexdigest()[:16]


def record_path(layout: Layout, name: str) -> Path:
    """Path of the record of the process ``name``."""
    return _records(layout) / f"{name}.json"


def _records(layout: Layout) -> Path:
    return layout.state / "processes"


def log_path(layout: Layout, name: str) -> Path:
    """Path of the log of the process ``name``."""
    return layout.state / "logs" / f"{name}.log"


def recorded(layout: Layout) -> dict[str, records.Record]:
    """Records of all started and not stopped processes by name, running or not."""
    started = {}
    for path in sorted(_records(layout).glob("*.json")):
        record = records.read(path)
        if record is not None:
            started[path.stem] = record
    return started


def any_launched(layout: Layout) -> bool:
    """Whether a process was ever launched from this state folder, stopped or not."""
    return _records(layout).exists()


def ensure(layout: Layout, components: Sequence[Component]) -> list[str]:
    """Start ``components`` and wait until they are healthy; return the names of started ones.

    A healthy process that was started with the same arguments and files is left alone.

    Raises:
        LocalError: a process cannot start or does not become healthy; has the end of its log.
    """
    started = [
        component.name for component in components if _start_unless_running(layout, component)
    ]
    for component in components:
        _await_health(layout, component)
    return started


def stop(layout: Layout, name: str, *, seconds: float = STOP_SECONDS) -> bool:
    """Stop the process ``name`` and remove its record; False when it was not running."""
    path = record_path(layout, name)
    record = records.read(path)
    running = record is not None and record.alive()
    if record is not None:
        records.stop(record, name=name, seconds=seconds)
    path.unlink(missing_ok=True)
    return running


def _start_unless_running(layout: Layout, component: Component) -> bool:
    record = records.read(record_path(layout, component.name))
    wanted = fingerprint(component)
    if record is not None and record.alive():
        if record.fingerprint == wanted and _recovers(component, record):
            return False
        reason = (
            "no longer healthy"
            if record.fingerprint == wanted
            else "its arguments or files changed"
        )
        progress.say(f"{component.name}: {reason}; restarting it")
        stop(layout, component.name)
    _launch(layout, component, wanted)
    return True


def _recovers(component: Component, record: records.Record) -> bool:
    """Whether a running process is or becomes healthy; a young process may still be starting."""
    seconds = max(RECOVER_SECONDS, component.start_seconds - record.age_seconds())
    return _settles(component, record, seconds) and record.alive()


def _settles(component: Component, record: records.Record, seconds: float) -> bool:
    """Whether the process is healthy, or has ended, within ``seconds``."""
    what = f"{component.name} to be healthy"
    return _holds(lambda: component.healthy() or not record.alive(), what, seconds)


def _holds(ready: Callable[[], bool], what: str, seconds: float) -> bool:
    with contextlib.suppress(DeadlinePassedError):
        progress.wait_until(ready, what=what, seconds=seconds)
        return True
    return False


def _launch(layout: Layout, component: Component, wanted: str) -> None:
    for port in component.ports:
        if not _holds(functools.partial(port_free, port), f"port {port} to be free", PORT_SECONDS):
            raise LocalError(
                f"{component.name} needs TCP port {port}, which another program uses;"
                f" see `ss -ltnp sport = :{port}`, end that program and run `up` again"
            )
    path, log = record_path(layout, component.name), log_path(layout, component.name)
    for folder in (path.parent, log.parent):
        folder.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    module_root = str(Path(__file__).resolve().parents[2])
    launched = subprocess.run(
        [
            sys.executable,
            "-m",
            "rl_local.system.launch",
            str(path),
            wanted,
            str(log),
            *component.argv,
        ],
        cwd=layout.state,
        env=_environment(module_root),
        stdin=subprocess.DEVNULL,
        timeout=15,
    )
    what = f"{component.name} to be launched"
    if launched.returncode != 0 or not _holds(path.exists, what, 15):
        raise CommandFailedError(component.name, "could not be launched", log)


def _environment(module_root: str) -> dict[str, str]:
    """Environment of the components; the machine's locale and proxies must not affect them."""
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"PATH": path, "HOME": "/root", "LANG": "C.UTF-8", "PYTHONPATH": module_root}


def _await_health(layout: Layout, component: Component) -> None:
    log = log_path(layout, component.name)
    record = records.read(record_path(layout, component.name))
    assert record is not None
    settled = _settles(component, record, component.start_seconds)
    if not record.alive():
        remedy = "ended right after its start; if it happens again, run `down` and `up`"
        raise CommandFailedError(component.name, remedy, log)
    if not settled:
        seconds = f"{component.start_seconds:.0f} s"
        raise CommandFailedError(component.name, f"was not healthy within {seconds}", log)
