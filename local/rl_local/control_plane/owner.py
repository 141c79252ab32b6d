"""Notes which state folder the cluster of this machine has: a machine can have only one cluster.

Ports, control groups, bridge and packet filter are the machine's, whatever RL_STATE and RL_CACHE
say. The note is below /run: a restart of the machine removes it with all of these.
"""

from __future__ import annotations

from pathlib import Path

from rl_local.control_plane import processes
from rl_local.errors import LocalError
from rl_local.layout import Layout
from rl_local.system import files


def claim(layout: Layout) -> None:
    """Note that the machine's cluster is this one, before anything of it is started.

    Raises:
        LocalError: it is another one.
    """
    noted = _noted(layout)
    if noted is None:
        files.write(_path(layout), str(layout.state))
    elif noted != layout.state:
        raise _another(noted, layout)


def release(layout: Layout) -> None:
    """Remove the note, after everything else of the cluster was removed."""
    _path(layout).unlink(missing_ok=True)


def present(layout: Layout) -> bool:
    """Whether something of this cluster may be on the machine, also of an interrupted `up`.

    Raises:
        LocalError: its processes were started once, but the machine's cluster is now another one.
    """
    launched = processes.any_launched(layout)
    noted = _noted(layout)
    if noted is None:
        # Started before a restart of the machine, or by a version that made no note.
        return launched
    if noted != layout.state and launched:
        raise _another(noted, layout)
    return noted == layout.state


def _path(layout: Layout) -> Path:
    return layout.run / "state-folder"


def _noted(layout: Layout) -> Path | None:
    path = _path(layout)
    return Path(path.read_text()) if path.exists() else None


def _another(noted: Path, layout: Layout) -> LocalError:
    return LocalError(
        f"the local cluster of this machine is in {noted}, not in {layout.state}, and a machine"
        f" can have only one; remove it first: RL_STATE={noted} make down"
    )
