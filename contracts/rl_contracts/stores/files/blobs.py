"""Files of a run in the bucket, each under its SHA-256; written once, deleted with the run."""

from __future__ import annotations

import hashlib

from rl_contracts.errors import IntegrityError, ObjectMissingError
from rl_contracts.stores.objects import Objects


class BlobStore:
    """Stored files of one kind."""

    folder: str
    """Of the run's keys, with a slash at its end."""
    suffix: str
    most_bytes: int
    """Of a file."""

    def __init__(self, objects: Objects, *, run_prefix: str) -> None:
        """Use the files of a run.

        Args:
            objects: of the stores' bucket.
            run_prefix: of the run's keys.
        """
        self._objects, self._prefix = objects, f"{run_prefix}{self.folder}"

    def put(self, file: bytes) -> str:
        """Store a file unless it is there; returns its SHA-256."""
        sha256 = hashlib.sha256(file).hexdigest()
        try:
            self._objects.stat(self._key(sha256))
        except ObjectMissingError:
            self._objects.put(self._key(sha256), file)
        return sha256

    def get(self, sha256: str, *, most: int | None = None) -> bytes:
        """Read a file.

        Args:
            sha256: its name.
            most: bytes of the file; None: ``most_bytes``.

        Raises:
            ObjectTooLargeError: it is larger.
            IntegrityError: it is not the one that was stored.
            ObjectMissingError, StoreUnavailableError: as the bucket's.
        """
        file = self._objects.get(self._key(sha256), most=self.most_bytes if most is None else most)
        if hashlib.sha256(file).hexdigest() != sha256:
            raise IntegrityError(f"{self._key(sha256)} is not the file that was stored")
        return file

    def _key(self, sha256: str) -> str:
        return f"{self._prefix}{sha256}{self.suffix}"
