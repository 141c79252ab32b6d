from __future__ import annotations

import json
import logging
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest
from tensorboardX.proto.event_pb2 import Event

from rl_contracts.documents.evaluation import EvaluationResult
from rl_contracts.stores.rollouts import RolloutStore
from rl_trainer.context.figures import Figures
from rl_trainer.context.job import Progress
from rl_trainer.tracking.entries import MAX_TEXT, Entry, of_evaluations, of_step
from rl_trainer.tracking.outbox import BATCH, CAPACITY, Outbox
from rl_trainer.tracking.sample_files import SampleFiles
from rl_trainer.tracking.tensorboard import TensorBoard
from rl_trainer.tracking.tracker import TrackerError
from rl_trainer.tracking.trackers import Trackers
from tests.samples.documents import a_result, a_rollout, a_step, a_task
from tests.servers import ROOT
from tests.waiting import HUNG_SECONDS, until

HOSTILE = "<script>alert(1)</script>\n# no heading\n" + "x" * MAX_TEXT


def entry(step: int) -> Entry:
    metrics = a_step(step).model_copy(
        update={
            "staleness": {"0": 3, "2": 1},
            "reward_parts": {"my scorer": 0.5},
            "kl": 0.25,
            "value_loss": None,
        }
    )
    return of_step(metrics, [a_rollout(a_task(), 0, reward=1.0, text=HOSTILE)])


def test_an_entry_holds_what_is_known_under_names_that_all_take() -> None:
    written = entry(3)
    assert written.scalars["policy/kl"] == 0.25
    assert written.scalars["reward/parts/my_scorer"] == 0.5
    assert "critic/value_loss" not in written.scalars  # there is none
    assert written.counts == {"rollouts/staleness": {"0": 3, "2": 1}}
    (sample,) = written.samples
    assert (sample.reward, len(sample.text)) == (1.0, MAX_TEXT)


def test_evaluation_entries_are_by_source_and_temperature() -> None:
    result = EvaluationResult(
        step=4,
        version=2,
        dataset="gsm",
        temperature=0.5,
        accuracy=0.75,
        prompts=4,
        pass_at={"2": 1.0},
        tokens=9,
        logprob_gap_mean=0.0,
        logprob_gap_max=0.0,
        seconds=1.0,
    )
    (written,) = of_evaluations([result], time=1.0)
    root = "evaluation/validation/gsm/0.5"
    assert written.scalars == {
        f"{root}/accuracy": 0.75,
        f"{root}/seconds": 1.0,
        f"{root}/pass_at/2": 1.0,
    }


def events(folder: Path) -> list[Event]:
    """All events, file by file: length, checksum, event, checksum."""
    events = []
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            events.append(Event.FromString(data[12 : 12 + length]))
            data = data[16 + length :]
    return events


def test_tensorboard_gets_scalars_histograms_and_texts(tmp_path: Path) -> None:
    tracker = TensorBoard(tmp_path)
    tracker.write([entry(1)])
    tracker.save()
    tracker.write([entry(2)])
    tracker.close()
    assert len(list(tmp_path.iterdir())) == 2
    values = [(event.step, value) for event in events(tmp_path) for value in event.summary.value]
    means = [(step, value.simple_value) for step, value in values if value.tag == "reward/mean"]
    assert means == [(1, pytest.approx(a_step(1).reward_mean)), (2, means[1][1])]
    (histogram, _) = [value.histo for _, value in values if value.tag == "rollouts/staleness"]
    assert (histogram.num, list(histogram.bucket)) == (4, [3, 1])
    (text, _) = [
        value.tensor.string_val[0].decode()
        for _, value in values
        if value.tag.startswith("samples/0")
    ]
    body = text.split("\n\n", 1)[1]
    assert all(line.startswith("    ") for line in body.splitlines()), "a block of code"


def test_samples_are_json_lines(tmp_path: Path) -> None:
    SampleFiles(tmp_path).write([entry(7)])
    (line,) = (tmp_path / "00000007.jsonl").read_text().splitlines()
    assert json.loads(line)["turns"][0].startswith("<script>")


WANDB = """
import json, sys
from pathlib import Path
from rl_trainer.tracking.entries import Entry, Shown
from rl_trainer.tracking.tracker import About
from rl_trainer.tracking.weights_and_biases import WeightsAndBiases
from wandb.proto.wandb_internal_pb2 import Record
from wandb.sdk.internal.datastore import DataStore

folder = Path(sys.argv[1])
about = About(project="ns", job="sums", run="r", epoch=2, settings={"training": {"steps": 3}})
tracker = WeightsAndBiases(folder, about, mode="Offline", key=None)
shown = Shown(rollout="r/1", reward=1.0, parts={}, stop_reason="stop", turns=("<b>",))
tracker.write([
    Entry(step=step, time=1e9, scalars={"reward/mean": step / 4},
          counts={"rollouts/staleness": {"0": 3}}, samples=(shown,))
    for step in (1, 2)
])
tracker.close()
(path,) = folder.rglob("*.wandb")
store = DataStore()
store.open_for_scan(str(path))
seen = []
while (data := store.scan_data()) is not None:
    record = Record.FromString(data)
    if record.WhichOneof("record_type") == "history":
        items = record.history.item
        names = ["/".join([one.key, *one.nested_key]).strip("/") for one in items]
        seen.append(dict(zip(names, (one.value_json for one in items), strict=True)))
print(json.dumps(seen))
"""


def test_weights_and_biases_writes_a_run_offline(tmp_path: Path) -> None:
    """In a process of its own: the library leaves threads and temporary folders behind."""
    places = os.pathsep.join(str(ROOT / name) for name in ("contracts", "trainer_image"))
    variables = os.environ | {
        "PYTHONPATH": os.pathsep.join([places, os.environ.get("PYTHONPATH", "")]),
        "WANDB_ERROR_REPORTING": "false",
        "HOME": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", WANDB, str(tmp_path / "wandb")],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.strip().splitlines()[-1])
    assert [json.loads(line["step"]) for line in seen] == [1, 2]
    assert [json.loads(line["reward/mean"]) for line in seen] == [0.25, 0.5]
    assert json.loads(seen[0]["rollouts/staleness/values"]) == [3]


MLFLOW = """
import sys
from rl_trainer.tracking.entries import Entry
from rl_trainer.tracking.mlflow_runs import MLflow
from rl_trainer.tracking.tracker import About
from mlflow.tracking import MlflowClient

about = About(project="ns", job="sums", run="r", epoch=2, settings={"training": {"steps": 3}})
tracker = MLflow(sys.argv[1], about)
tracker.write([
    Entry(step=step, time=1e9, scalars={"reward/mean": step / 4},
          counts={"rollouts/staleness": {"0": 3}}) for step in (1, 2)
])
tracker.close()
client = MlflowClient(sys.argv[1])
(run,) = client.search_runs([client.get_experiment_by_name("ns").experiment_id])
history = client.get_metric_history(run.info.run_id, "reward/mean")
assert [(one.step, one.value) for one in history] == [(1, 0.25), (2, 0.5)], history
assert run.data.params == {"training.steps": "3"}, run.data.params
assert run.data.metrics["rollouts/staleness/0"] == 3
assert (run.info.status, run.data.tags["rl.epoch"]) == ("FINISHED", "2")
"""


def test_mlflow_has_metrics_and_settings(tmp_path: Path) -> None:
    """With its own client and store; what goes over HTTP is the client's."""
    places = os.pathsep.join(str(ROOT / name) for name in ("contracts", "trainer_image"))
    variables = os.environ | {
        "PYTHONPATH": os.pathsep.join([places, os.environ.get("PYTHONPATH", "")]),
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    done = subprocess.run(
        [sys.executable, "-c", MLFLOW, (tmp_path / "mlflow").as_uri()],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr


class Failing:
    """Down until it is let; then it holds what it was given."""

    name = "failing"
    folder: Path | None = None
    any_order = False

    def __init__(self) -> None:
        self.works, self.asked = threading.Event(), threading.Event()
        self.taken: list[int] = []
        self.closed = False

    def write(self, entries: Sequence[Entry]) -> None:
        self.asked.set()
        if not self.works.is_set():
            raise TrackerError("it is down")
        self.taken += [entry.step for entry in entries]

    def save(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def test_a_tracker_that_is_down_is_retried_and_loses_oldest_entries(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rl_trainer.tracking.outbox.FIRST_PAUSE_SECONDS", 0.01)
    tracker, uploaded = Failing(), []
    outbox = Outbox(tracker, upload=lambda sent: uploaded.append(sent.name), capacity=3)
    with caplog.at_level(logging.INFO):
        outbox.put([entry(1)])
        until(tracker.asked.is_set, what="the tracker was asked")
        until(lambda: not outbox._waiting, what="the first entry is in the tracker's hand")
        for step in range(2, 8):
            outbox.put([entry(step)])
        assert outbox.behind == 7  # three of them lost
        tracker.works.set()
        until(lambda: len(tracker.taken) == 4, what="all others")
        outbox.close(seconds=60)
    assert tracker.taken == [1, 5, 6, 7]
    assert (outbox.behind, tracker.closed) == (3, True)
    assert uploaded
    assert caplog.text.count("entries are being lost") == 1
    assert caplog.text.count("it is tried again") == 1


def test_a_history_longer_than_the_queue_is_taken_before_new_entries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rl_trainer.tracking.outbox.FIRST_PAUSE_SECONDS", 0.01)
    steps = [a_step(step) for step in range(1, 2 * CAPACITY)]
    tracker = Failing()
    outbox = Outbox(tracker, upload=lambda _: None)
    trackers = Trackers([outbox], samples=0, figures=Figures(), rollouts=cast("RolloutStore", None))
    progress = Progress(metrics=steps, evaluations=[a_result(5), a_result(CAPACITY)])
    trackers.go_on(progress, progress.evaluations)
    progress.metrics.append(a_step(2 * CAPACITY))
    outbox.put([entry(2 * CAPACITY)])
    assert outbox.behind == 2 * CAPACITY + 2
    tracker.works.set()
    until(lambda: not trackers.behind, what="the tracker took everything")
    outbox.close(seconds=60)
    evaluated = [5, CAPACITY]
    assert tracker.taken == sorted([*range(1, 2 * CAPACITY + 1), *evaluated])


def test_what_is_left_of_a_history_at_the_end_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_trainer.tracking.outbox.FIRST_PAUSE_SECONDS", 0.01)
    outbox = Outbox(Failing(), upload=lambda _: None)
    outbox.go_on(map(entry, range(500)), count=500)
    outbox.close(seconds=60)
    assert outbox.behind == 500


class Slow(Failing):
    """Takes what it is given once it is let."""

    def write(self, entries: Sequence[Entry]) -> None:
        self.asked.set()
        assert self.works.wait(HUNG_SECONDS)
        self.taken += [entry.step for entry in entries]


def test_a_slow_tracker_that_is_closed_takes_no_more_of_a_history_and_ends() -> None:
    tracker = Slow()
    outbox = Outbox(tracker, upload=lambda _: None)
    outbox.go_on(map(entry, range(3 * BATCH)), count=3 * BATCH)
    until(tracker.asked.is_set, what="the tracker has the first batch")
    outbox.close(seconds=0)
    assert outbox.behind == 3 * BATCH
    tracker.works.set()
    until(lambda: outbox._thread is not None and outbox._thread.done(), what="its thread ended")
    assert (tracker.taken, tracker.closed) == (list(range(BATCH)), True)


@pytest.mark.parametrize(
    ("any_order", "wanted"),
    [
        pytest.param(True, [*range(BATCH), 9999, *range(BATCH, 3 * BATCH)], id="any order"),
        pytest.param(False, [*range(3 * BATCH), 9999], id="in order"),
    ],
)
def test_at_the_end_new_entries_come_first_where_the_tracker_takes_any_order(
    any_order: bool, wanted: list[int]
) -> None:
    tracker = Slow()
    tracker.any_order = any_order
    outbox = Outbox(tracker, upload=lambda _: None)
    outbox.go_on(map(entry, range(3 * BATCH)), count=3 * BATCH)
    until(tracker.asked.is_set, what="the tracker has the first batch")
    outbox.put([entry(9999)])
    with ThreadPoolExecutor(1) as executor:
        closed = executor.submit(outbox.close, seconds=HUNG_SECONDS)
        until(lambda: outbox._closing, what="it is being closed")
        tracker.works.set()
        closed.result()
    assert tracker.taken == wanted
    assert (outbox.behind, tracker.closed) == (0, True)


class FailsAtTheEnd(Failing):
    """Its first answer is lost when the run is over."""

    over = threading.Event()

    def write(self, entries: Sequence[Entry]) -> None:
        if not self.asked.is_set():
            self.asked.set()
            assert self.over.wait(HUNG_SECONDS)
            raise TrackerError("no answer")
        self.taken += [entry.step for entry in entries]


def test_a_failure_at_the_end_of_the_run_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_trainer.tracking.outbox.FIRST_PAUSE_SECONDS", 0.01)
    tracker = FailsAtTheEnd()
    outbox = Outbox(tracker, upload=lambda _: None)
    outbox.put([entry(1), entry(2)])
    until(tracker.asked.is_set, what="the tracker was asked")
    with ThreadPoolExecutor(1) as executor:
        closing = executor.submit(outbox.close, seconds=HUNG_SECONDS)
        until(lambda: outbox._closing, what="the end of the run")
        tracker.over.set()
        closing.result()
    assert (tracker.taken, tracker.closed, outbox.behind) == ([1, 2], True, 0)


def test_closing_abandons_a_tracker_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_trainer.tracking.outbox.FIRST_PAUSE_SECONDS", 0.01)
    tracker = Failing()
    outbox = Outbox(tracker, upload=lambda _: None)
    outbox.put([entry(1), entry(2)])
    outbox.close(seconds=60)  # ends with the third failure while closing, long before
    assert (tracker.taken, outbox.behind) == ([], 2)
    outbox.put([entry(3)])
    assert outbox.behind == 3


class Broken(Failing):
    """Raises what it should not."""

    def write(self, entries: Sequence[Entry]) -> None:
        raise ValueError("a defect of a library")


def test_a_defect_in_a_tracker_ends_that_tracker_alone(caplog: pytest.LogCaptureFixture) -> None:
    outbox = Outbox(Broken(), upload=lambda _: None)
    outbox.put([entry(1)])
    until(lambda: outbox._thread is not None and outbox._thread.done(), what="its thread ended")
    outbox.put([entry(2)])
    outbox.close(seconds=60)
    assert outbox.behind == 2
    assert "ValueError: a defect of a library" in caplog.text
