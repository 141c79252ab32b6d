from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from rl_trainer.checkpoint.model_card import model_card
from rl_trainer.context.job import Job
from tests.samples.documents import results_of_one_name
from tests.unit.rl_trainer.conftest import MakeSpec


def test_the_card_names_split_and_temperature_of_each_result(make_spec: MakeSpec) -> None:
    job = cast("Job", SimpleNamespace(spec=make_spec(), name="sums", run="u1"))
    card = model_card(job, step=4, evaluations=results_of_one_name(4))
    heading, line, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in card.splitlines()
        if line.startswith("|")
    ]
    assert {len(each) for each in (line, *rows)} == {len(heading)}
    names = ("data", "split", "temperature", "accuracy")
    assert [tuple(row[heading.index(name)] for name in names) for row in rows] == [
        ("gsm8k", "validation", "0", "0.900"),
        ("gsm8k", "validation", "1", "0.500"),
        ("gsm8k", "test", "0", "0.200"),
        ("gsm8k", "test", "1", "0.100"),
    ]
