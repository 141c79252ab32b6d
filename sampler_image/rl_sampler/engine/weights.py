"""The pod's weights folder, shared with the engine.

``base/`` is the model as the manifest names it; ``policies/<version>-<epoch>-<nonce>/`` are
published policies, verified before they have that name; ``current`` links to the folder that the
engine starts from: the newest policy, or the model where policies are adapters. ``adapter`` then
links to the newest policy. Runs that share an engine have a folder each, and the model lies beside.
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
    adapters: bool = False
    """Policies are adapters: the engine starts from the model and is given them."""
    base_folder: Path | None = None
    """Where the model lies; None: in here."""

    @property
    def base(self) -> Path:
        """The model that training started from."""
        return self.base_folder or self.root / "base"

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

    @property
    def policy(self) -> Path:
        """The link to the newest policy."""
        return self.root / "adapter" if self.adapters else self.current

    def link_current(self, folder: Path) -> None:
        """Let the engine's next start begin from this folder."""
        self._link(self.current, folder)

    def link_policy(self, folder: Path) -> None:
        """Let the next process begin from this policy."""
        self._link(self.policy, folder)

    def unlink_policy(self) -> None:
        """Let the next process begin without a policy."""
        if self.adapters:
            self.policy.unlink(missing_ok=True)
        else:
            self.link_current(self.base)

    def linked_policy(self) -> PolicyPointer | None:
        """The policy that was linked last; None for the base model or no link."""
        note = self.policy / POINTER_FILE
        return PolicyPointer.model_validate_json(note.read_bytes()) if note.is_file() else None

    def _link(self, link: Path, folder: Path) -> None:
        fresh = link.with_name(f"{link.name}.new")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(os.path.relpath(folder, self.root))
        fresh.replace(link)
