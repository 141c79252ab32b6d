"""The chart's dashboards and alerts over a run that trains, scraped as its monitors say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from rl_console import tools
from rl_console.demo.settings import RELEASE, DemoSettings
from rl_local import versions
from tests.chaos.operator_cluster.jobs import COMPLETE_SECONDS, await_step
from tests.cluster.lab import SYSTEM, Lab
from tests.cluster.manifests import short_job
from tests.cluster.waiting import until
from tests.kube.prometheus import panels, query, rules, running_prometheus, scrapes_of

pytestmark = pytest.mark.timeout(2 * COMPLETE_SECONDS)
JOB, STEPS = "scraped", 100_000
SCRAPES = 40
EMPTY = {
    "operator: Jobs that wait for a person": "no job is stalled or failed",
    "pools: Tool calls per second": "the job has no tools",
    "pools: Requests to judges and other models, per second": "it has none",
    "pools: Calls of the container code, per second": "it has no code of its own",
    "run: Evaluation": "it evaluates nothing",
    "run: KL to the reference": "it has no reference",
    "run: MFU": "the peak of a processor is not known",
    "run: What keeps samplers from work": "nothing does",
    "stores: Sampler pods without their store or bucket": "none is",
    "stores: Entries that trackers have not taken": "it has no tracker",
}
"""Panels without data over this run, and why."""


@pytest.fixture
def prometheus(lab: Lab, installed: DemoSettings, tmp_path: Path) -> Iterator[str]:
    """A Prometheus that scrapes what the chart's monitors select, while a job trains."""
    chart = str(installed.checkout / "charts" / RELEASE)
    options = (
        f"--namespace={SYSTEM}",
        f"--kube-version={versions.KUBERNETES}",
        "--set=image.registry=unused",
        "--set=networkPolicy.enabled=false",
        "--set=podMonitor.enabled=true",
        "--set=serviceMonitor.enabled=true",
    )
    command = installed.tools.helm_command("template", RELEASE, chart, *options)
    kubeconfig = installed.tools.kubeconfig
    assert kubeconfig is not None
    rendered = yaml.safe_load_all(tools.run(command, doing="rendering the monitors"))
    scrapes = [
        scrape
        for manifest in rendered
        if manifest and manifest["kind"] in ("PodMonitor", "ServiceMonitor")
        for scrape in scrapes_of(manifest, kubeconfig)
    ]
    lab.apply(short_job(JOB, training__steps=STEPS))
    await_step(lab, JOB, 3)
    with running_prometheus(tmp_path, scrapes) as url:
        yield url
    lab.delete("rljob", JOB)


def test_every_panel_shows_a_run_that_trains_and_no_alert_fires(prometheus: str, lab: Lab) -> None:
    scraped = f'count_over_time(rl_trainer_step{{rl_operator_io_job="{JOB}"}}[5m]) >= {SCRAPES}'
    until(
        lambda: query(prometheus, scraped),
        what=f"{SCRAPES} scrapes of the trainer",
        seconds=COMPLETE_SECONDS,
        seen=lambda: str(query(prometheus, "up")),
    )
    assert query(prometheus, "up == 0") == []
    asked = panels(namespace=lab.namespace, job=JOB) + panels(namespace=SYSTEM, job=JOB)
    shown = {title for title, expression in asked if query(prometheus, expression)}
    assert {title for title, _ in asked} - shown == set(EMPTY)
    until(
        lambda: all(rule["health"] == "ok" for rule in rules(prometheus)),
        what="an evaluation of all alerts",
        seen=lambda: str({rule["name"]: rule.get("lastError") for rule in rules(prometheus)}),
    )
    assert {rule["name"] for rule in rules(prometheus) if rule["state"] == "firing"} == set()
