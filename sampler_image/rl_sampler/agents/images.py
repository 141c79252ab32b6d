"""Images of a task: as the engine takes them, and where they are in what was sampled."""

from __future__ import annotations

import base64
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from rl_contracts.documents.rollout import ImageSpan
from rl_contracts.documents.task import ImagePart
from rl_contracts.images.placeholders import Placeholders
from rl_contracts.stores.images import ImageStore
from rl_sampler.agents.trace import Trace

KEPT_BYTES = 128 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The images that the prompt of every sequence of a group shows."""

    placeholders: Placeholders
    images: tuple[ImagePart, ...]
    """In their order; at least one."""
    files: tuple[str, ...]
    """The same as data URIs."""

    def prompt(self, context: Sequence[int]) -> list[int]:
        """A context as the engine takes it: with one placeholder for each image."""
        return self.placeholders.collapsed(context, self.images)

    def generated(self, tokens: Sequence[int]) -> bool:
        """Whether a response holds a placeholder: behind it the engine takes no more images."""
        return self.placeholders.token in tokens

    def spans(self, trace: Trace) -> list[ImageSpan]:
        """Where the images are in the sequences of a trace."""
        if not trace.tokens:
            return []  # it failed before its prompt
        starts = [0, *trace.sequence_starts]
        ends = [*trace.sequence_starts, len(trace.tokens)]
        return [
            span
            for start, end in zip(starts, ends, strict=True)
            for span in self.placeholders.spans(
                trace.tokens[start:end], trace.mask[start:end], self.images, start=start
            )
        ]


class ImageFiles:
    """Stored images as data URIs; the latest are kept. Blocks: call it in threads."""

    def __init__(self, *, kept_bytes: int = KEPT_BYTES) -> None:
        """Begin without any; keep at most so many bytes, and the latest image in any case."""
        self._limit = kept_bytes
        self._kept: OrderedDict[str, str] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def of(self, store: ImageStore, images: Sequence[ImagePart]) -> tuple[str, ...]:
        """The images in their order; raises what the store raises."""
        return tuple(self._file(store, image.sha256) for image in images)

    def _file(self, store: ImageStore, sha256: str) -> str:
        kept = self._kept.get(sha256)
        if kept is None:
            kept = "data:image/png;base64," + base64.b64encode(store.get(sha256)).decode()
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
