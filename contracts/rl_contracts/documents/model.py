"""A model of the hub as a run has it: which commit, and what lies of it in the bucket."""

from __future__ import annotations

import hashlib
from typing import Literal

from rl_contracts.documents.base import Record
from rl_contracts.errors import IntegrityError

Part = Literal["model", "tokenizer"]
"""Of a repository: its weights, config and tokenizer, or its tokenizer alone."""


class ModelFile(Record):
    """One file of it."""

    name: str
    size_bytes: int
    sha256: str


class ModelFiles(Record):
    """All files of it in the bucket, written after them under a name made of its own digest."""

    repo: str
    commit: str
    part: Part
    files: list[ModelFile]
    """By name."""

    def to_bytes(self) -> bytes:
        """The stored form: the same for everybody who brings the same commit."""
        return self.model_dump_json(indent=1).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes, *, sha256: str) -> ModelFiles:
        """Parse the stored form.

        Raises:
            IntegrityError: it has another digest.
        """
        digest = hashlib.sha256(data).hexdigest()
        if digest != sha256:
            raise IntegrityError(f"list of a model's files has digest {digest}, expected {sha256}")
        return cls.model_validate_json(data)


class PinnedModel(Record):
    """The commit that a run's model is, whatever its revision names by now."""

    uri: str
    """As the manifest names it, ``hf://org/name``."""
    revision: str
    """Branch, tag or commit that was resolved, once."""
    commit: str
    files_sha256: str = ""
    """Digest of the list of its files; empty until all of them are in the bucket."""
