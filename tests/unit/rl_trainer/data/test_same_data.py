from __future__ import annotations

import re
from typing import Any

import pytest

from rl_contracts.documents.run import DatasetSummary, TrainOrder
from rl_contracts.spec.data import Data
from rl_trainer.data.same_data import changed
from tests.samples.documents import a_run

ORDER = TrainOrder(weights=[1.0, 3.0], seed=42)
SECTION = Data.model_validate({"train": [{"name": "a", "uri": "s3://data/a.jsonl"}]})


def a_source(name: str, **changes: Any) -> DatasetSummary:
    values = {"split": "train", "uri": f"s3://data/{name}.jsonl", "records": 10, "sha256": name}
    return DatasetSummary(name=name, **values | changes)


A, B, TEST = a_source("a"), a_source("b"), a_source("test", split="test")
RUN = a_run(step=5, datasets=[A, B, TEST], train_order=ORDER)


@pytest.mark.parametrize(
    ("sources", "order", "section", "field", "message"),
    [
        ([B, A], {}, {}, "spec.data.train", "sources are b, a; the run began with a, b"),
        ([A], {}, {}, "spec.data.train", "sources are a; the run began with a, b"),
        ([A, a_source("c")], {}, {}, "spec.data.train", "a, c; the run began with a, b"),
        ([A, a_source("b", sha256="0")], {}, {}, "spec.data.train[1].uri", "records have changed"),
        ([A, B], {"weights": [1.0, 1.0]}, {}, "spec.data.train", "are 1, 1; the run began with 1,"),
        ([A, B], {"seed": 7}, {}, "spec.training.seed", "by seed 7; the run .* by seed 42"),
        ([A, B], {"seed": 7}, {"seed": 7}, "spec.data.seed", "by seed 7; the run .* by seed 42"),
        ([A, B], {"seed": None}, {"shuffle": False}, "spec.data.shuffle", "in their files' order"),
    ],
)
def test_other_training_data_or_another_order_are_refused(
    sources: list[DatasetSummary],
    order: dict[str, Any],
    section: dict[str, Any],
    field: str,
    message: str,
) -> None:
    refusal = changed(
        RUN, sources, ORDER.model_copy(update=order), SECTION.model_copy(update=section)
    )
    assert refusal is not None
    assert (refusal.field, refusal.reason) == (field, "DatasetChanged")
    assert re.search(message, refusal.message)


def test_what_leaves_each_position_its_record_may_change() -> None:
    moved = a_source("a", uri="s3://elsewhere/a.jsonl")
    doubled = ORDER.model_copy(update={"weights": [2.0, 6.0]})
    assert changed(RUN, [moved, B], doubled, SECTION) is None
    earlier = RUN.model_copy(update={"train_order": None})
    assert changed(earlier, [A, B], ORDER.model_copy(update={"seed": 7}), SECTION) is None
