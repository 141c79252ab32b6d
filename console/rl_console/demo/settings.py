"""Settings of the demo and the names of its objects."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from rl_console.errors import StageFailedError
from rl_console.tools import Tools

RELEASE = "rl-operator"
RELEASE_NAMESPACE = "rl-system"
NAMESPACE = "rl-demo"
JOB = "arithmetic"
IMAGES = ("operator", "trainer", "sampler", "engine", "store", "minio")
RESTRICTED = {
    f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")
}


def read_images(path: Path) -> dict[str, str]:
    """Read the references of the chart's images from a JSON file; other images are ignored.

    Raises:
        StageFailedError: one is missing.
    """
    references = json.loads(path.read_text())
    missing = [image for image in IMAGES if image not in references]
    if missing:
        raise StageFailedError(
            f"{path} names no image for {', '.join(missing)}", remedy="Run `make images` again."
        )
    return {image: references[image] for image in IMAGES}


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """Paths, images and tools that the demo uses."""

    tools: Tools
    checkout: Path
    """Root of the checkout, which holds ``charts`` and ``examples``."""
    images: dict[str, str]
    """Full image references by name; the names are ``IMAGES``."""
    cache: Path
    """Folder that is kept after the demo, so that model and data are made only once."""
    out: Path
    """Folder to write the results to."""
    storage_class: str = ""
    """StorageClass of the stores' volumes; empty means the cluster's default."""

    @property
    def example(self) -> Path:
        """Folder of the example's scripts."""
        return self.checkout / "examples" / JOB

    @property
    def manifest(self) -> Path:
        """The example's RLJob."""
        return self.checkout / "examples" / f"{JOB}.yaml"
