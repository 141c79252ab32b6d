"""The project's virtual environment, kept outside the checkout and keyed by what is in it.

``python3 -m rl_local.venv`` makes it when missing and prints the path of its interpreter. The
packages of the checkout are not installed into it: the Makefile puts their folders on
``PYTHONPATH``, so that several checkouts share one environment.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SELF = "rl-operator["


def requirements(pyproject: dict[str, object]) -> list[str]:
    """Every requirement of the project and all of its extras, without the project itself."""
    project = pyproject["project"]
    assert isinstance(project, dict)
    extras: dict[str, list[str]] = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(one for extra in extras.values() for one in extra)]
    return sorted({one for one in wanted if not one.startswith(SELF)})


def key(wanted: list[str], constraints: bytes) -> str:
    """A short digest of the environment's contents and of the interpreter that runs it."""
    text = "\n".join([sys.version, *wanted]).encode() + constraints
    return hashlib.sha256(text).hexdigest()[:12]


def create(folder: Path, wanted: list[str], constraints: Path) -> None:
    """Build the environment in place; a marker file is written last, so that half of one is none."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "--constraint", str(constraints), *wanted], check=True)
    (folder / ".complete").touch()


def ensure(cache: Path) -> Path:
    """Return the interpreter of a complete environment under ``cache``; build it when missing."""
    constraints = ROOT / "constraints.txt"
    wanted = requirements(tomllib.loads((ROOT / "pyproject.toml").read_text()))
    folder = cache / f"venv-{key(wanted, constraints.read_bytes())}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "venv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".complete").exists():
            started = time.monotonic()
            print(f"venv: installing {len(wanted)} requirements into {folder}", file=sys.stderr)
            create(folder, wanted, constraints)
            print(f"venv: ready after {time.monotonic() - started:.0f} s", file=sys.stderr)
        link = cache / "venv"
        if not link.is_symlink() or link.resolve() != folder.resolve():
            link.unlink(missing_ok=True)
            link.symlink_to(folder)
    return folder / "bin/python"


def main() -> None:
    """Make the environment when missing and print its interpreter."""
    cache = os.environ.get("RL_CACHE") or str(Path.home() / ".cache/rl-operator")
    print(ensure(Path(cache)))


if __name__ == "__main__":
    main()
