"""`kubectl rl` as a single file, for those without pip, and its archives for Krew.

``python -m rl_local.kubectl_rl --out out/kubectl-rl`` makes a file for this machine; with
``--platform linux/arm64`` for another one. The file is a zip that Python runs. Some of its
libraries are compiled, and Python cannot load those from a zip, so the file unpacks itself once
into ``~/.cache/kubectl-rl`` and runs from there. It holds them for each of ``PYTHONS``.
"""

from __future__ import annotations

import argparse
import hashlib
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipapp
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = {
    "linux/amd64": ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"),
    "linux/arm64": ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"),
    "darwin/amd64": ("macosx_13_0_x86_64", "macosx_11_0_x86_64", "macosx_10_12_x86_64"),
    "darwin/arm64": ("macosx_14_0_arm64", "macosx_12_0_arm64", "macosx_11_0_arm64"),
}
OWN = ("contracts/rl_contracts", "console/rl_console")
LEFT_OUT = ("matplotlib",)
"""A third of the size. Without it `report` draws no curve, and says what to install."""
UNREAD = ("__pycache__", "*.pyc", "tests", "test", "*.pyi", "bin", "RECORD", "direct_url.json")
MAIN = '''\
"""Unpacks the libraries once, and runs the command line."""
import os
import pathlib
import shutil
import sys
import tempfile
import zipfile

DIGEST = "{digest}"
if not {lowest} <= sys.version_info[:2] <= {highest}:
    sys.exit("kubectl-rl needs Python {first} to {last}, and this is "
             + ".".join(map(str, sys.version_info[:2])))
base = os.environ.get("XDG_CACHE_HOME") or str(pathlib.Path.home() / ".cache")
folder = pathlib.Path(base, "kubectl-rl", DIGEST)
if not folder.is_dir():
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = tempfile.mkdtemp(dir=folder.parent)
    with zipfile.ZipFile(sys.argv[0]) as archive:
        archive.extractall(made, [name for name in archive.namelist() if name.startswith("site/")])
    try:
        os.rename(made, folder)
    except OSError:  # another process was first
        shutil.rmtree(made, ignore_errors=True)
sys.path.insert(0, str(folder / "site"))
from rl_console.app import main

main()
'''


def requirements(pyproject: dict[str, object]) -> list[str]:
    """What the console needs, without what is left out and without the project itself."""
    project = pyproject["project"]
    assert isinstance(project, dict)
    extras: dict[str, list[str]] = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["contracts"], *extras["dashboard"]]
    return [each for each in wanted if not each.startswith(("rl-operator[", *LEFT_OUT))]


def install(folder: Path, wanted: Sequence[str], *, python: str, platforms: Iterable[str]) -> None:
    """Install the libraries for one version of Python into an empty folder."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"]
    command += ["--no-warn-conflicts", "--disable-pip-version-check", "--root-user-action=ignore"]
    command += ["--target", str(folder), "--constraint", str(ROOT / "constraints.txt")]
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", python]
    for tag in platforms:
        command += ["--platform", tag]
    subprocess.run([*command, *wanted], check=True)


def digest_of(folder: Path) -> str:
    """A digest of all files of a folder, by name and content."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(str(path.relative_to(folder)).encode() + b"\0")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def archive(site: Path, out: Path) -> None:
    """Make the file from a folder of libraries, with ours added.

    Args:
        site: libraries; ours are copied into it.
        out: the file; it is executable.
    """
    for package in OWN:
        source = ROOT / package
        shutil.copytree(source, site / source.name, dirs_exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder)
        shutil.copytree(site, whole / "site", ignore=shutil.ignore_patterns(*UNREAD))
        lowest, highest = (tuple(map(int, each.split("."))) for each in (PYTHONS[0], PYTHONS[-1]))
        (whole / "__main__.py").write_text(
            MAIN.format(
                digest=digest_of(whole / "site"),
                lowest=lowest,
                highest=highest,
                first=PYTHONS[0],
                last=PYTHONS[-1],
            )
        )
        out.parent.mkdir(parents=True, exist_ok=True)
        zipapp.create_archive(whole, out, interpreter="/usr/bin/env python3", compressed=True)
    out.chmod(0o755)


def here() -> str:
    """The platform of this machine."""
    machine = platform.machine()
    return f"{sys.platform}/{ {'x86_64': 'amd64', 'aarch64': 'arm64'}.get(machine, machine) }"


def main() -> None:
    """Make the single file."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--platform", choices=PLATFORMS, default=here())
    arguments = parser.parse_args()
    wanted = requirements(tomllib.loads((ROOT / "pyproject.toml").read_text()))
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder, "site")
        for python in PYTHONS:
            # pip replaces whole packages of a folder; compiled files of several versions have
            # different names, so they can lie side by side.
            python_folder = Path(folder, python)
            install(python_folder, wanted, python=python, platforms=PLATFORMS[arguments.platform])
            shutil.copytree(python_folder, site, dirs_exist_ok=True)
        archive(site, arguments.out)
    size = arguments.out.stat().st_size / 1e6
    print(f"{arguments.out}: {size:.1f} MB for {arguments.platform}, Python {', '.join(PYTHONS)}")


if __name__ == "__main__":
    main()
