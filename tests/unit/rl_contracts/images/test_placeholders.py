from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_contracts.documents.task import ImagePart
from rl_contracts.images.placeholders import PlaceholderError, Placeholders

IMAGE, SIDE = 17, 28
PLACEHOLDERS = Placeholders(token=IMAGE, side=SIDE)


def image(width: int, height: int) -> ImagePart:
    return ImagePart(sha256="0" * 64, width=width * SIDE, height=height * SIDE)


sizes = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), max_size=4)
words = st.lists(st.integers(0, 9), min_size=1, max_size=4)


@given(sizes, st.data())
def test_collapsing_undoes_expanding_and_spans_are_where_images_stand(
    sizes: list[tuple[int, int]], data: Any
) -> None:
    images = [image(*size) for size in sizes]
    tokens = data.draw(words)
    for _ in images:
        tokens = [*tokens, IMAGE, *data.draw(words)]
    whole = PLACEHOLDERS.expanded(tokens, images)
    generated = [5, IMAGE, 3]  # one that the policy generated stands for nothing
    mask = [0] * len(whole) + [1] * len(generated)
    spans = list(PLACEHOLDERS.spans([*whole, *generated], mask, images, start=100))
    assert [span.end - span.start for span in spans] == [w * h for w, h in sizes]
    stands = {at - 100 for span in spans for at in range(span.start, span.end)}
    assert stands == {at for at, token in enumerate(whole) if token == IMAGE}
    own = list(PLACEHOLDERS.spans(whole, mask, images, start=0))
    assert PLACEHOLDERS.collapsed(whole, own) == tokens
    assert PLACEHOLDERS.collapsed([*whole, *generated], own) == [*tokens, *generated]


@pytest.mark.parametrize(("tokens", "count"), [([1, IMAGE, 2], 0), ([1, 2], 1), ([IMAGE] * 2, 1)])
def test_another_number_of_placeholders_than_images_is_an_error(
    tokens: list[int], count: int
) -> None:
    with pytest.raises(PlaceholderError, match=f"there are {count} images"):
        PLACEHOLDERS.expanded(tokens, [image(1, 1)] * count)


def test_placeholders_are_read_from_the_config() -> None:
    config = {
        "model_type": "qwen3_vl",
        "image_token_id": IMAGE,
        "vision_config": {"spatial_merge_size": 2},
    }
    assert Placeholders.of(config) == Placeholders(token=IMAGE, side=32)
    assert Placeholders.of({"model_type": "qwen3"}) is None
    assert Placeholders.of({**config, "model_type": "gemma3"}) is None


@pytest.mark.parametrize("sizes", [{"patch_size": "14"}, {"spatial_merge_size": 0}])
def test_a_config_with_impossible_sizes_has_no_placeholders(sizes: dict[str, Any]) -> None:
    config = {"model_type": "qwen2_5_vl", "image_token_id": IMAGE, "vision_config": sizes}
    assert Placeholders.of(config) is None
