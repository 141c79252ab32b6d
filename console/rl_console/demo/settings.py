"""What the demo is told, and the names that it uses."""

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
    """References of the chart's images, from a JSON file that may name more of them.

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
    """Where everything is."""

    tools: Tools
    checkout: Path
    """Holds ``charts`` and ``examples``."""
    images: dict[str, str]
    """Full references by the names of ``IMAGES``."""
    cache: Path
    """Outlives the demo: the model and the data are made once."""
    out: Path
    """Receives the results."""
    storage_class: str = ""
    """Of the stores' volumes; empty: the cluster's default."""

    @property
    def example(self) -> Path:
        """Folder of the example's scripts."""
        return self.checkout / "examples" / JOB

    @property
    def manifest(self) -> Path:
        """The example's RLJob."""
        return self.checkout / "examples" / f"{JOB}.yaml"
