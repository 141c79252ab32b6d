"""Installs Debian packages that the cluster or the tests need and that are missing."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from rl_local import progress, versions
from rl_local.errors import CommandFailedError, LocalError
from rl_local.layout import Layout, locked
from rl_local.system import files

APT = Path("/usr/bin/apt-get")
UNIT_FOLDERS = (Path("/lib/systemd/system"), Path("/usr/lib/systemd/system"))
ENABLED = Path("/etc/systemd/system")
POLICY = Path("/usr/sbin/policy-rc.d")
POLICY_TEXT = "#!/bin/sh\n# Written by rl-operator while it installs packages.\nexit 101\n"


def missing(packages: Sequence[str]) -> list[str]:
    """Those of the packages that are not installed."""
    query = ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *packages]
    # It fails when a package is unknown, but still lists the others.
    done = subprocess.run(query, capture_output=True, text=True, timeout=30)
    installed = {
        line.split()[0] for line in done.stdout.splitlines() if line.endswith(" installed")
    }
    return [name for name in packages if name not in installed]


def require() -> None:
    """Check that the cluster can run on this machine.

    Raises:
        LocalError: apt is missing, or the user is not root.
    """
    if os.geteuid() != 0:
        raise LocalError("the local cluster needs root; run the command with sudo")
    if not APT.exists():
        raise LocalError("the local cluster needs Debian 12; use CONTEXT=… with your own cluster")


def ensure(layout: Layout) -> None:
    """Install the cluster's missing packages.

    Raises:
        LocalError: the cluster cannot run on this machine.
    """
    require()
    install(layout, versions.DEBIAN_PACKAGES)


def install(layout: Layout, packages: Sequence[str]) -> None:
    """Install those of the packages that are missing, without starting their services.

    Their services do not start at the next boot either. No installed package is removed for them.

    Raises:
        LocalError: some are missing and cannot be installed by this user, or here.
    """
    if not APT.exists():
        raise LocalError(f"install {' '.join(packages)}: this machine has no apt-get")
    # Two runs of apt-get at once would fail: each takes the locks of dpkg.
    with locked(layout, "apt"):
        wanted = missing(packages)
        note = layout.cache / "apt-packages"
        new = sorted({*wanted, *(note.read_text().split() if note.exists() else [])})
        if not new:
            return
        if os.geteuid() != 0:
            raise LocalError(f"installing {' '.join(new)} needs root; run the command with sudo")
        # Whatever interrupts this: the next run disables the services of these packages.
        files.write(note, " ".join(new))
        if wanted:
            _install(layout, wanted)
        _disable(units(new))
        note.unlink()


def _install(layout: Layout, wanted: Sequence[str]) -> None:
    progress.say(f"installing Debian packages: {' '.join(wanted)}")
    log = layout.logs / "apt.log"
    progress.run(["apt-get", "update"], label="apt-get update", log=log, timeout=600)
    with _no_services():
        _apt_install(wanted, log)


def _apt_install(wanted: Sequence[str], log: Path) -> None:
    argv = ["apt-get", "install", "-y", "--no-remove", "--no-install-recommends", *wanted]
    environment = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    try:
        progress.run(argv, label="apt-get install", log=log, timeout=1200, environment=environment)
    except CommandFailedError:
        in_the_way = removals(log.read_text(errors="replace"))
        if not in_the_way:
            raise
        raise LocalError(
            f"Debian would remove {', '.join(in_the_way)} to install {' '.join(wanted)}; nothing "
            "was installed or removed. Remove these packages yourself if you do not need them, or "
            "use another machine, or your own cluster with CONTEXT=…"
        ) from None


def removals(log: str) -> list[str]:
    """The installed packages that apt-get would have to remove, from its English output."""
    _, _, after = log.partition("The following packages will be REMOVED:\n")
    lines = itertools.takewhile(lambda line: line.startswith("  "), after.splitlines())
    return " ".join(lines).replace("*", "").split()


def units(packages: Sequence[str]) -> list[str]:
    """The names of the services and sockets that installed packages bring for systemd."""
    # It fails for a name that only other packages provide, but still lists the others' files.
    query = ["dpkg-query", "--listfiles", *packages]
    listed = subprocess.run(query, capture_output=True, text=True, timeout=30).stdout
    paths = [Path(line) for line in listed.splitlines()]
    return sorted(
        path.name
        for path in paths
        if path.parent in UNIT_FOLDERS and path.suffix in (".service", ".socket")
    )


def _disable(names: Sequence[str]) -> None:
    """Keep services from starting at boot, where they would take the ports of the cluster.

    As ``systemctl disable``, which a machine without systemd lacks.
    """
    for link in list(ENABLED.glob("*.wants/*")):
        if link.name in names:
            link.unlink()


@contextlib.contextmanager
def _no_services() -> Iterator[None]:
    """Prevent Debian from starting the services of installed packages."""
    ours = not POLICY.exists() or POLICY.read_text() == POLICY_TEXT
    if ours:
        POLICY.write_text(POLICY_TEXT)
        POLICY.chmod(0o755)
    try:
        yield
    finally:
        if ours:
            POLICY.unlink()
