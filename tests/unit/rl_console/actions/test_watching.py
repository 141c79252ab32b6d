from __future__ import annotations

import json
import math
from typing import Any, cast

import pytest

from rl_console.actions.watching import watch_jobs
from rl_console.cluster.kube import Cluster
from rl_console.errors import ClusterUnavailableError
from rl_console.output import Output


def job(name: str, **progress: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "lab", "uid": name, "generation": 1}
    status = {"phase": "Running", "progress": progress}
    return {"kind": "RLJob", "metadata": metadata, "spec": {}, "status": status}


class FakeCluster:
    """Answers in order; a step of its clock for each."""

    def __init__(self, *answers: list[dict[str, Any]] | Exception) -> None:
        self._answers = list(answers)
        self.clock, self.limits = 0.0, list[float]()

    def within(self, seconds: float) -> FakeCluster:
        self.limits.append(seconds)
        return self

    def raw_jobs(self, namespace: str) -> list[dict[str, Any]]:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def sleep(self, seconds: float) -> None:
        self.clock += seconds


def watch(cluster: FakeCluster, *, seconds: float | None, output: Output = Output.TABLE) -> None:
    watch_jobs(
        cast("Cluster", cluster),
        "lab",
        job=None,
        interval=1.0,
        seconds=seconds,
        output=output,
        sleep=cluster.sleep,
        monotonic=lambda: cluster.clock,
    )


UNAVAILABLE = ClusterUnavailableError(doing="listing", cause="refused")


def test_only_changes_are_printed_and_the_heading_once(capsys: pytest.CaptureFixture[str]) -> None:
    before, after = job("a", step=1, steps=9), job("a", step=2, steps=9)
    watch(FakeCluster([before], [before], UNAVAILABLE, [after, job("b", steps=5)]), seconds=3)
    heading, *rows = capsys.readouterr().out.splitlines()
    assert heading.startswith("NAME")
    assert [row.split()[2] for row in rows] == ["1/9", "2/9", "0/5"]


def test_json_has_an_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    watch(FakeCluster([job("a"), job("b")]), seconds=0, output=Output.JSON)
    names = [json.loads(line)["metadata"]["name"] for line in capsys.readouterr().out.splitlines()]
    assert names == ["a", "b"]


def test_a_server_that_was_never_reached_is_an_error_at_once() -> None:
    with pytest.raises(ClusterUnavailableError):
        watch(FakeCluster(UNAVAILABLE), seconds=100)


def test_a_server_that_does_not_come_back_is_an_error() -> None:
    with pytest.raises(ClusterUnavailableError):
        watch(FakeCluster([job("a")], *[UNAVAILABLE] * 200), seconds=1000)


@pytest.mark.parametrize(
    ("output", "lines"), [(Output.TABLE, 1), (Output.WIDE, 2), (Output.JSON, 3), (Output.NAME, 3)]
)
def test_a_change_is_one_of_what_is_shown(
    output: Output, lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A change of a wide column, of something that no table shows, and of nothing."""
    first, wide, hidden = job("a"), job("a", accuracy=0.5), job("a", accuracy=0.5)
    hidden["metadata"]["labels"] = {"team": "a"}
    same = json.loads(json.dumps(hidden))
    same["metadata"] |= {"resourceVersion": "7", "managedFields": [{"manager": "m"}]}
    watch(FakeCluster([first], [wide], [hidden], [same]), seconds=3, output=output)
    shown = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("NAME")]
    assert len(shown) == lines


def test_a_job_that_is_gone_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    watch(FakeCluster([job("a"), job("b")], [job("b")], [job("b")]), seconds=2)
    assert capsys.readouterr().err == "RLJob lab/a is gone\n"


def test_the_last_wait_ends_with_the_time() -> None:
    cluster = FakeCluster([job("a")], [job("a")], [job("a")])
    watch(cluster, seconds=1.5)
    assert cluster.clock == 1.5
    assert cluster.limits == [1.5, 0.5, 0.0]


def test_without_a_time_limit_a_request_has_its_own() -> None:
    cluster = FakeCluster(UNAVAILABLE)
    with pytest.raises(ClusterUnavailableError):
        watch(cluster, seconds=None)
    assert cluster.limits == [math.inf]
