"""Images of a run: stored under their SHA-256, and as the engine is given them."""

from __future__ import annotations

import base64
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rl_contracts.stores.files.images import ImageStore
from rl_sampler.engine.shared_stores import SharedStores

T = TypeVar("T")

KEPT_BYTES = 128 << 20


class ImageFiles:
    """Stored images as data URIs; the latest are kept. Blocks: call it in threads."""

    def __init__(self, *, kept_bytes: int = KEPT_BYTES) -> None:
        """Begin without any; keep at most so many bytes, and the latest image in any case."""
        self._limit = kept_bytes
        self._kept: OrderedDict[str, str] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def of(self, store: ImageStore, images: Sequence[str]) -> tuple[str, ...]:
        """The images of these SHA-256, in their order; raises what the store raises."""
        return tuple(self._file(store, sha256) for sha256 in images)

    def put(self, store: ImageStore, png: bytes) -> str:
        """Store an image and keep it; returns its SHA-256, raises what the store raises."""
        sha256 = store.put(png)
        self._keep(sha256, _data_uri(png))
        return sha256

    def _file(self, store: ImageStore, sha256: str) -> str:
        kept = self._kept.get(sha256)
        if kept is None:
            kept = _data_uri(store.get(sha256))
            self._keep(sha256, kept)
        return kept

    def _keep(self, sha256: str, file: str) -> None:
        with self._lock:
            if sha256 in self._kept:
                return  # another thread has read it meanwhile
            self._kept[sha256] = file
            self._bytes += len(file)
            while self._bytes > self._limit and len(self._kept) > 1:
                _, dropped = self._kept.popitem(last=False)
                self._bytes -= len(dropped)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunImages:
    """The images of one run, for asyncio. An outage of the bucket is waited for."""

    shared: SharedStores
    run: str
    files: ImageFiles = field(default_factory=ImageFiles)

    async def read(self, images: Sequence[str]) -> tuple[str, ...]:
        """The images of these SHA-256 as data URIs.

        Raises:
            ObjectMissingError, IntegrityError: one is not there, or not the one that was stored.
        """
        return await self._call(lambda store: self.files.of(store, images)) if images else ()

    async def put(self, png: bytes) -> str:
        """Store an image of a size that the model takes; returns its SHA-256."""
        return await self._call(lambda store: self.files.put(store, png))

    async def _call(self, function: Callable[[ImageStore], T]) -> T:
        stores = self.shared.stores
        store = ImageStore(stores.objects, run_prefix=stores.run_prefix(self.run))
        # The claim that waits for it cancels it when it ends.
        return await self.shared.until_done(lambda: function(store))


def _data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()
