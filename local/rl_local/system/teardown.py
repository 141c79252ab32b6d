"""Removes what pods leave behind: processes, control groups, and mounts."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from rl_local import progress
from rl_local.errors import LocalError
from rl_local.layout import CGROUP, Layout
from rl_local.system import records

CGROUPS = Path("/sys/fs/cgroup")
SHIM = b"containerd-shim-runc-v2"


def group_roots() -> list[Path]:
    """The cluster's control group in every hierarchy (version 1) or the single one (version 2)."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS / CGROUP]
    return [path / CGROUP for path in CGROUPS.iterdir() if (path / "cgroup.procs").exists()]


def make_groups() -> None:
    """Create the control groups for pods, which the kubelet expects to exist."""
    for root in group_roots():
        root.mkdir(exist_ok=True)


def kill_pods(layout: Layout) -> int:
    """Kill all processes of all pods and their shims; return their number."""
    killed = 0
    while victims := _pod_processes(layout):
        records.kill_all(victims.values())
        killed += len(victims)
    return killed


def _pod_processes(layout: Layout) -> dict[int, records.Record]:
    shims = list(_shims(layout.containerd_socket))
    members = [record for root in group_roots() for record in _members(root)]
    return {record.pid: record for record in [*shims, *members] if record.alive()}


def _shims(socket: Path) -> Iterator[records.Record]:
    """The shims that serve our containerd; their command line names its socket."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if words[0].endswith(SHIM) and os.fsencode(socket) in words:
            record = records.of_process(int(folder.name), "")
            if record is not None:
                yield record


def _members(group: Path) -> Iterator[records.Record]:
    # os.walk, unlike rglob, tolerates groups that vanish meanwhile.
    for folder, _, _ in os.walk(group):
        try:
            pids = [int(word) for word in Path(folder, "cgroup.procs").read_text().split()]
        except OSError as error:
            # The group vanished between being listed and being read.
            if error.errno not in (errno.ENOENT, errno.ENODEV):
                raise
            continue
        for pid in pids:
            record = records.of_process(pid, "")
            if record is not None:
                yield record


def forget_containers(layout: Layout) -> bool:
    """Delete containerd's killed containers, so that its images can be kept.

    Returns:
        False when that failed; another cluster must then not reuse the pulled images.
    """
    try:
        progress.wait_until(
            lambda: _forgotten(layout.containerd_socket), what="containers to be gone", seconds=15
        )
    except LocalError as error:
        progress.say(f"also removing pulled images: {error}")
        return False
    return True


def _forgotten(socket: Path) -> bool:
    ctr = [
        "ctr",
        "--address",
        str(socket),
        "--timeout",
        "5s",
        "--namespace",
        "k8s.io",
        "containers",
    ]
    names = progress.output([*ctr, "list", "--quiet"]).split()
    # Deletion fails until containerd has noticed that the shim was killed.
    for name in names:
        subprocess.run([*ctr, "delete", name], capture_output=True, timeout=30)
    return not names


def remove_groups() -> None:
    """Remove the control groups, the deepest first."""
    for root in group_roots():
        folders = sorted((path for path in root.rglob("*") if path.is_dir()), reverse=True)
        for folder in [*folders, *([root] if root.exists() else [])]:
            progress.wait_until(
                lambda folder=folder: _removed(folder),  # type: ignore[misc]
                what=f"control group {folder} to be empty",
                seconds=10,
            )


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def mounts_below(mountinfo: str, folder: Path) -> list[str]:
    r"""The mount points at and below ``folder``, the last mounted first.

    Args:
        mountinfo: the text of /proc/self/mountinfo, which writes a space as ``\040``.
        folder: an absolute path.
    """
    points = [_unescape(line.split()[4]) for line in mountinfo.splitlines()]
    inside = [point for point in points if point == str(folder) or point.startswith(f"{folder}/")]
    return inside[::-1]


def _unescape(point: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), point)


def unmount_below(folder: Path) -> None:
    """Unmount everything at and below ``folder``.

    Raises:
        LocalError: a mount remains.
    """
    for point in mounts_below(Path("/proc/self/mountinfo").read_text(), folder):
        subprocess.run(["umount", point], capture_output=True, timeout=30)
    left = mounts_below(Path("/proc/self/mountinfo").read_text(), folder)
    for point in left:
        progress.output(["umount", "--lazy", point])
    left = mounts_below(Path("/proc/self/mountinfo").read_text(), folder)
    if left:
        raise LocalError(
            f"still mounted: {', '.join(left)}; end the processes that use it (`fuser -m`)"
        )


def remove_tree(folder: Path) -> None:
    """Remove a folder after unmounting everything in it: a bind mount must not be emptied."""
    if folder.exists():
        unmount_below(folder)
        shutil.rmtree(folder)


def remove_shim_sockets(layout: Layout) -> None:
    """Remove the sockets of killed shims, which are outside the state folder."""
    for note in (layout.state / "containerd/run").glob("io.containerd.runtime.v2.task/*/*/address"):
        Path(note.read_text().removeprefix("unix://")).unlink(missing_ok=True)
