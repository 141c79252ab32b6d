"""The Python client: its public names, and what it does without a cluster."""

from __future__ import annotations

import ast
import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rl_console import client
from rl_console.client import Connection, Metrics, RLJob, RLJobSpec, UsageError, Watch
from rl_console.client.metrics import chosen
from rl_console.cluster.api import Api
from rl_console.cluster.kube import Cluster
from rl_console.errors import ClusterUnavailableError, NotFoundError, TimeOverError
from rl_console.jobs import JobObject
from rl_console.manifests.files import read
from rl_console.queries.cluster_source import ClusterSource
from rl_console.tools import Tools
from rl_contracts.queries.answers import MetricsAnswer, Series
from rl_contracts.queries.kinds import MOST_COLUMNS
from rl_contracts.spec.status import RLJobStatus
from tests.samples.manifests import EXAMPLES, JOB, a_job
from tests.unit.rl_console.queries.test_cluster_source import Answer, Server

NAMES = {
    *("ClusterUnavailableError", "Connection", "ConsoleError", "EpisodeAnswer"),
    *(
        "Metrics",
        "MetricsRow",
        "NotAllowedError",
        "NotFoundError",
        "RLJob",
        "RLJobSpec",
        "RLJobStatus",
    ),
    *("RequestRefusedError", "RolloutAnswer", "RolloutRow", "StageFailedError"),
    *("TimeOverError", "UsageError", "Watch", "connect"),
}
"""What notebooks may import. Adding one is a feature; taking one away breaks them."""
METHODS = {
    *(
        "chat",
        "connection",
        "manifest",
        "metrics",
        "namespace",
        "problems",
        "read",
        "resume",
        "status",
    ),
    *("stop", "submit", "suspend", "trajectories", "trajectory", "wait", "watch"),
}
ONE_JOB = [
    file for file in EXAMPLES if [each.name.split()[0] for each in read([file])] == ["RLJob"]
]
UNAVAILABLE = ClusterUnavailableError(doing="reading", cause="refused")


def test_the_public_names_are_these() -> None:
    assert set(client.__all__) == NAMES
    assert all(getattr(client, name).__doc__ for name in NAMES)
    assert {name for name in dir(RLJob) if not name.startswith("_")} == METHODS


def test_nothing_of_the_command_line_is_imported() -> None:
    """A notebook has its own loop and its own output."""
    folder = Path(client.__file__).parent
    imported = {
        node.module
        for file in folder.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module
    }
    assert not {name for name in imported if "typer" in name or "commands" in name}


# Manifests.


def test_a_spec_as_a_model_is_sent_as_it_was_set() -> None:
    given = RLJob("sums", RLJobSpec.model_validate(JOB["spec"]), namespace="lab")
    assert given.manifest == a_job("sums", namespace="lab")
    assert given.problems() == []


@pytest.mark.parametrize("file", ONE_JOB, ids=lambda file: file.name)
def test_an_example_is_the_same_as_a_model(file: Path) -> None:
    job = RLJob.read(file)
    model = RLJobSpec.model_validate(job.spec)
    assert RLJob(job.name, model).manifest["spec"] == job.manifest["spec"]


def test_a_file_with_something_else_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "pool.yaml"
    file.write_text(json.dumps({"kind": "SamplerPool", "metadata": {"name": "shared"}}))
    with pytest.raises(UsageError, match=r"pool\.yaml holds SamplerPool shared\. Name a file"):
        RLJob.read(file)


def test_problems_name_fields_and_rules() -> None:
    wrong = {**JOB["spec"], "training": {"steps": 0}, "modle": {}}
    fields = " ".join(RLJob("sums", wrong).problems())
    assert "spec.training.steps" in fields
    assert "spec.modle" in fields
    (rule,) = RLJob("Sums", JOB["spec"]).problems()
    assert "metadata.name must be a letter" in rule


def test_a_job_without_a_spec_cannot_be_submitted() -> None:
    with pytest.raises(UsageError, match=r"RLJob sums has no spec\. Give one"):
        RLJob("sums").submit()


@pytest.mark.parametrize(
    "asked",
    [RLJob.status, RLJob.wait, RLJob.stop, RLJob.metrics],
    ids=["status", "wait", "stop", "metrics"],
)
def test_an_empty_name_is_refused_before_a_request(asked: Callable[[RLJob], Any]) -> None:
    cluster = Cluster(Api(Server(Answer(200, {"items": []})).library))
    connection = Connection(cluster=cluster, source=ClusterSource(cluster, Tools()))
    with pytest.raises(UsageError, match="the name of the RLJob is empty"):
        asked(RLJob("", connection=connection))


def test_a_job_that_never_existed_was_not_deleted() -> None:
    cluster = Cluster(Api(Server(Answer(404, {"details": {"name": "sums"}})).library))
    connection = Connection(cluster=cluster, source=ClusterSource(cluster, Tools()))
    with pytest.raises(NotFoundError, match=r"reading RLJob lab/sums\. `kubectl rl list") as raised:
        RLJob("sums", namespace="lab", connection=connection).wait()
    assert "deleted" not in str(raised.value)


def test_trajectories_are_left_out_of_a_step_that_is_named() -> None:
    with pytest.raises(
        UsageError, match=r"skip=3 leaves out trajectories of step last\. Name last"
    ):
        next(RLJob("sums").trajectories(skip=3))


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (lambda job: job.metrics(first=-1), "first"),
        (lambda job: job.metrics(points=2001), "points"),
        (lambda job: next(job.trajectories(text="x" * 201)), "text"),
        (lambda job: job.trajectory("train.00000000.1.0", first_token=1 << 31), "first_token"),
    ],
)
def test_a_value_that_is_out_of_range_is_named(asked: Callable[[RLJob], Any], field: str) -> None:
    metadata = {"name": "sums", "namespace": "lab", "uid": "run1"}
    cluster = Cluster(Api(Server(Answer(200, {"metadata": metadata})).library))
    connection = Connection(cluster=cluster, source=ClusterSource(cluster, Tools()))
    with pytest.raises(UsageError, match=f"{field} cannot be asked for"):
        asked(RLJob("sums", namespace="lab", connection=connection))


# Watching.


def a_state(phase: str, *, step: int = 0, ended: str = "") -> JobObject:
    fields = {"status": "True", "reason": "R", "lastTransitionTime": "2026-11-25T09:00:00Z"}
    conditions = [{"type": ended, "observedGeneration": 1, **fields}] if ended else []
    status = {"phase": phase, "progress": {"step": step}, "conditions": conditions}
    metadata = {"name": "sums", "namespace": "lab", "uid": "u", "generation": 1}
    return JobObject.parse({"metadata": metadata, "status": status})


def a_watch(*answers: JobObject | Exception, timeout: float = 60.0) -> Watch:
    """Looks at these in order; at the last one again and again."""
    left = list(answers)

    def read(_: float) -> JobObject:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return Watch(read=read, timeout=timeout, interval=0.0)


def plainly(watch: Watch) -> list[RLJobStatus]:
    return list(watch)


def asynchronously(watch: Watch) -> list[RLJobStatus]:
    async def collect() -> list[RLJobStatus]:
        return [status async for status in watch]

    return asyncio.run(collect())


both = pytest.mark.parametrize("collect", [plainly, asynchronously])
Collect = Callable[[Watch], list[RLJobStatus]]


@both
@pytest.mark.parametrize("ended", ["Complete", "Failed"])
def test_each_state_is_seen_once_until_the_job_has_ended(collect: Collect, ended: str) -> None:
    first, second = a_state("Running", step=1), a_state("Running", step=2)
    last = a_state("Ended", step=2, ended=ended)
    seen = collect(a_watch(first, first, second, UNAVAILABLE, second, last))
    assert seen == [first.status, second.status, last.status]


@both
def test_a_watch_has_a_deadline(collect: Collect) -> None:
    with pytest.raises(TimeOverError, match=r"sums has not ended after 0 s: Running"):
        collect(a_watch(a_state("Running"), timeout=0.0))


@both
def test_a_request_of_a_watch_gets_the_time_that_is_left(collect: Collect) -> None:
    given = list[float]()

    def read(left: float) -> JobObject:
        given.append(left)
        return a_state("Ended", ended="Complete")

    collect(Watch(read=read, timeout=60.0, interval=0.0))
    assert 0 < given[0] <= 60


@both
def test_an_outage_at_the_deadline_is_said(collect: Collect) -> None:
    says = r"0 s: Running when it was last read\. At the end the Kubernetes API .* The job goes on"
    with pytest.raises(TimeOverError, match=says):
        collect(a_watch(a_state("Running"), UNAVAILABLE, timeout=0.0))


@both
def test_a_server_that_never_answers_is_an_error_at_once(collect: Collect) -> None:
    with pytest.raises(ClusterUnavailableError):
        collect(a_watch(UNAVAILABLE))


@both
def test_a_server_that_falls_silent_is_an_error(
    collect: Collect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rl_console.client.watching.SILENT_SECONDS", 0.0)
    with pytest.raises(ClusterUnavailableError):
        collect(a_watch(a_state("Running"), UNAVAILABLE))


# Metrics.


def an_answer(steps: list[int], **series: list[float | None]) -> MetricsAnswer:
    return MetricsAnswer(
        steps=steps,
        times=[1_790_000_000.5 + step for step in steps],
        series={name: Series(mean=mean) for name, mean in series.items()},
        names=sorted(series),
        first=1,
        last=4,
        rows=len(steps),
    )


@pytest.fixture
def metrics() -> Metrics:
    empty = an_answer([])
    first = an_answer([1, 2], loss=[0.5, None])
    return Metrics([empty, first, an_answer([3, 4], loss=[0.25, 0.0], kl=[0.1, 0.2])])


def test_rows_are_typed_and_a_column_that_begins_later_is_empty_before(metrics: Metrics) -> None:
    assert [(row.step, row["loss"], row["kl"]) for row in metrics] == [
        (1, 0.5, None),
        (2, None, None),
        (3, 0.25, 0.1),
        (4, 0.0, 0.2),
    ]
    assert metrics[-1].time == 1_790_000_004.5
    assert [row.step for row in metrics[1:3]] == [2, 3]
    assert repr(metrics) == "Metrics(4 rows of loss, kl)"


def test_pandas_and_arrow_hold_the_same(metrics: Metrics) -> None:
    frame = metrics.pandas()
    assert frame.index.tolist() == [1, 2, 3, 4]
    assert frame["loss"].isna().tolist() == [False, True, False, False]
    assert str(frame["time"].iloc[0]) == "2026-09-21 14:13:21.500000+00:00"
    table = metrics.arrow()
    assert table.column_names == ["step", "time", "loss", "kl"]
    assert table["kl"].to_pylist() == [None, None, 0.1, 0.2]
    assert table["time"].to_pylist() == frame["time"].to_list()


def test_no_rows_are_an_empty_table() -> None:
    nothing = Metrics([])
    assert (len(nothing), len(nothing.pandas()), nothing.arrow().num_rows) == (0, 0, 0)


@pytest.mark.parametrize(
    ("library", "how"), [("pandas", "pip install pandas"), ("pyarrow", r"rl-operator\[arrow\]")]
)
def test_a_missing_library_is_named_with_its_installation(
    metrics: Metrics, library: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    table: Any = metrics.pandas if library == "pandas" else metrics.arrow
    with pytest.raises(UsageError, match=f"{library} is not installed.*{how}"):
        table()


def test_a_column_that_the_run_does_not_have_is_refused() -> None:
    names = ["kl", "loss", "reward_parts.exact"]
    assert chosen(["loss", "reward_parts."], names) == ("loss", "reward_parts.")
    assert chosen([], [f"c{number}" for number in range(100)])[-1] == f"c{MOST_COLUMNS - 1}"
    with pytest.raises(UsageError, match=r"no metric los, seconds\. It has kl, loss"):
        chosen(["los", "seconds."], names)
    with pytest.raises(UsageError, match="at most 64"):
        chosen(["kl"] * 65, names)
