"""The pod's weights folder, shared with the engine.

``base/`` is the model as the manifest names it; ``policies/<version>-<epoch>-<nonce>/`` are
published policies, verified before they have that name; ``current`` links to the folder that the
engine starts from.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from rl_contracts.documents.run import PolicyPointer

POINTER_FILE = "pointer.json"
MANIFEST_FILE = "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A published policy on the local disk, verified."""

    pointer: PolicyPointer
    folder: Path


@dataclass(frozen=True, slots=True)
class WeightsFolder:
    """Names of what lies where."""

    root: Path

    @property
    def base(self) -> Path:
        """The model that training started from."""
        return self.root / "base"

    @property
    def policies(self) -> Path:
        """Folder of staged policies."""
        return self.root / "policies"

    @property
    def current(self) -> Path:
        """The link that the engine starts from."""
        return self.root / "current"

    def of_policy(self, pointer: PolicyPointer) -> Path:
        """Where a policy lies once it is verified."""
        return self.policies / pointer.prefix.rstrip("/").rsplit("/", 1)[-1]

    def link_current(self, folder: Path) -> None:
        """Let the engine's next start begin from this folder."""
        fresh = self.root / "current.new"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(os.path.relpath(folder, self.root))
        fresh.replace(self.current)

    def linked_policy(self) -> PolicyPointer | None:
        """The policy that ``current`` links to; None for the base model or no link."""
        note = self.current / POINTER_FILE
        return PolicyPointer.model_validate_json(note.read_bytes()) if note.is_file() else None
