"""How many pixels an image has as a model sees it: the manifest's limits within the model's own.

The engine's processor scales what is not within the model's limits, and then makes other tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.spec.data import Images

USUAL_MOST = 1_003_520
FEWEST, MOST = 56 * 56, 28 * 28 * 1280
"""Of a processor that does not say them (Qwen2-VL's defaults)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Pixels of an image."""

    fewest: int
    most: int


def bounds(images: Images, processor: Mapping[str, Any]) -> Bounds:
    """The limits of a manifest's images.

    Args:
        images: the manifest's section.
        processor: content of the model's ``preprocessor_config.json``.

    Raises:
        RefusedError: a limit of the manifest is not within the model's.
    """
    size = processor.get("size")
    size = size if isinstance(size, Mapping) else {}
    fewest = _number(processor.get("min_pixels") or size.get("shortest_edge"), FEWEST)
    most = _number(processor.get("max_pixels") or size.get("longest_edge"), MOST)
    own = Bounds(
        fewest=fewest if images.min_pixels is None else images.min_pixels,
        most=min(most, USUAL_MOST) if images.max_pixels is None else images.max_pixels,
    )
    if own.fewest < fewest:
        raise _outside("minPixels", own.fewest, f"at least {fewest}")
    if own.most > most:
        raise _outside("maxPixels", own.most, f"at most {most}")
    if own.fewest > own.most:
        field, value = ("maxPixels", own.most) if images.max_pixels else ("minPixels", own.fewest)
        raise _outside(field, value, f"from {fewest} to {most}, minPixels not above maxPixels")
    return own


def _number(value: object, usual: int) -> int:
    return value if isinstance(value, int) and value > 0 else usual


def _outside(field: str, value: int, allowed: str) -> RefusedError:
    return RefusedError(
        Refusal(
            field=f"spec.data.images.{field}",
            value=str(value),
            reason="OptionUnusable",
            message=f"The model's image processor takes {allowed} pixels, and scales others.",
            remedy="Set it within that, or remove it.",
        )
    )
