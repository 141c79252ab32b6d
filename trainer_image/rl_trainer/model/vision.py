"""Images of a microbatch: patches of their pixels, and positions in three dimensions (M-RoPE).

Only forms of Qwen2.5-VL (arXiv 2502.13923) and Qwen3-VL (arXiv 2511.21631) are known. transformers
computes all of it: the patches by the model's own image processor, the positions and the vision
tower by the model. Stored images have a size that needs no resizing, so that the engine's processor
makes the same patches of them.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol

import torch
from PIL import Image
from torch import Tensor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from rl_contracts.documents.rollout import ImageSpan
from rl_contracts.errors import RLError
from rl_trainer.algorithm.packing import Packed
from rl_trainer.errors import ShareUnreadableError
from rl_trainer.model.kept import Kept

FAMILIES = ("qwen2_5_vl", "qwen3_vl")
"""``model_type`` of the models whose images can be trained."""
CACHED_BYTES = 256 << 20
"""Of patches that are kept for the next pass over the same images."""
STORED_BYTES = 256 << 20
"""Of files of a share's images that are held, and one file more: patches have eight times the
bytes of an image's pixels."""

_tokens: ContextVar[Tensor | None] = ContextVar("image_tokens", default=None)


def has_vision(config: Mapping[str, Any]) -> bool:
    """Whether a ``config.json`` is that of a model with a vision tower."""
    return config.get("vision_config") is not None


class StoredImages(Protocol):
    """Images in a store: PNG files by SHA-256."""

    def get(self, sha256: str, /) -> bytes:
        """Read a file; raises RLError where it cannot be read."""


class Vision:
    """Makes what a model is given beside tokens; it keeps what it made last."""

    def __init__(self, folder: Path, images: StoredImages) -> None:
        """Use a model's image processor.

        Args:
            folder: of the model, for its ``preprocessor_config.json``.
            images: fetches stored images.

        Raises:
            OSError, ValueError: it has none.
        """
        self._processor = Qwen2VLImageProcessorPil.from_pretrained(folder, local_files_only=True)
        self._images = images
        self._patches = _kept_patches()
        self._files: dict[str, bytes] = {}
        self._held = 0
        """Bytes of these files."""
        self._drawn = False

    @property
    def _width(self) -> int:
        """Numbers of a patch."""
        of = self._processor
        return 3 * int(of.temporal_patch_size) * int(of.patch_size) ** 2

    @property
    def side(self) -> int:
        """Pixels on each side of the square that a token stands for."""
        return int(self._processor.patch_size * self._processor.merge_size)

    def grid(self, image: ImageSpan) -> tuple[int, int, int]:
        """Numbers of patches of an image in time, height and width."""
        size = self._processor.patch_size
        return 1, image.height // size, image.width // size

    def begin_share(self, wanted: Collection[str]) -> None:
        """Hold no files but those of a share's images; ``fetch`` then fetches the others of it."""
        self._files = {name: file for name, file in self._files.items() if name in wanted}
        self._held = sum(map(len, self._files.values()))

    def fetch(self, sha256: str) -> None:
        """Read the file of an image of the share, also where its patches are kept: they may go.

        It is held unless there are ``STORED_BYTES`` of files; then a pass will read it again.

        Raises:
            RLError: what the store raises.
        """
        if sha256 in self._files:
            return
        file = self._images.get(sha256)
        if self._held < STORED_BYTES:
            self._files[sha256] = file
            self._held += len(file)

    def _file(self, image: ImageSpan) -> bytes:
        held = self._files.get(image.sha256)
        return self._images.get(image.sha256) if held is None else held

    def patches(self, image: ImageSpan) -> Tensor:
        """Normalized pixels of an image, float32 ``[patches, channels * 2 * size * size]``.

        Raises:
            RLError: what the store raises.
        """
        return self._patches.get(image.sha256, lambda: self._made(image))

    def _needed(self, image: ImageSpan) -> Tensor:
        try:
            return self.patches(image)
        except RLError as error:
            raise ShareUnreadableError.of("images", error) from error

    def _made(self, image: ImageSpan) -> Tensor:
        if self._drawn:
            rows = self.grid(image)[1] * self.grid(image)[2]
            generator = torch.Generator().manual_seed(int(image.sha256, 16))
            return torch.randn(rows, self._width, generator=generator)
        with Image.open(io.BytesIO(self._file(image)), formats=("PNG",)) as opened:
            made = self._processor(opened, do_resize=False, return_tensors="pt")
        assert made["image_grid_thw"].tolist() == [list(self.grid(image))], "not as it was stored"
        patches: Tensor = made["pixel_values"]
        return patches

    def probe(self, number: int, height: int, width: int, *, start: int) -> ImageSpan:
        """An image for trying a model, of so many tokens; ``with_probes`` knows its pixels."""
        return ImageSpan(
            sha256=f"{number:064x}",
            width=width * self.side,
            height=height * self.side,
            start=start,
            end=start + height * width,
        )

    def with_probes(self) -> Vision:
        """The same for images that ``probe`` names, which no store holds."""
        made = copy.copy(self)
        made._patches = _kept_patches()
        made._drawn = True
        return made

    def inputs(self, layers: Any, packed: Packed) -> dict[str, Tensor]:
        """What the layers of a model are given for a row of T tokens beside the tokens.

        ``position_ids`` is int64 ``[4, 1, T]``: the position in the sequence, then those in time,
        height and width (M-RoPE); the others are there where the row has images.

        Raises:
            ShareUnreadableError: an image that is not held cannot be read.
        """
        device = packed.tokens.device
        given = {"position_ids": self._positions(layers, packed)}
        if packed.images:
            pixels = [self._needed(image) for image in packed.images]
            given["pixel_values"] = torch.cat(pixels).to(device)
            grids = [self.grid(image) for image in packed.images]
            given["image_grid_thw"] = torch.tensor(grids, device=device)
        return given

    def _positions(self, layers: Any, packed: Packed) -> Tensor:
        parts, first = [], 0
        for length in packed.lengths:
            end = first + length
            images = [image for image in packed.images if first <= image.start < end]
            own = packed.positions[:, first:end].expand(3, 1, -1)
            if images:
                kinds = torch.zeros(1, length, dtype=torch.int32)
                for image in images:
                    kinds[:, image.start - first : image.end - first] = 1
                own, _ = layers.get_rope_index(
                    packed.tokens[:, first:end],
                    mm_token_type_ids=kinds,
                    image_grid_thw=torch.tensor([self.grid(image) for image in images]),
                )
            parts.append(torch.cat([packed.positions[None, :, first:end], own]))
            first = end
        return torch.cat(parts, dim=2)


def _kept_patches() -> Kept[Tensor]:
    return Kept(CACHED_BYTES, lambda patches: patches.nbytes)


def prepare(module: Any) -> None:
    """Have a model take for images the tokens that ``showing`` names, and no others.

    transformers takes all tokens of the placeholder's id for images. A policy may generate that
    token, too: then it is a token like any other, as in the engine.
    """
    layers = module.base_model
    own = layers.get_placeholder_mask

    def mask(*args: Any, **options: Any) -> Any:
        tokens = _tokens.get()
        if tokens is None:
            return own(*args, **options)
        return tokens[..., None], torch.zeros_like(tokens[..., None])

    layers.get_placeholder_mask = mask


@contextmanager
def showing(packed: Packed) -> Iterator[None]:
    """A pass over a row: which of its tokens stand for images."""
    tokens = torch.zeros_like(packed.tokens, dtype=torch.bool)
    for image in packed.images:
        tokens[:, image.start : image.end] = True
    held = _tokens.set(tokens)
    try:
        yield
    finally:
        _tokens.reset(held)


def freeze(module: Any) -> None:
    """Train the language model alone."""
    module.base_model.visual.requires_grad_(False)


def towers(model: Any) -> list[Any]:
    """The vision tower of a model, if it has one; only rows with images pass it."""
    tower = getattr(model.base_model, "visual", None)
    return [] if tower is None else [tower]
