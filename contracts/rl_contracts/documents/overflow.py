"""Fields that are too large for the document store and are kept in the bucket instead."""

from __future__ import annotations

import hashlib
from typing import Annotated

from pydantic import Field

from rl_contracts.documents.base import Record
from rl_contracts.errors import IntegrityError

OVERFLOW_BYTES = 8 << 20
"""A stored document that is larger moves its largest fields to the bucket."""
PIECE_BYTES = (1 << 31) - 1
"""Of one field: BSON counts its bytes in 32 bits (https://bsonspec.org/spec.html)."""
FIELD = "overflow"
"""Field of the stored document that maps names of moved fields to their Pieces."""


class Piece(Record):
    """A field's value that is kept as an object in the bucket."""

    key: str
    sha256: str
    size_bytes: Annotated[int, Field(ge=0, le=PIECE_BYTES)]

    @classmethod
    def of(cls, content: bytes, *, prefix: str, field: str) -> Piece:
        """Describe the object for ``content``; the same content always gets the same key.

        Args:
            content: the field's bytes.
            prefix: key prefix of the document's pieces; ends with a slash.
            field: name of the field.
        """
        digest = hashlib.sha256(content).hexdigest()
        key = f"{prefix}{field}-{digest[:16]}"
        return cls(key=key, sha256=digest, size_bytes=len(content))

    def check(self, content: bytes, *, uri: str) -> bytes:
        """Return ``content``; raises IntegrityError, naming ``uri``, when its digest differs."""
        digest = hashlib.sha256(content).hexdigest()
        if digest != self.sha256:
            raise IntegrityError(
                f"{uri} has {len(content)} bytes of digest {digest}, "
                f"expected {self.size_bytes} of {self.sha256}"
            )
        return content
