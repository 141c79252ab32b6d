"""The base image's file system: a minimal Debian with Python, made by debootstrap."""

from __future__ import annotations

import hashlib
from pathlib import Path

from rl_local import progress, versions
from rl_local.layout import Layout, locked
from rl_local.system import scratch, teardown

PACKAGES = ("ca-certificates", "python3", "python3-venv")
# Files that containers do not need, and files that debootstrap copies from this machine.
USELESS = (
    "etc/hostname",
    "etc/resolv.conf",
    "var/cache/apt",
    "var/lib/apt/lists",
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
)


def path_of(layout: Layout) -> Path:
    """Path of the archive once it is built."""
    text = f"{versions.DEBIAN_SUITE} {PACKAGES} {USELESS} {versions.BUILD_RECIPE}"
    key = hashlib.sha256(text.encode()).hexdigest()[:12]
    return layout.cache / "artifacts" / f"rootfs-{key}.tar"


def ensure(layout: Layout) -> Path:
    """Build the archive if it is missing and return its path."""
    target = path_of(layout)
    if not target.exists():
        with locked(layout, "build-rootfs"):
            if not target.exists():
                _build(layout, target)
    return target


def mirrors(listing: str) -> list[str]:
    """The mirrors of Debian's main archive that this machine's apt uses.

    Args:
        listing: lines of ``apt-get indextargets --format '$(CODENAME) $(COMPONENT) $(REPO_URI)'``.
    """
    words = (line.split() for line in listing.splitlines())
    wanted = [word[2] for word in words if word[:2] == [versions.DEBIAN_SUITE, "main"]]
    return list(dict.fromkeys(wanted))


def _build(layout: Layout, target: Path) -> None:
    log = layout.logs / "build-rootfs.log"
    wanted = ["--format", "$(CODENAME) $(COMPONENT) $(REPO_URI)", "Created-By: Packages"]
    listing = progress.output(["apt-get", "indextargets", *wanted])
    include = f"--include={','.join(PACKAGES)}"
    with scratch.folder(layout, "rootfs") as work:
        # Without a mirror of this machine, debootstrap uses Debian's.
        argv = ["debootstrap", "--variant=minbase", include, versions.DEBIAN_SUITE, str(work)]
        argv += mirrors(listing)[:1]
        progress.run(argv, label="build base file system", log=log, timeout=1200)
        for name in USELESS:
            _empty(work / name)
        target.parent.mkdir(parents=True, exist_ok=True)
        half = target.with_suffix(".half")
        pack = ["tar", "--numeric-owner", "--sort=name", "-C", str(work), "-cf", str(half), "."]
        progress.run(pack, label="pack base file system", log=log)
        half.replace(target)


def _empty(path: Path) -> None:
    if path.is_dir():
        teardown.remove_tree(path)
        path.mkdir()
    else:
        path.unlink()
