"""Removes the folders outside the state folder that the cluster's programs create.

The machine's own containerd or kubelet uses the same folders, so `up` notes which of them are new.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from rl_local import progress
from rl_local.layout import Layout
from rl_local.system import files, records, teardown

# The kubelet makes links in this fixed folder.
POD_LOG_LINKS = Path("/var/log/containers")
# Fixed folders that programs create; they cannot be configured.
FIXED_PLACES = (
    POD_LOG_LINKS,
    Path("/run/containerd"),
    Path("/var/lib/cni"),
    Path("/var/lib/kubelet"),
)
# A restart of the machine empties it.
VOLATILE = Path("/run")
PROC = Path("/proc")
# The kernel's names of processes that use the fixed folders.
USERS = ("containerd", "containerd-shim", "crio", "dockerd", "kubelet")


@dataclass(frozen=True, slots=True)
class Note:
    """The fixed folders that did not exist before `up`.

    Attributes:
        boot_id: the boot that `up` ran in.
        places: their paths.
    """

    boot_id: str
    places: list[str]

    def still_ours(self) -> list[str]:
        """Those that no restart of the machine has removed since."""
        same_boot = self.boot_id == records.boot_id()
        return [
            place for place in self.places if same_boot or not Path(place).is_relative_to(VOLATILE)
        ]


def _path(layout: Layout) -> Path:
    return layout.state / "places.json"


def _read(layout: Layout) -> Note:
    path = _path(layout)
    noted = json.loads(path.read_text()) if path.exists() else []
    # Earlier versions wrote the list alone, without the boot.
    return Note("", noted) if isinstance(noted, list) else Note(**noted)


def remember(layout: Layout) -> None:
    """Record which of the fixed folders do not exist before anything is started in this boot."""
    noted = _read(layout)
    if noted.boot_id != records.boot_id():
        new = [str(place) for place in FIXED_PLACES if not place.exists()]
        # What exists already may hold the data of another program that runs now.
        ours = [] if other_users(layout) else noted.still_ours()
        note = Note(records.boot_id(), sorted({*ours, *new}))
        files.write(_path(layout), json.dumps(asdict(note)))


def other_users(layout: Layout) -> list[str]:
    """The running processes that use the fixed folders and are not of this cluster."""
    users = []
    for path in PROC.glob("[0-9]*/comm"):
        pid = int(path.parent.name)
        stat = records.read_stat(pid, PROC)
        try:
            name = path.read_text().strip()
            arguments = path.with_name("cmdline").read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        # Ours name the state folder. One that has just ended may not be reaped yet.
        ended = stat is None or stat.state == "Z"
        if name in USERS and not ended and f"{layout.state}/" not in arguments:
            users.append(f"{name} (process {pid})")
    return sorted(users)


def remove(layout: Layout) -> None:
    """Remove our links to pod logs, and the fixed folders that did not exist before.

    The folders stay when another program uses them; a line says so.
    """
    links = POD_LOG_LINKS.iterdir() if POD_LOG_LINKS.is_dir() else iter(())
    for link in links:
        if link.is_symlink() and str(link.readlink()).startswith(f"{layout.state}/"):
            link.unlink()
    left = [place for place in _read(layout).still_ours() if Path(place).exists()]
    users = other_users(layout) if left else []
    if users:
        progress.say(
            f"left {', '.join(left)}, because programs that are not of this cluster run and may"
            f" use them: {', '.join(users)}; remove these folders yourself when nothing needs them"
        )
        return
    for place in left:
        teardown.remove_tree(Path(place))
