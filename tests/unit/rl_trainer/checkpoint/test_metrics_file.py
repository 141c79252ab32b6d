"""``metrics.jsonl`` and checkpoints hold every step once, at a bounded cost for each step."""

from __future__ import annotations

from typing import Any, cast

from rl_contracts.documents.step_metrics import MetricsFile, StepMetrics
from rl_contracts.errors import ObjectMissingError
from rl_trainer.checkpoint import report
from tests.samples.documents import a_step

PREFIX = "runs/run1/"


class Bucket:
    """Objects in memory, and the bytes that were put."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.written = 0

    def put(self, key: str, data: bytes) -> None:
        self.objects[key] = data
        self.written += len(data)

    def get(self, key: str, *, most: int) -> bytes:
        if key not in self.objects:
            raise ObjectMissingError(key)
        return self.objects[key]


def metrics(steps: int) -> list[StepMetrics]:
    return [a_step(step) for step in range(1, steps + 1)]


def test_what_is_written_for_a_step_does_not_grow_with_the_run() -> None:
    bucket, file, all_steps, last = Bucket(), None, metrics(2000), 0
    line = len(all_steps[0].model_dump_json()) + 1
    costs = []
    for steps in range(1, 2001):
        file = report.write_metrics_if_due(
            cast(Any, bucket), PREFIX, all_steps[:steps], epoch=3, written=file
        )
        in_checkpoint = line * (steps - file.steps)
        assert in_checkpoint <= 0.06 * line * steps
        if steps % 500 == 0:
            costs.append((bucket.written - last) / 500 / line)
            last = bucket.written
    assert max(costs) <= 1.2 * (1 + 1 / report.GROWTH)
    assert costs[-1] <= 1.3 * costs[0]


def test_metrics_are_read_back_from_file_and_checkpoint() -> None:
    bucket = Bucket()
    file = report.write_metrics_if_due(
        cast(Any, bucket), PREFIX, metrics(40), epoch=3, written=None
    )
    assert file == MetricsFile(epoch=3, steps=40)
    assert (
        report.write_metrics_if_due(cast(Any, bucket), PREFIX, metrics(41), epoch=3, written=file)
        == file
    )
    assert report.read_metrics(cast(Any, bucket), PREFIX, file) == metrics(40)
    shorter = MetricsFile(epoch=3, steps=30)
    assert report.read_metrics(cast(Any, bucket), PREFIX, shorter) == metrics(30)


def test_a_file_that_is_gone_or_older_costs_its_metrics_alone() -> None:
    bucket = Bucket()
    file = MetricsFile(epoch=3, steps=40)
    assert report.read_metrics(cast(Any, bucket), PREFIX, file) == []
    report.write_metrics(cast(Any, bucket), PREFIX, metrics(20), epoch=3)
    assert report.read_metrics(cast(Any, bucket), PREFIX, file) == []
