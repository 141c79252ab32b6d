from __future__ import annotations

import pytest

from rl_contracts.documents.step_metrics import Drops
from rl_contracts.documents.task import Cause
from rl_trainer.algorithm.drops import Ledger, describe, length_bucket
from tests.samples.documents import a_head, a_task


@pytest.mark.parametrize(
    ("tokens", "bucket"), [(1, "16"), (16, "16"), (17, "32"), (32, "32"), (4097, "8192")]
)
def test_lengths_are_counted_up_to_powers_of_two(tokens: int, bucket: str) -> None:
    assert length_bucket(tokens) == bucket


def test_a_step_counts_lost_groups_by_cause_and_length() -> None:
    ledger, task = Ledger(), a_task(attempt=1)
    rollouts = [a_head(task, 0), a_head(task, 1)]
    ledger.drop(Cause.STALE, "stale", rollouts)
    ledger.drop(Cause.LEASE, "lease of a ran out")
    ledger.drop(Cause.FILTERED, "its rewards do not differ", rollouts)
    assert ledger.filtered == {"its rewards do not differ": 1}
    drops, share = ledger.close_step(groups=2)
    assert drops == Drops(
        by_cause={"stale": 1, "lease": 1, "filtered": 1}, by_length={"16": 2}, rollouts=4, tokens=8
    )
    assert share == 0.5  # what the manifest filters out is not lost
    assert describe(drops) == "1 filtered, 1 lease, 1 stale"
    assert not ledger.filtered
    drops, share = ledger.close_step(groups=2)
    assert drops == Drops()
    assert share == pytest.approx(2 / 6)


def test_a_usable_group_resets_the_count_of_lost_groups() -> None:
    ledger = Ledger()
    for _ in range(3):
        ledger.drop(Cause.FAILED, "the judge is down")
    assert ledger.in_a_row.by_cause == {"failed": 3}
    ledger.keep()
    assert ledger.in_a_row == Drops()
    assert ledger.step.by_cause == {"failed": 3}
