from __future__ import annotations

import pytest

from rl_console.quantities import number_of


@pytest.mark.parametrize(
    ("quantity", "value"),
    [("2", 2), (3, 3), ("500m", 0.5), ("12345n", 1.2345e-05), ("4Gi", 4 << 30), ("1e3", 1000)],
)
def test_a_quantity_is_a_number(quantity: str | int, value: float) -> None:
    assert number_of(quantity) == pytest.approx(value)


def test_another_text_is_refused() -> None:
    with pytest.raises(ValueError, match="no quantity"):
        number_of("4 GiB")
