"""Where policies are taken from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Source(Protocol):
    """The bucket, or a peer with the bucket behind it."""

    def get(self, key: str) -> bytes:
        """An object whole; raises ObjectMissingError, StoreUnavailableError."""

    def read_range(
        self, key: str, *, offset: int, size_bytes: int, consume: Callable[[bytes], None]
    ) -> None:
        """Hand bytes to ``consume``, in order and each once.

        Raises:
            IntegrityError: the object ends before that.
            ObjectMissingError, StoreUnavailableError: as they say.
        """
