"""What differs in pods of programs that each serve one episode (``runsIn: EpisodePod``).

The init container leaves a token that the server takes away before it listens, and whose digest is
where programs cannot write: a container that is started again in the same pod finds none, and
serves nobody. The root file system may be written: nothing of it survives the pod.
"""

from __future__ import annotations

from typing import Any

from rl_operator.render import disk

Manifest = dict[str, Any]

FOLDER = "/run/rl-once"
VOLUME = "once"
HARBOR = {"tests": "/tests", "logs": "/logs"}
"""Volumes of Harbor tasks and their folders, which the format names."""
FOLDER_SIZE = "1Gi"
SECONDS = 1
"""Between probes: a pod that was claimed soon gets no more calls."""


def serving_once(container: Manifest, *, harbor: bool) -> Manifest:
    """The program's container, whose server serves one call and ends.

    ``harbor``: with the folders of Harbor tasks, for what only a superuser could make there.
    """
    added = [{"name": name, "mountPath": place} for name, place in HARBOR.items() if harbor]
    return container | {
        "args": [*container["args"], "--once", FOLDER],
        "securityContext": container["securityContext"] | {"readOnlyRootFilesystem": False},
        "readinessProbe": container["readinessProbe"]
        | {"periodSeconds": SECONDS, "failureThreshold": 1},
        "volumeMounts": [*container["volumeMounts"], _mount(), *added],
    }


def marking(init: Manifest) -> Manifest:
    """The init container, which also leaves the token."""
    return init | {
        "command": [*init["command"], "--once", FOLDER],
        "volumeMounts": [*init["volumeMounts"], _mount()],
    }


def volumes(*, harbor: bool) -> list[Manifest]:
    """The volume of the token, and those of Harbor tasks."""
    added = [disk.volume(name, FOLDER_SIZE) for name in HARBOR if harbor]
    return [disk.in_memory(VOLUME, disk.SMALL), *added]


def _mount() -> Manifest:
    return {"name": VOLUME, "mountPath": FOLDER}
