"""Models of the hub: the commit that a run uses and its files in the bucket."""

from __future__ import annotations

import hashlib
from typing import Literal

from rl_contracts.documents.base import Record
from rl_contracts.errors import IntegrityError

Part = Literal["model", "tokenizer"]
"""``model``: weights, config and tokenizer of a repository; ``tokenizer``: only its tokenizer."""


class ModelFile(Record):
    """A file of a model in the bucket."""

    name: str
    size_bytes: int
    sha256: str


class ModelFiles(Record):
    """List of a model's files in the bucket, written after them; its name holds its own digest."""

    repo: str
    commit: str
    part: Part
    files: list[ModelFile]
    """Sorted by name."""

    def to_bytes(self) -> bytes:
        """JSON; every pod that imports the same commit writes the same bytes."""
        return self.model_dump_json(indent=1).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes, *, sha256: str) -> ModelFiles:
        """Parse the stored list.

        Raises:
            IntegrityError: the digest differs.
        """
        digest = hashlib.sha256(data).hexdigest()
        if digest != sha256:
            raise IntegrityError(f"list of a model's files has digest {digest}, expected {sha256}")
        return cls.model_validate_json(data)


class PinnedModel(Record):
    """The commit that a run uses for a model, even if its branch has moved since."""

    uri: str
    """URI in the manifest, ``hf://org/name``."""
    revision: str
    """Branch, tag or commit that was resolved when the run began."""
    commit: str
    files_sha256: str = ""
    """Digest of the list of its files; empty until all files are in the bucket."""
