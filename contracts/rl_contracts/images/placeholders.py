"""Tokens that stand for images in a sequence. Pure.

A chat template writes one placeholder for each image. The model takes as many as the image has
squares of patches; the engine is given one, and makes as many of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from rl_contracts.documents.rollout import ImageSpan
from rl_contracts.documents.task import ImagePart
from rl_contracts.errors import RLError

PATCHES = {"qwen2_5_vl": 14, "qwen3_vl": 16}
"""Pixels on each side of a patch where the config does not say it, by ``model_type``."""
MERGED = 2
MOST_SIDE = 256
"""Of a patch in pixels, and of what is merged in patches: a config is not trusted."""


class PlaceholderError(RLError):
    """Tokens have other placeholders than images; the message ends a sentence about them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placeholders:
    """The placeholders of a model."""

    token: int
    """Id of the placeholder."""
    side: int
    """Pixels on each side of what a token stands for."""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:
        """Those of the model of a ``config.json``; None where it does not see images."""
        vision, token = config.get("vision_config"), config.get("image_token_id")
        size = PATCHES.get(str(config.get("model_type")))
        if not isinstance(vision, Mapping) or not isinstance(token, int) or size is None:
            return None
        size, merged = vision.get("patch_size", size), vision.get("spatial_merge_size", MERGED)
        if not all(isinstance(each, int) and 0 < each <= MOST_SIDE for each in (size, merged)):
            return None
        return cls(token=token, side=size * merged)

    def count(self, image: ImagePart) -> int:
        """Tokens that stand for an image."""
        return (image.width // self.side) * (image.height // self.side)

    def expanded(self, tokens: Sequence[int], images: Sequence[ImagePart]) -> list[int]:
        """Tokens with as many placeholders for each image as the model takes.

        Raises:
            PlaceholderError: there is not one placeholder for each image.
        """
        self.check(tokens, images)
        counts, made = iter(images), list[int]()
        for token in tokens:
            made += [token] * (self.count(next(counts)) if token == self.token else 1)
        return made

    def check(self, tokens: Sequence[int], images: Sequence[ImagePart]) -> None:
        """Raise PlaceholderError unless there is one placeholder for each image."""
        present = list(tokens).count(self.token)
        if present != len(images):
            raise PlaceholderError(
                f"have {present} placeholders of images, and there are {len(images)} images"
            )

    @staticmethod
    def collapsed(tokens: Sequence[int], images: Sequence[ImageSpan]) -> list[int]:
        """Tokens with one placeholder for each image: what ``expanded`` was given.

        Args:
            tokens: of a sequence.
            images: where they are in it, ascending.
        """
        made, at = list[int](), 0
        for image in images:
            made += tokens[at : image.start + 1]
            at = image.end
        return [*made, *tokens[at:]]

    def spans(
        self, tokens: Sequence[int], mask: Sequence[int], images: Sequence[ImagePart], *, start: int
    ) -> Iterator[ImageSpan]:
        """Where the images of a sequence are.

        Args:
            tokens: of the sequence, expanded.
            mask: 1 where the policy generated the token: a placeholder there stands for nothing.
            images: in their order.
            start: of the sequence in its rollout.
        """
        at = 0
        for image in images:
            while tokens[at] != self.token or mask[at]:
                at += 1
            end = at + self.count(image)
            yield ImageSpan(
                sha256=image.sha256,
                width=image.width,
                height=image.height,
                start=start + at,
                end=start + end,
            )
            at = end
