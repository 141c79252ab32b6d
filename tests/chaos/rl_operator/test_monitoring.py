"""The chart's alerts and dashboards in a real Prometheus and its promtool."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from tests.kube.prometheus import panels, query, rules, running_prometheus, write_rules
from tests.servers import binary
from tests.unit.charts.test_monitoring import ALERTS
from tests.unit.charts.test_values import VALUES
from tests.unit.docs.test_pages import described_metrics
from tests.waiting import until

JOB = 'namespace="team",rl_operator_io_job="math"'
POD = f'{JOB},rl_operator_io_pool="math-main",pod="math-main-x-1"'

FIRES: dict[str, tuple[str, str, str]] = {
    # alert: (series, values by the minute that raise it, values that do not)
    "RLJobStalled": (
        'rl_operator_job_phase{namespace="rl-system",rljob_namespace="team",rljob="math",phase="Stalled"}',
        "1x90",
        "1x5 _x85",
    ),
    "RLJobFailed": (
        'rl_operator_job_phase{namespace="rl-system",rljob_namespace="team",rljob="math",phase="Failed"}',
        "1x90",
        "_x90",
    ),
    "RLOperatorDown": ('rl_operator_leader{namespace="rl-system"}', "0x90", "1x90"),
    "RLOperatorErrors": (
        'rl_operator_reconciles_total{namespace="rl-system",kind="RLJob",result="error"}',
        "0+6x90",
        "0 1x89",
    ),
    "RLNothingToLearn": (f"rl_trainer_equal_groups_ratio{{{JOB}}}", "1x90", "1x65 0.9 1x20"),
    "RLRolloutsLost": (f"rl_trainer_dropped_groups_ratio{{{JOB}}}", "0.75x90", "0.25x90"),
    "RLLogprobGap": (f"rl_trainer_logprob_gap_nats{{{JOB}}}", "0.5x90", "0.01x90"),
    "RLTrackingBehind": (
        f'rl_trainer_tracking_behind_entries{{{JOB},tracker="MLflow"}}',
        "7x90",
        "0x90",
    ),
    "RLEngineDown": (f"rl_sampler_engine_up{{{POD}}}", "0x90", "1x90"),
    "RLSamplerProblem": (f'rl_sampler_problem{{{POD},topic="store"}}', "1x90", "1x5 _x85"),
    "RLPolicyUpdatesFail": (
        f"rl_sampler_update_failures_total{{{POD}}}",
        "0+1x90",
        "0 1x89",
    ),
}
BUCKETS = 'rl_operator_queue_seconds_bucket{namespace="rl-system",le="%s"}'
SLOW = [(BUCKETS % "10", "0x90"), (BUCKETS % "30", "0+10x90"), (BUCKETS % "+Inf", "0+10x90")]
QUICK = [(BUCKETS % "10", "0+10x90"), (BUCKETS % "30", "0+10x90"), (BUCKETS % "+Inf", "0+10x90")]
STEP = f"rl_trainer_step_timestamp_seconds{{{JOB}}}"
START = f"rl_trainer_attempt_start_timestamp_seconds{{{JOB}}}"
STEPS: list[tuple[list[tuple[str, str]], bool]] = [
    ([(START, "0x90"), (STEP, "0x90")], True),
    ([(START, "0x90")], True),
    ([(STEP, "0x90")], True),
    ([(START, "0x90"), (STEP, "0+60x90")], False),
    ([(START, "0x20 _x50 4200x20"), (STEP, "0x20 _x50 0x20")], False),
]
"""Of RLTrainerMakesNoSteps: an old step, none, an old one of an earlier release, one a minute, and
one from before a suspension."""
AWAY = "stale _x4"
AGAIN = " ".join(f"{900 * attempt}x9 {AWAY}" for attempt in range(30))
"""Starts of attempts that run for ten minutes each, and begin five minutes after the one before."""
LATER: dict[int, list[tuple[list[tuple[str, str]], bool]]] = {
    75: [([(START, AGAIN)], False)],
    240: [
        ([(START, AGAIN), (STEP, f"0x9 {AWAY} " * 30)], True),
        ([(START, AGAIN), (STEP, f"0x9 {AWAY} " * 10 + "9000+60x300")], False),
        ([(START, "0x200 stale _x100"), (STEP, "0+60x200 stale _x100")], False),
        ([(START, AGAIN.partition(" 12600x9")[0]), (STEP, f"0x9 {AWAY} " * 14)], False),
    ],
    590: [([(START, "0x60 stale _x479 32460x90"), (STEP, "0x60 stale _x479 0x90")], False)],
    620: [([(START, "0x60 stale _x479 32460x90"), (STEP, "0x60 stale _x479 0x90")], True)],
}
"""Of RLTrainerMakesNoSteps, by minutes: attempts that end again and again before a first step, at
first, later, with steps in between, while the trainer is away, and after the job was suspended; and
a suspension of eight hours, within the first hour after it and later."""
LONGEST_BACK_OFF = 300
"""Seconds for which the kubelet keeps a container that ended again and again."""


def starts_on_silent_watches() -> str:
    """When the operator's process began, by the minute, if no watch ever sends anything."""
    values, began, back_off = [], 0, 10
    for now in range(0, 90 * 60, 60):
        ends = began + VALUES["operator"]["watchSilenceSeconds"]
        if now >= ends + back_off:
            began, back_off = ends + back_off, min(2 * back_off, LONGEST_BACK_OFF)
            ends = began + VALUES["operator"]["watchSilenceSeconds"]
        values.append("_" if now >= ends else str(began))
    return " ".join(values)


def restarts(began: str) -> list[tuple[str, str]]:
    """The series of an operator, and of another process whose restarts are not ours."""
    pod = '{namespace="rl-system",pod="%s"}'
    return [
        ("rl_operator_leader" + pod % "rl-operator-1", "1x90"),
        ("process_start_time_seconds" + pod % "rl-operator-1", began),
        ("process_start_time_seconds" + pod % "other", "0+60x90"),
    ]


def cases(alert: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The series that raise an alert, and those that do not."""
    if alert == "RLOperatorSlow":
        return SLOW, QUICK
    if alert == "RLOperatorRestarts":
        return restarts(starts_on_silent_watches()), restarts("0x30 1800x60")
    series, raised, quiet = FIRES[alert]
    return [(series, raised)], [(series, quiet)]


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [binary("promtool"), *map(str, arguments)], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def rule_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rules of a release in the namespace rl-system."""
    return write_rules(tmp_path_factory.mktemp("rules"))


def test_promtool_accepts_the_rules(rule_file: Path) -> None:
    done = promtool("check", "rules", "--lint-fatal", rule_file)
    assert done.returncode == 0, done.stdout + done.stderr


OF_OTHERS = {
    "RLOperatorDown": [
        ('rl_operator_leader{namespace="rl-system"}', "0x90"),
        ('rl_operator_leader{namespace="other"}', "1x90"),
    ],
    "RLJobFailed": [
        ('rl_operator_job_phase{namespace="other",rljob_namespace="t",phase="Failed"}', "1x90")
    ],
}
"""Series of two releases: the first alert fires in spite of the other one, the second does not."""


@pytest.mark.parametrize(("alert", "fires"), [("RLOperatorDown", True), ("RLJobFailed", False)])
def test_a_release_judges_its_own_operator(
    alert: str, fires: bool, rule_file: Path, tmp_path: Path
) -> None:
    judge(alert, rule_file, tmp_path, [(OF_OTHERS[alert], fires)])


@pytest.mark.parametrize("alert", [rule["alert"] for rule in ALERTS])
def test_each_alert_fires_when_it_must_and_only_then(
    alert: str, rule_file: Path, tmp_path: Path
) -> None:
    if alert == "RLTrainerMakesNoSteps":
        judge(alert, rule_file, tmp_path, STEPS)
        return
    raised, quiet = cases(alert)
    judge(alert, rule_file, tmp_path, [(raised, True), (quiet, False)])


@pytest.mark.parametrize("minutes", LATER)
def test_the_work_of_all_attempts_counts_until_a_step(
    minutes: int, rule_file: Path, tmp_path: Path
) -> None:
    judge("RLTrainerMakesNoSteps", rule_file, tmp_path, LATER[minutes], minutes=minutes)


def judge(
    alert: str,
    rule_file: Path,
    folder: Path,
    situations: Sequence[tuple[Sequence[tuple[str, str]], bool]],
    *,
    minutes: int = 85,
) -> None:
    """Let promtool compare whether an alert fires in each situation with whether it should."""
    tests = {
        "rule_files": [str(rule_file)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series],
                "promql_expr_test": [
                    {
                        "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
                        "eval_time": f"{minutes}m",
                        "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
                    }
                ],
            }
            for series, fires in situations
        ],
    }
    path = folder / "alerts_test.yaml"
    path.write_text(yaml.safe_dump(tests))
    done = promtool("test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


class Exposition(BaseHTTPRequestHandler):
    """Answers with one sample of every metric of the reference page, with all of its labels."""

    text = ""

    def do_GET(self) -> None:
        """Send the samples."""
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(self.text.encode())

    def log_message(self, *_: Any) -> None:
        """Stay silent."""


def samples() -> str:
    """Text format; the monitors' labels are there already, as after their relabelling."""
    lines = ["process_resident_memory_bytes 1e8"]
    for metric, labels in described_metrics().items():
        given = {label: "x" for label in labels if label != "…"}
        given |= {"topic": "store"} if "topic" in labels else {}
        given |= {"phase": "Stalled"} if metric == "rl_operator_job_phase" else {}
        own = ",".join(f'{name}="{value}"' for name, value in given.items())
        lines.append(f"{metric}{{{own}}} 1")
        for bound in ("1", "+Inf"):
            where = ",".join(filter(None, (own, f'le="{bound}"')))
            lines.append(f"{metric}_bucket{{{where}}} 1")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a Prometheus that has scraped one sample of everything."""
    folder = tmp_path_factory.mktemp("prometheus")
    Exposition.text = samples()
    target = ThreadingHTTPServer(("127.0.0.1", 0), Exposition)
    Thread(target=target.serve_forever, daemon=True).start()
    labels = {
        "namespace": "team",
        "pod": "p",
        "rl_operator_io_job": "math",
        "rl_operator_io_pool": "math-main",
    }
    address = f"127.0.0.1:{target.server_address[1]}"
    scrape = {"job_name": "rl", "static_configs": [{"targets": [address], "labels": labels}]}
    with running_prometheus(folder, [scrape]) as url:
        until(lambda: query(url, "count_over_time(rl_trainer_step[1m]) > 2"), what="three scrapes")
        yield url
    target.shutdown()
    target.server_close()


@pytest.mark.parametrize(("title", "expression"), panels(namespace="team", job="math"))
def test_every_panel_shows_what_prometheus_has_scraped(
    prometheus: str, title: str, expression: str
) -> None:
    assert query(prometheus, expression), title


def test_prometheus_evaluates_every_alert_without_an_error(prometheus: str) -> None:
    until(
        lambda: all(rule["health"] != "unknown" for rule in rules(prometheus)),
        what="an evaluation of all",
    )
    assert {rule["name"]: rule.get("lastError", "") for rule in rules(prometheus)} == dict.fromkeys(
        [rule["alert"] for rule in ALERTS], ""
    )
