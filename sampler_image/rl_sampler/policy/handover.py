"""Policies that a trainer in the same pod puts into the weights folder, instead of the bucket.

They are taken over by links, so that no byte is copied, and verified like any other policy.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from rl_contracts.documents.manifest import Manifest
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.errors import IntegrityError
from rl_contracts.turns import folder_name
from rl_sampler.engine.weights import MANIFEST_FILE, WeightsFolder


def offered(weights: WeightsFolder, pointer: PolicyPointer) -> bool:
    """Whether the trainer of this pod has handed over a policy; its manifest comes last."""
    return (weights.handover / folder_name(pointer.prefix) / MANIFEST_FILE).is_file()


def link(offer: Path, manifest: Manifest, folder: Path) -> None:
    """Link the manifest's files into a new folder.

    Raises:
        IntegrityError: one is missing.
    """
    folder.mkdir(parents=True)
    for entry in manifest.files:
        try:
            os.link(offer / entry.name, folder / entry.name)
        except FileNotFoundError as error:
            raise IntegrityError(f"{entry.name} of {offer.name} was not handed over") from error


def discard(weights: WeightsFolder, *, through: str) -> None:
    """Remove what was handed over up to a policy's folder; names begin with the version."""
    for folder in weights.handover.iterdir():
        if folder.name <= through:
            shutil.rmtree(folder)
