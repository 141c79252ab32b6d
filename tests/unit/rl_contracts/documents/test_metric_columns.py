"""Step metrics by column hold what the lines hold, and a viewer can read one column of them."""

from __future__ import annotations

import math

import pytest

from rl_contracts.documents import metric_columns
from rl_contracts.documents.metric_columns import START_BYTES, parse_header
from rl_contracts.errors import IntegrityError
from tests.samples.documents import a_step


def column(content: bytes, name: str) -> list[float]:
    size = metric_columns.header_bytes(content[:START_BYTES])
    header = parse_header(content[START_BYTES : START_BYTES + size])
    offset, length = header.place(name, header_bytes=size)
    wanted = next(each for each in header.columns if each.name == name)
    return list(header.items(wanted, content[offset : offset + length]))


def test_columns_hold_every_step_exactly_where_it_matters() -> None:
    epoch = 1_790_000_000_123
    steps = [
        a_step(step, epoch=epoch + step, time=1.79e9 + step / 8, kl=None if step == 2 else 0.5)
        for step in (1, 2, 3)
    ]
    content = metric_columns.encode(steps)
    assert column(content, "step") == [1, 2, 3]
    assert column(content, "epoch") == [epoch + 1, epoch + 2, epoch + 3]
    assert column(content, "time") == [1.79e9 + step / 8 for step in (1, 2, 3)]
    first, second, third = column(content, "kl")
    assert (first, third) == (0.5, 0.5)
    assert math.isnan(second)


def test_columns_of_dictionaries_are_named_by_their_keys() -> None:
    steps = [a_step(step, reward_parts={"exact": step / 4}) for step in (1, 2)]
    assert column(metric_columns.encode(steps), "reward_parts.exact") == [0.25, 0.5]


def test_a_column_of_equal_items_takes_no_bytes() -> None:
    few, many = (metric_columns.encode([a_step(1)] * count) for count in (10, 10_000))
    assert len(many) - len(few) < 100
    assert column(many, "loss") == [0.0] * 10_000


def test_columns_of_no_step_can_be_read() -> None:
    content = metric_columns.encode([])
    size = metric_columns.header_bytes(content[:START_BYTES])
    assert parse_header(content[START_BYTES : START_BYTES + size]).rows == 0


@pytest.mark.parametrize("content", [b"", b"RLM1", b"RLM1\xff\xff\xff\xff", b"else" + bytes(8)])
def test_another_file_is_refused(content: bytes) -> None:
    with pytest.raises(IntegrityError):
        metric_columns.header_bytes(content)
