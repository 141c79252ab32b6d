"""Dashboards and alerts name metrics, labels and pages that exist."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest
import yaml

from tests.unit.charts.test_values import CHART
from tests.unit.docs.pages import ROOT
from tests.unit.docs.test_pages import described_metrics

DASHBOARDS = sorted((CHART / "dashboards").glob("*.json"))
ALERTS: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((CHART / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
MONITOR_LABELS = {
    "namespace",
    "pod",
    "rl_operator_io_job",
    "rl_operator_io_pool",
}
"""Set by Prometheus from the chart's monitors."""
METRIC = re.compile(r"\b(?:rl|process)_(?!operator_io)\w+")
SELECTOR = re.compile(r"\b(rl_(?!operator_io)\w+)\{([^}]*)\}")
SUFFIX = re.compile(r"_(bucket|sum|count)$")


def expressions() -> list[str]:
    """Of all panels, variables and alerts."""
    queries = [rule["expr"] for rule in ALERTS]
    for path in DASHBOARDS:
        board = json.loads(path.read_text())
        queries += [
            target["expr"] for panel in board["panels"] for target in panel.get("targets", [])
        ]
        queries += [
            re.sub(r"label_values\((.*), \w+\)", r"\1", variable["query"]["query"])
            for variable in board["templating"]["list"]
            if variable["type"] == "query"
        ]
    return queries


def base(metric: str) -> str:
    """The name under which the reference page lists a metric."""
    described = described_metrics()
    return metric if metric in described else SUFFIX.sub("", metric)


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_every_expression_names_metrics_and_labels_of_the_reference_page(expression: str) -> None:
    described = described_metrics()
    ours = [name for name in METRIC.findall(expression) if name.startswith("rl_")]
    assert ours
    assert {name for name in ours if base(name) not in described} == set()
    for metric, selector in SELECTOR.findall(expression):
        labels = set(re.findall(r"(\w+)(?:=~|!~|!=|=)", selector))
        assert labels <= described[base(metric)] | MONITOR_LABELS


def test_accuracies_are_shown_by_every_label_that_tells_them_apart() -> None:
    name = "rl_trainer_evaluation_accuracy"
    (grouped,) = [re.findall(r"by \((.*?)\)", each) for each in expressions() if name in each]
    assert described_metrics()[name] <= set(grouped[0].split(", "))


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    page = (ROOT / "docs" / "reference" / "alerts.md").read_text()
    names = [rule["alert"] for rule in ALERTS]
    assert names == re.findall(r"^## (\w+)", page, re.MULTILINE)
    links = [rule["annotations"]["runbook_url"] for rule in ALERTS]
    assert links == [f"RUNBOOKS#{name.lower()}" for name in names]


def test_every_panel_has_a_place_of_its_own() -> None:
    for path in DASHBOARDS:
        taken: set[tuple[int, int]] = set()
        for panel in json.loads(path.read_text())["panels"]:
            place = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert place["x"] + place["w"] <= 24
            assert not cells & taken, (path.name, panel["title"])
            taken |= cells


def test_dashboards_are_those_that_the_tables_make() -> None:
    script = ROOT / "charts" / "grafana"
    done = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
