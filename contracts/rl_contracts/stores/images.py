"""Images of a run in the bucket, each under its SHA-256; written once, deleted with the run."""

from __future__ import annotations

import hashlib

from rl_contracts.errors import IntegrityError, ObjectMissingError
from rl_contracts.stores.objects import Objects

FOLDER = "images/"
PNG_BYTES = 128 << 20
"""Of a stored image: it has at most 16,777,216 pixels (``spec.data.images.maxPixels``)."""


class ImageStore:
    """Stored images: PNG files of a size that models take as it is."""

    def __init__(self, objects: Objects, *, run_prefix: str) -> None:
        """Use the images of a run.

        Args:
            objects: of the stores' bucket.
            run_prefix: of the run's keys.
        """
        self._objects, self._prefix = objects, f"{run_prefix}{FOLDER}"

    def put(self, png: bytes) -> str:
        """Store an image unless it is there; returns its SHA-256."""
        sha256 = hashlib.sha256(png).hexdigest()
        try:
            self._objects.stat(self._key(sha256))
        except ObjectMissingError:
            self._objects.put(self._key(sha256), png)
        return sha256

    def get(self, sha256: str) -> bytes:
        """Read an image.

        Raises:
            IntegrityError: it is not the one that was stored.
            ObjectMissingError, StoreUnavailableError: as the bucket's.
        """
        png = self._objects.get(self._key(sha256), most=PNG_BYTES)
        if hashlib.sha256(png).hexdigest() != sha256:
            raise IntegrityError(f"image {self._key(sha256)} is not the one that was stored")
        return png

    def _key(self, sha256: str) -> str:
        return f"{self._prefix}{sha256}.png"
