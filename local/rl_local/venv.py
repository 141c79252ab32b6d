"""Virtual environments of the project, kept outside the checkout and keyed by their contents.

``python3 -m rl_local.venv`` makes both when missing and prints the interpreter of the first one.
With ``--demo`` it makes a smaller one, for `make demo CONTEXT=…`, unless the first one exists.
The packages of the checkout are not installed: the Makefile puts their folders on ``PYTHONPATH``,
so that several checkouts share one environment. The second environment runs the real engine in
tests; it holds what the engine's image adds to torch and sees the first one's packages behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

from rl_local.build.images import files_of
from rl_local.errors import LocalError, sentence
from rl_local.layout import Layout
from rl_local.system import debian

ROOT = Path(__file__).resolve().parents[2]
SELF = "rl-operator["
ENGINE_REQUIREMENTS = ROOT / "sampler_image/engine-cpu-requirements.txt"
DEMO_SCRIPTS = ("torch", "transformers", "safetensors", "numpy")
"""What `examples/arithmetic` imports."""
ENGINE_SHIM = "sampler_image/engine_cpu_shim"


def requirements(pyproject: dict[str, object]) -> list[str]:
    """Every requirement of the project and all of its extras, without the project itself."""
    project = pyproject["project"]
    assert isinstance(project, dict)
    extras: dict[str, list[str]] = project["optional-dependencies"]
    wanted = [
        *project["dependencies"],
        *(requirement for extra in extras.values() for requirement in extra),
    ]
    return _foreign(wanted)


def _foreign(wanted: list[str]) -> list[str]:
    """Requirements by name, without those that name extras of this project."""
    return sorted({requirement for requirement in wanted if not requirement.startswith(SELF)})


def demo_requirements(pyproject: dict[str, object]) -> list[str]:
    """What the demo needs on a cluster of yours: the console, and the scripts of its example."""
    project = pyproject["project"]
    assert isinstance(project, dict)
    extras: dict[str, list[str]] = project["optional-dependencies"]
    scripts = [
        requirement
        for requirement in extras["trainer"]
        if re.split(r"[=<>]", requirement)[0] in DEMO_SCRIPTS
    ]
    return _foreign(
        [*project["dependencies"], *extras["contracts"], *extras["dashboard"], *scripts]
    )


def key(wanted: list[str], constraints: bytes) -> str:
    """A short digest of the environment's contents and of the interpreter that runs it."""
    text = "\n".join([sys.version, *wanted]).encode() + constraints
    return hashlib.sha256(text).hexdigest()[:12]


def require_ensurepip() -> None:
    """Install what Debian's Python lacks to make environments, if it is missing and we are root.

    Raises:
        LocalError: it is missing, and only the user can install it.
    """
    if _has_ensurepip():
        return
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    if debian.APT.exists() and os.geteuid() == 0:
        debian.install(Layout.from_environment(), [package])
        importlib.invalidate_caches()
        if _has_ensurepip():
            return
    raise LocalError(
        f"{sys.executable} cannot make virtual environments: its module ensurepip is missing. "
        f"Install it, on Debian and Ubuntu with `apt-get install {package}`, or name another "
        "Python: PYTHON=…"
    )


def _has_ensurepip() -> bool:
    return importlib.util.find_spec("ensurepip") is not None


def install(folder: Path, arguments: list[str]) -> None:
    """Create an environment and install into it; replaces what the folder held."""
    require_ensurepip()
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, *arguments], check=True)


def site_packages(folder: Path) -> Path:
    """The site-packages folder of an environment."""
    return next((folder / "lib").glob("python3*/site-packages"))


def create(folder: Path, wanted: list[str], constraints: Path) -> None:
    """Build the project's environment."""
    install(folder, ["--constraint", str(constraints), *wanted])


def create_engine(folder: Path, project: Path) -> None:
    """Build the engine's environment on top of the project's."""
    install(folder, ["--no-deps", "--requirement", str(ENGINE_REQUIREMENTS)])
    packages = site_packages(folder)
    shutil.copytree(ROOT / ENGINE_SHIM, packages, dirs_exist_ok=True)
    (packages / "behind.pth").write_text(f"{site_packages(project)}\n")


def ensure_keyed(cache: Path, *, name: str, key: str, build: Callable[[Path], None]) -> Path:
    """Return ``cache/name-key``, built if it is not complete, and link ``cache/name`` to it.

    A marker file is written last, so an interrupted build counts as missing.
    """
    folder = cache / f"{name}-{key}"
    if not (folder / ".complete").exists():
        started = time.monotonic()
        print(f"{name}: installing into {folder}", file=sys.stderr)
        build(folder)
        (folder / ".complete").touch()
        print(f"{name}: ready after {time.monotonic() - started:.0f} s", file=sys.stderr)
    link = cache / name
    if link.is_symlink() and link.resolve() != folder.resolve():
        link.unlink()
    if not link.is_symlink():
        link.symlink_to(folder)
    return folder


def shim(root: Path) -> list[str]:
    """Sources of the shim that replaces the engine's compiled parts, without bytecode.

    Args:
        root: root of the checkout.
    """
    return [path.read_text() for path in files_of(root, ENGINE_SHIM).values()]


def ensure_demo(cache: Path) -> Path:
    """Return an interpreter that can run the demo: the project's environment if it is there."""
    constraints = ROOT / "constraints.txt"
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    whole = cache / f"venv-{key(requirements(pyproject), constraints.read_bytes())}"
    if (whole / ".complete").exists():
        return whole / "bin/python"
    wanted = demo_requirements(pyproject)
    with _locked(cache):
        folder = ensure_keyed(
            cache,
            name="venv-demo",
            key=key(wanted, constraints.read_bytes()),
            build=lambda folder: create(folder, wanted, constraints),
        )
    return folder / "bin/python"


@contextlib.contextmanager
def _locked(cache: Path) -> Iterator[None]:
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "venv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def ensure(cache: Path) -> Path:
    """Return the interpreter of the project's environment; build missing environments."""
    constraints = ROOT / "constraints.txt"
    wanted = requirements(tomllib.loads((ROOT / "pyproject.toml").read_text()))
    project_key = key(wanted, constraints.read_bytes())
    engine_key = key([project_key, *shim(ROOT)], ENGINE_REQUIREMENTS.read_bytes())
    with _locked(cache):
        project = ensure_keyed(
            cache,
            name="venv",
            key=project_key,
            build=lambda folder: create(folder, wanted, constraints),
        )
        ensure_keyed(
            cache,
            name="venv-engine",
            key=engine_key,
            build=lambda folder: create_engine(folder, project),
        )
    return project / "bin/python"


def main() -> int:
    """Build missing environments; print the project's interpreter, with ``--demo`` the demo's."""
    cache = Path(os.environ.get("RL_CACHE") or Path.home() / ".cache/rl-operator")
    try:
        print(ensure_demo(cache) if sys.argv[1:] == ["--demo"] else ensure(cache))
    except LocalError as error:
        print(f"venv: {error}", file=sys.stderr)
        return 1
    except (OSError, subprocess.SubprocessError) as error:
        print(f"venv: {sentence(error, cache)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
