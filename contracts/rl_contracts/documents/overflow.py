"""What of a document is too large for the document store and lies in the bucket instead."""

from __future__ import annotations

import hashlib

from rl_contracts.documents.base import Record
from rl_contracts.errors import IntegrityError

OVERFLOW_BYTES = 8 << 20
"""A larger array lies in the bucket; so do the largest fields of a document that is larger."""
FIELD = "overflow"
"""Of the stored document: a Piece by the name of the field that it is the value of."""


class Piece(Record):
    """One field's value as an object of the bucket."""

    key: str
    sha256: str
    size_bytes: int

    @classmethod
    def of(cls, content: bytes, *, prefix: str, field: str) -> Piece:
        """The object for ``content``; the same content always has the same key.

        Args:
            content: the bytes.
            prefix: of all pieces of the document; ends with a slash.
            field: whose value it is.
        """
        digest = hashlib.sha256(content).hexdigest()
        key = f"{prefix}{field}-{digest[:16]}"
        return cls(key=key, sha256=digest, size_bytes=len(content))

    def check(self, content: bytes, *, uri: str) -> bytes:
        """Return ``content``; raises IntegrityError, naming ``uri``, when it is not that."""
        digest = hashlib.sha256(content).hexdigest()
        if digest != self.sha256:
            raise IntegrityError(
                f"{uri} has {len(content)} bytes of digest {digest}, "
                f"expected {self.size_bytes} of {self.sha256}"
            )
        return content
