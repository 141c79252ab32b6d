"""The console as a single file, and its manifest for Krew; building it needs a network."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rl_local import krew, kubectl_rl

ROOT = Path(__file__).resolve().parents[3]
FAKE = "def main() -> None:\n    print('the console', __file__)\n"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file whose console prints where it runs."""
    package = tmp_path / "checkout" / "rl_console"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "app.py").write_text(FAKE)
    monkeypatch.setattr(kubectl_rl, "ROOT", tmp_path / "checkout")
    monkeypatch.setattr(kubectl_rl, "OWN", ("rl_console",))
    site = tmp_path / "site"
    (site / "library" / "tests").mkdir(parents=True)
    (site / "library" / "tests" / "large.py").write_text("x = 1\n")
    kubectl_rl.archive(site, tmp_path / "out" / "kubectl-rl")
    return tmp_path / "out" / "kubectl-rl"


def run(file: Path, cache: Path) -> str:
    environment = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(cache)}
    command = [sys.executable, "-I", str(file)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def test_the_file_unpacks_itself_once_and_runs(file: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first, second = run(file, cache), run(file, cache)
    assert first == second
    assert first.startswith(f"the console {cache}/kubectl-rl/")
    (unpacked,) = (cache / "kubectl-rl").iterdir()
    assert not list(unpacked.rglob("large.py"))
    assert os.access(file, os.X_OK)


def test_it_holds_what_the_console_needs_and_no_curves() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    names = [requirement.split(">")[0] for requirement in kubectl_rl.requirements(project)]
    assert {"kubernetes", "typer", "pydantic", "pyyaml", "minio"} <= set(names)
    assert "matplotlib" not in names
    assert not any(name.startswith("rl-operator") for name in names)


def test_krew_gets_an_archive_for_each_platform(tmp_path: Path) -> None:
    for platform in kubectl_rl.PLATFORMS:
        (tmp_path / krew.archive_name(platform)).write_text(platform)
    spec = krew.manifest(tmp_path, version="v0.1.0", repository="owner/name")["spec"]
    assert len(spec["platforms"]) == 4
    first = spec["platforms"][0]
    assert first["selector"]["matchLabels"] == {"os": "linux", "arch": "amd64"}
    assert first["uri"].endswith("/v0.1.0/kubectl-rl-linux-amd64.tar.gz")
    assert len({each["sha256"] for each in spec["platforms"]}) == 4
    assert len(spec["shortDescription"]) < 50


def test_the_release_builds_what_krew_names() -> None:
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    assert " ".join(kubectl_rl.PLATFORMS) in workflow
