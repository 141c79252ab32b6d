"""MCP servers of others, as their packages are: in an environment of their own, never in ours."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from rl_local import venv

REQUIREMENTS = Path(__file__).with_name("third-party-requirements.txt")
NAME = "venv-mcp"


def environment() -> Path:
    """Folder of the programs; installed on the first use, and kept outside the checkout."""
    cache = Path(os.environ.get("RL_CACHE") or Path.home() / ".cache/rl-operator")
    pins = REQUIREMENTS.read_bytes()
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{NAME}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = venv.ensure_keyed(
            cache,
            name=NAME,
            key=venv.key([], pins),
            build=lambda folder: venv.install(
                folder, ["--no-deps", "--requirement", str(REQUIREMENTS)]
            ),
        )
    return folder / "bin"
