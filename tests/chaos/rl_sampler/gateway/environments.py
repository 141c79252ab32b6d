"""Environments of programs of others, as their packages are: never in ours."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from rl_local import venv

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"


def python_of(name: str, *, folder: Path = HERE) -> str:
    """The interpreter of an environment; installed on its first use, outside the checkout.

    Args:
        name: of the environment; ``<name>-requirements.txt`` has its pins.
        folder: of that file.
    """
    requirements = folder / f"{name}-requirements.txt"
    cache = Path(os.environ.get("RL_CACHE") or Path.home() / ".cache/rl-operator")
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"venv-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = venv.ensure_keyed(
            cache,
            name=f"venv-{name}",
            key=venv.key([], requirements.read_bytes()),
            build=lambda folder: venv.install(
                folder, ["--no-deps", "--requirement", str(requirements)]
            ),
        )
    return str(made / "bin/python")
