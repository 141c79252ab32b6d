"""The page on installation: the chart's values, and how GitOps tools read conditions."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.unit.charts.test_values import SCHEMA, declared, declared_below
from tests.unit.docs.pages import ROOT

PAGE = (ROOT / "docs" / "getting-started" / "install.md").read_text()
CONDITIONS = (ROOT / "docs" / "reference" / "conditions.md").read_text()
GITOPS = ROOT / "examples" / "gitops"
HEALTH = {
    "at work as declared": "Healthy",
    "starting, recovering, growing": "Progressing",
    "suspended as declared": "Suspended",
    "stopped for good, as declared": "Healthy",
    "waits for its queue": "Progressing",
    "stopping for a suspension, or because its queue says so": "Progressing",
    "waits for its user": "Degraded",
    "complete": "Healthy",
    "given up": "Degraded",
    "being deleted with its data": "Progressing",
}


def test_the_table_of_values_has_every_chart_value_and_no_other() -> None:
    leaves = {value for value in declared(SCHEMA) if not any(declared_below(value))}
    values = PAGE.partition("\n## Values\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]+) \|", values, re.MULTILINE)
    named = {value for row in rows for value in re.findall(r"`([^`]+)`", row)}
    assert named == leaves


def test_the_command_makes_and_watches_the_namespace_of_the_first_job() -> None:
    job = yaml.safe_load((ROOT / "examples" / "minimal.yaml").read_text())
    namespace = job["metadata"]["namespace"]
    command = PAGE.partition("\n## Install the chart\n")[2].partition("\n```\n")[0]
    (watched,) = re.findall(r"watchNamespaces='\{(\S+)\}'", command)
    assert namespace in watched.split(",")
    for each in watched.split(","):
        assert command.index(f"kubectl create namespace {each}\n") < command.index("helm ")


def states() -> dict[str, set[str]]:
    """The conditions that are True, by the state of a job, as the page of conditions says."""
    table = CONDITIONS.partition("| state |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (\w[\w, ]+) \|([^|]+)\|([^|]+)\|([^|]+)\|", table, re.MULTILINE)
    true: dict[str, set[str]] = {}
    for state, *cells in rows:
        kinds = zip(("Ready", "Reconciling", "Stalled"), cells, strict=True)
        true[state] = {condition for condition, cell in kinds if "True" in cell}
        true[state] |= {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    return true


def test_every_state_of_a_job_has_a_health() -> None:
    assert states().keys() == HEALTH.keys()


@pytest.mark.parametrize("state", HEALTH)
@pytest.mark.parametrize("kind", ["RLJob", "SamplerPool"])
def test_argo_cd_reads_the_first_condition_that_is_true(kind: str, state: str) -> None:
    shipped = yaml.safe_load((GITOPS / "argocd-health.yaml").read_text())
    lua = shipped["data"][f"resource.customizations.health.rl-operator.io_{kind}"]
    order = re.findall(r'\{"(\w+)", "(\w+)"\}', lua)
    assert len(order) == lua.count('{"')
    assert next(health for name, health in order if name in states()[state]) == HEALTH[state]


def test_flux_waits_for_conditions_that_exist() -> None:
    shipped = yaml.safe_load((GITOPS / "flux.yaml").read_text())
    (check,) = shipped["spec"]["healthCheckExprs"]
    named = {key: re.findall(r"type == '(\w+)'", check[key]) for key in ("current", "failed")}
    assert named == {"current": ["Complete"], "failed": ["Failed"]}
    assert {"Complete", "Failed"} <= set(re.findall(r"`(\w+)`", CONDITIONS))
