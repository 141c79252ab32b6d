"""Images in results of tools: taken within the manifest's limits, decoded, and stored."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from rl_contracts.documents.task import ImagePart
from rl_contracts.images.bounds import bounds
from rl_contracts.images.decoder import BadImageError, Decoder
from rl_contracts.spec.data import Images
from rl_sampler.engine.images import RunImages

MOST = 8
"""Of one result; further images are left out."""
LEFT_OUT = "[image left out]"
"""What the policy is shown in place of an image that it is not shown."""


class ToolImages:
    """Brings images of tools into the run's folder in the bucket."""

    def __init__(self, limits: Images, decoder: Decoder, *, images: RunImages) -> None:
        """Use a decoder.

        Args:
            limits: the manifest's.
            decoder: makes images of the size in which the model sees them.
            images: where they go.
        """
        self._limits, self._decoder, self._images = limits, decoder, images

    def close(self) -> None:
        """End the process that decodes."""
        self._decoder.close()

    async def take(self, files: Sequence[str]) -> tuple[list[ImagePart], list[str]]:
        """Store the images of a result.

        Args:
            files: in base64, as the tool sent them.

        Returns:
            The images that the policy is shown, and a note for each of the others.
        """
        taken: list[ImagePart] = []
        notes: list[str] = []
        for number, file in enumerate(files):
            try:
                if number >= MOST:
                    raise BadImageError(f"is one more than the {MOST} of a result")
                taken.append(await self._stored(file))
            except BadImageError as error:
                notes.append(f"{LEFT_OUT[:-1]}: it {error}]")
        return taken, notes

    async def _stored(self, file: str) -> ImagePart:
        size, most = len(file) * 3 // 4, self._limits.max_bytes
        if size > most + 2:
            raise BadImageError(f"has {size} bytes, more than spec.data.images.maxBytes = {most}")
        try:
            content = base64.b64decode(file, validate=True)
        except (binascii.Error, ValueError) as error:
            raise BadImageError("is not in base64") from error
        decoded = await asyncio.to_thread(self._decoder.decode, content)
        sha256 = await self._images.put(decoded.png)
        return ImagePart(sha256=sha256, width=decoded.width, height=decoded.height)


def tool_images(
    limits: Images, processor: Mapping[str, Any], *, side: int, images: RunImages
) -> ToolImages:
    """What takes images of tools for a model.

    Args:
        limits: the manifest's.
        processor: content of the model's ``preprocessor_config.json``.
        side: pixels on each side of what a token stands for.
        images: where they go.

    Raises:
        RefusedError: a limit of the manifest is not within the model's.
    """
    pixels = bounds(limits, processor)
    decoder = Decoder(side=side, fewest=pixels.fewest, most=pixels.most)
    return ToolImages(limits, decoder, images=images)
