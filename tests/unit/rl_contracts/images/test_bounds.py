from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.errors import RefusedError
from rl_contracts.images.bounds import Bounds, bounds
from rl_contracts.spec.data import Images

QWEN_3 = {"size": {"shortest_edge": 65_536, "longest_edge": 16_777_216}}
QWEN_2_5 = {"min_pixels": 3136, "max_pixels": 12_845_056}


@pytest.mark.parametrize(
    ("given", "processor", "expected"),
    [
        ({}, QWEN_3, (65_536, 1_003_520)),
        ({}, QWEN_2_5, (3136, 1_003_520)),
        ({}, {**QWEN_3, "min_pixels": None, "max_pixels": None}, (65_536, 1_003_520)),
        ({}, {}, (3136, 1_003_520)),
        ({}, {"max_pixels": 50_000}, (3136, 50_000)),
        ({"minPixels": 70_000, "maxPixels": 80_000}, QWEN_3, (70_000, 80_000)),
    ],
)
def test_limits_are_the_manifests_within_the_models(
    given: dict[str, Any], processor: dict[str, Any], expected: tuple[int, int]
) -> None:
    made = bounds(Images.model_validate(given), processor)
    assert made == Bounds(fewest=expected[0], most=expected[1])


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"minPixels": 4096}, "minPixels"),
        ({"maxPixels": 16_777_216, "minPixels": 65_536}, None),
        ({"maxPixels": 2048}, "maxPixels"),
        ({"minPixels": 2_000_000}, "minPixels"),
    ],
)
def test_limits_outside_the_models_are_refused_by_field(
    given: dict[str, Any], field: str | None
) -> None:
    images = Images.model_validate(given)
    if field is None:
        assert bounds(images, QWEN_3).most == 16_777_216
        return
    with pytest.raises(RefusedError, match=rf"spec\.data\.images\.{field}"):
        bounds(images, QWEN_3)
