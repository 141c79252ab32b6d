"""The manifest of `kubectl rl` for Krew, kubectl's plugin manager.

``python -m rl_local.krew --version v0.1.0 --repository owner/name FOLDER`` prints it, for archives
``kubectl-rl-<os>-<arch>.tar.gz`` in the folder, which become files of the release of that version.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

from rl_local.kubectl_rl import PLATFORMS, PYTHONS


def archive_name(platform: str) -> str:
    """File name of a platform's archive, e.g. ``kubectl-rl-linux-amd64.tar.gz``."""
    return f"kubectl-rl-{platform.replace('/', '-')}.tar.gz"


def manifest(folder: Path, *, version: str, repository: str) -> dict[str, Any]:
    """The manifest of a release.

    Args:
        folder: with an archive for each platform.
        version: tag of the release, e.g. ``v0.1.0``.
        repository: owner and name on GitHub.
    """
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "rl"},
        "spec": {
            "version": version,
            "homepage": f"https://github.com/{repository}",
            "shortDescription": "Run RL post-training jobs",
            "description": "Write, check, run and watch RL post-training jobs (RLJob) of "
            "rl-operator.",
            "caveats": f"Needs Python {PYTHONS[0]} to {PYTHONS[-1]}. Unpacks itself into "
            "~/.cache/kubectl-rl on its first run.",
            "platforms": [
                _platform(folder / archive_name(name), name, version, repository)
                for name in PLATFORMS
            ],
        },
    }


def _platform(archive: Path, platform: str, version: str, repository: str) -> dict[str, Any]:
    system, machine = platform.split("/")
    return {
        "selector": {"matchLabels": {"os": system, "arch": machine}},
        "uri": f"https://github.com/{repository}/releases/download/{version}/{archive.name}",
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "bin": "kubectl-rl",
    }


def main() -> None:
    """Print the manifest as JSON, which is YAML too."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--version", required=True)
    parser.add_argument("--repository", required=True)
    arguments = parser.parse_args()
    written = manifest(arguments.folder, version=arguments.version, repository=arguments.repository)
    print(json.dumps(written, indent=2))


if __name__ == "__main__":
    main()
