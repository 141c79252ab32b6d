from __future__ import annotations

import logging
import socket
import urllib.error
import urllib.request

import pytest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE
from prometheus_client.parser import text_string_to_metric_families

from rl_contracts.documents.evaluation import EvaluationResult
from rl_contracts.documents.step_metrics import Drops, GpuUse
from rl_trainer.context.figures import MOST_SERIES, Figures
from rl_trainer.tracking.endpoint import serving
from tests.samples.documents import a_step

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]
HOSTILE = 'a"b\\c\nrl_trainer_step 9\n# TYPE x'


def read(page: bytes) -> Series:
    """As Prometheus' own parser reads it; each series once."""
    series: Series = {}
    for family in text_string_to_metric_families(page.decode()):
        assert family.documentation
        for sample in family.samples:
            name = (sample.name, tuple(sorted(sample.labels.items())))
            assert name not in series
            series[name] = sample.value
    return series


def an_evaluation(**changes: object) -> EvaluationResult:
    values = {
        "step": 4,
        "version": 2,
        "dataset": "sums",
        "temperature": 0.5,
        "accuracy": 0.75,
        "prompts": 4,
        "pass_at": {"2": 1.0},
        "tokens": 9,
        "logprob_gap_mean": 0.0,
        "logprob_gap_max": 0.0,
        "seconds": 1.0,
    }
    return EvaluationResult.model_validate(values | changes)


def test_the_start_of_training_is_there_before_the_first_step() -> None:
    """A run that trains nothing has none: an alert asks how long no step was made."""
    figures = Figures(clock=lambda: 1e9)
    figures.evaluated([an_evaluation()])
    name = ("rl_trainer_attempt_start_timestamp_seconds", ())
    assert name not in read(figures.page)
    figures.go_on([], [])
    assert read(figures.page)[name] == 1e9


def test_the_page_holds_the_last_step_and_lineage_sums() -> None:
    figures = Figures(clock=lambda: 1e9)
    assert figures.page == b""
    before = a_step(
        1,
        tokens=10,
        rollouts=2,
        staleness={"0": 1, "3": 1},
        seconds={"wait": 1.5},
        drops=Drops(by_cause={"stale": 2}),
    )
    figures.go_on([before], [an_evaluation(step=1, accuracy=0.1)])
    last = a_step(
        2,
        tokens=5,
        rollouts=2,
        staleness={"0": 1, "64": 1},
        reward_mean=0.25,
        kl=0.5,
        value_loss=None,
        mfu=None,
        gpus=[
            GpuUse(peak_bytes=50, used_bytes=60, size_bytes=80, busy=0.5),
            GpuUse(peak_bytes=40, used_bytes=60, size_bytes=80),
        ],
        clip_fraction=0.125,
        learning_rate=1e-6,
        time=1e9 + 0.5,
        seconds={"wait": 0.5, "update": 2.0},
        reward_parts={"Math": 0.75},
        drops=Drops(by_cause={"stale": 1, "lease": 1}),
        tracking_behind={"mlflow": 7},
    )
    figures.step(last)
    figures.evaluated([an_evaluation()])
    series = read(figures.page)
    plain = {
        name.removeprefix("rl_trainer_"): sample
        for (name, labels), sample in series.items()
        if not labels
    }
    assert (plain["step"], plain["reward_mean"], plain["kl_nats"]) == (2, 0.25, 0.5)
    assert (plain["clipped_tokens_ratio"], plain["learning_rate"]) == (0.125, 1e-6)
    assert plain["step_timestamp_seconds"] == 1e9 + 0.5
    assert plain["attempt_start_timestamp_seconds"] == 1e9
    assert (plain["tokens_trained_total"], plain["rollouts_trained_total"]) == (15, 4)
    assert not {"value_loss", "mfu_ratio"} & set(plain), "what is not known is not shown"

    def value_of(name: str, **labels: str) -> float:
        return series[f"rl_trainer_{name}", tuple(sorted(labels.items()))]

    assert value_of("reward_part_mean", scorer="Math") == 0.75
    assert value_of("tracking_behind_entries", tracker="mlflow") == 7
    assert value_of("gpu_memory_peak_bytes", rank="1") == 40
    assert value_of("gpu_memory_used_bytes", rank="0") == 60
    assert value_of("gpu_memory_size_bytes", rank="0") == 80
    assert value_of("gpu_busy_ratio", rank="0") == 0.5
    assert ("rl_trainer_gpu_busy_ratio", (("rank", "1"),)) not in series
    assert value_of("step_phase_seconds", phase="wait") == 0.5
    assert value_of("phase_seconds_total", phase="wait") == 2.0
    assert value_of("groups_dropped_total", cause="stale") == 3
    buckets = {
        bound: value_of("staleness_steps_bucket", le=bound) for bound in ("0", "2", "4", "32")
    }
    assert buckets == {"0": 2, "2": 2, "4": 3, "32": 3}
    assert (
        value_of("staleness_steps_bucket", le="64")
        == value_of("staleness_steps_bucket", le="+Inf")
        == 4
    )
    assert (plain["staleness_steps_sum"], plain["staleness_steps_count"]) == (67, 4)
    where = {"split": "validation", "dataset": "sums", "temperature": "0.5"}
    assert value_of("evaluation_accuracy", **where) == 0.75
    assert value_of("evaluation_pass_ratio", **where, k="2") == 1.0
    assert value_of("evaluation_step", **where) == 4


def test_label_values_are_escaped_and_series_bounded() -> None:
    figures = Figures()
    figures.step(a_step(1, reward_parts={HOSTILE: 0.5}))
    series = read(figures.page)
    assert series["rl_trainer_reward_part_mean", (("scorer", HOSTILE),)] == 0.5
    assert series["rl_trainer_step", ()] == 1
    figures.step(a_step(2, reward_parts={f"s{n}": 0.0 for n in range(10 * MOST_SERIES)}))
    parts = [name for name, _ in read(figures.page) if name == "rl_trainer_reward_part_mean"]
    assert len(parts) == MOST_SERIES


def asked(port: int, path: str, *, method: str = "GET") -> tuple[int, str, bytes]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read()


def test_a_scrape_reads_the_current_figures() -> None:
    figures = Figures()
    with serving(0, page=lambda: figures.page) as port:
        assert port is not None
        assert asked(port, "/metrics") == (200, CONTENT_TYPE, b"")
        for step in (1, 2):
            figures.step(a_step(step))
            status, _, page = asked(port, "/metrics?name=x")
            assert (status, read(page)["rl_trainer_step", ()]) == (200, step)
        assert asked(port, "/other")[0] == 404
        assert asked(port, "/metrics", method="POST")[0] == 501


def test_a_silent_client_delays_neither_run_nor_shutdown() -> None:
    with serving(0, page=lambda: b"page\n") as port:
        assert port is not None
        silent = socket.create_connection(("127.0.0.1", port))
    # The block has ended beside it.
    silent.close()


def test_a_disconnecting_client_does_not_disturb_the_next() -> None:
    with serving(0, page=lambda: b"page\n") as port:
        assert port is not None
        with socket.create_connection(("127.0.0.1", port)) as gone:
            gone.sendall(b"GET /metrics HTT")
        assert asked(port, "/metrics")[2] == b"page\n"


def test_a_port_in_use_does_not_stop_training(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        taken = other.getsockname()[1]
        with caplog.at_level(logging.WARNING), serving(taken, page=lambda: b"") as port:
            assert port is None
    assert f"metrics are not served on port {taken}" in caplog.text


def test_without_a_port_nothing_is_served() -> None:
    with serving(None, page=lambda: b"") as port:
        assert port is None
