from __future__ import annotations

from typing import Any

import pytest

from rl_console.actions.log_choice import choose
from rl_console.errors import NotFoundError, UsageError
from rl_console.pods import PodView
from tests.unit.rl_console.builders import pod, running


def trainer(attempt: int, replica: int) -> PodView:
    name = f"sums-{attempt}-worker-{replica}"
    return pod(name, running("pytorch"), role="trainer", attempt=attempt)


PODS = [
    trainer(1, 0),
    trainer(2, 0),
    trainer(2, 1),
    pod("sums-main-a", running("stage"), running("agent"), running("engine"), role="sampler"),
    pod("shared-b", running("agent"), running("agent-sums"), running("engine"), role="sampler"),
]


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ({"part": "trainer"}, ["sums-2-worker-0 pytorch", "sums-2-worker-1 pytorch"]),
        ({"part": "trainer", "replica": 1}, ["sums-2-worker-1 pytorch"]),
        ({"part": "trainer", "attempt": 1}, ["sums-1-worker-0 pytorch"]),
        ({"part": "agent"}, ["sums-main-a agent", "shared-b agent-sums"]),
        ({"part": "engine", "pod": "shared-b"}, ["shared-b engine"]),
        ({"part": "stage"}, ["sums-main-a stage"]),
    ],
)
def test_the_containers_that_are_meant_are_chosen(
    options: dict[str, Any], chosen: list[str]
) -> None:
    assert [
        source.label for source in choose(PODS, job="sums", options="-n lab", **options)
    ] == chosen


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"part": "kernel"}, UsageError),
        ({"part": "agent", "replica": 0}, UsageError),
        ({"part": "sandbox"}, NotFoundError),
        ({"part": "trainer", "attempt": 9}, NotFoundError),
    ],
)
def test_what_is_not_there_is_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        choose(PODS, job="sums", options="-n lab", **options)
