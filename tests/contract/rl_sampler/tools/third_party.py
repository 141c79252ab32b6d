"""MCP servers of others, as their packages are: in an environment of their own, never in ours."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from rl_local import venv

REQUIREMENTS = Path(__file__).with_name("third-party-requirements.txt")
NAME = "venv-mcp"


def environment(requirements: Path = REQUIREMENTS, name: str = NAME) -> Path:
    """Folder of the programs; installed on the first use, and kept outside the checkout.

    Args:
        requirements: the pins of all packages.
        name: of the environment.
    """
    cache = Path(os.environ.get("RL_CACHE") or Path.home() / ".cache/rl-operator")
    pins = requirements.read_bytes()
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = venv.ensure_keyed(
            cache,
            name=name,
            key=venv.key([], pins),
            build=lambda folder: venv.install(
                folder, ["--no-deps", "--requirement", str(requirements)]
            ),
        )
    return folder / "bin"
