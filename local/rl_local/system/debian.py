"""Installs Debian packages that the cluster or the tests need and that are missing."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from rl_local import progress, versions
from rl_local.errors import LocalError
from rl_local.layout import Layout

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
    if not Path("/usr/bin/apt-get").exists():
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

    Raises:
        LocalError: some are missing and cannot be installed by this user, or here.
    """
    if not Path("/usr/bin/apt-get").exists():
        raise LocalError(f"install {' '.join(packages)}: this machine has no apt-get")
    wanted = missing(packages)
    if not wanted:
        return
    if os.geteuid() != 0:
        raise LocalError(f"installing {' '.join(wanted)} needs root; run the command with sudo")
    progress.say(f"installing Debian packages: {' '.join(wanted)}")
    log = layout.logs / "apt.log"
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    progress.run(["apt-get", "update"], label="apt-get update", log=log, timeout=600)
    with _no_services():
        argv = ["apt-get", "install", "-y", "--no-install-recommends", *wanted]
        progress.run(argv, label="apt-get install", log=log, timeout=1200, environment=quiet)


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
