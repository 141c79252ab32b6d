"""Krew, kubectl's plugin manager, installs what a release offers it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

from rl_local import krew, kubectl_rl
from tests.servers import ROOT, binary
from tests.waiting import HUNG_SECONDS

VERSION = "v0.1.0"


def packed(folder: Path, platform: str) -> Path:
    """The archive of a platform, as the release's workflow makes it."""
    archive = folder / krew.archive_name(platform)
    with tarfile.open(archive, "w:gz") as file:
        file.add(folder / "kubectl-rl", "kubectl-rl")
        file.add(ROOT / "LICENSE", "LICENSE")
    return archive


def test_krew_installs_the_console_for_kubectl(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rl_local.kubectl_rl", "--out", str(tmp_path / "kubectl-rl")]
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": "local"})
    archives = {platform: packed(tmp_path, platform) for platform in kubectl_rl.PLATFORMS}
    manifest = krew.manifest(tmp_path, version=VERSION, repository="owner/name")
    (tmp_path / "rl.yaml").write_text(json.dumps(manifest))
    kubectl, root = Path(binary("kubectl")), tmp_path / "root"
    environ = os.environ | {
        "KREW_ROOT": str(root),
        "PATH": os.pathsep.join([str(root / "bin"), str(kubectl.parent), os.environ["PATH"]]),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }

    def run(*arguments: str) -> str:
        done = subprocess.run(
            arguments,
            env=environ,
            capture_output=True,
            text=True,
            timeout=HUNG_SECONDS,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, (arguments, done.stderr)
        return done.stdout + done.stderr

    # Without --archive Krew fetches the file from the release; its other commands want its index.
    given = f"--archive={archives[kubectl_rl.here()]}"
    installed = run(binary("krew"), "install", f"--manifest={tmp_path / 'rl.yaml'}", given)
    assert "Installed plugin: rl" in installed
    assert run(str(kubectl), "rl", "--version").strip() == f"kubectl-rl {VERSION.removeprefix('v')}"
