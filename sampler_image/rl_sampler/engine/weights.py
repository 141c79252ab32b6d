"""The pod's weights folder, shared with the engine.

- ``base/``: the model of the manifest.
- ``policies/<version>-<epoch>-<nonce>/``: published policies, verified before they get this name.
- ``handover/``: policies that a trainer in this pod hands over; absent where there is none.
- ``current``: a link to the folder that the engine starts from: the newest policy, or the model
  where policies are adapters.
- ``adapter``: a link to the newest policy where policies are adapters.

Runs that share an engine have a folder each and share the model's folder.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from rl_contracts.documents.run import PolicyPointer
from rl_contracts.turns import HANDOVER, folder_name

POINTER_FILE = "pointer.json"
MANIFEST_FILE = "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A published policy on the local disk, verified."""

    pointer: PolicyPointer
    folder: Path
    size_bytes: int = 0
    """Of its tensors."""
    seconds: float = field(default=0.0, compare=False)
    """That staging took, reading into memory included; 0 where an earlier process staged it."""


@dataclass(frozen=True, slots=True)
class WeightsFolder:
    """Paths in the weights folder."""

    root: Path
    adapters: bool = False
    """Policies are adapters: the engine starts from the model and loads them later."""
    base_folder: Path | None = None
    """Folder of the model; None for ``base/`` of this folder."""

    @property
    def base(self) -> Path:
        """Folder of the model that training starts from."""
        return self.base_folder or self.root / "base"

    @property
    def policies(self) -> Path:
        """Folder of staged policies."""
        return self.root / "policies"

    @property
    def handover(self) -> Path:
        """Folder where a trainer of this pod puts policies."""
        return self.root / HANDOVER

    @property
    def current(self) -> Path:
        """The link that the engine starts from."""
        return self.root / "current"

    def of_policy(self, pointer: PolicyPointer) -> Path:
        """Folder of a verified policy."""
        return self.policies / folder_name(pointer.prefix)

    @property
    def policy(self) -> Path:
        """The link to the newest policy."""
        return self.root / "adapter" if self.adapters else self.current

    def link_current(self, folder: Path) -> None:
        """Set the folder that the engine's next start loads."""
        self._link(self.current, folder)

    def link_policy(self, folder: Path) -> None:
        """Set the policy that the next process starts from."""
        self._link(self.policy, folder)

    def unlink_policy(self) -> None:
        """Let the next process start without a policy."""
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
