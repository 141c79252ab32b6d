"""A real Prometheus, and what the chart's monitors and dashboards ask of it."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from rl_local import versions
from tests.servers import binary, free_port
from tests.unit.charts.test_monitoring import DASHBOARDS
from tests.unit.charts.test_values import CHART

META = "__meta_kubernetes_"


def write_rules(folder: Path) -> Path:
    """The file of the rules that the chart makes for a release in the namespace rl-system."""
    options = (
        "--namespace=rl-system",
        f"--kube-version={versions.KUBERNETES}",
        "--show-only=templates/monitoring.yaml",
        "--set=image.registry=unused",
        "--set=prometheusRule.enabled=true",
    )
    command = [binary("helm"), "template", "rl", str(CHART), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(done.stdout)["spec"]))
    return file


@contextmanager
def running_prometheus(folder: Path, scrapes: list[dict[str, Any]]) -> Iterator[str]:
    """URL of a Prometheus that scrapes every second, and evaluates the chart's alerts."""
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(write_rules(folder))],
        "scrape_configs": scrapes,
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    command = [
        binary("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def query(url: str, expression: str) -> list[dict[str, Any]]:
    """The result of an instant query; empty while the server does not answer."""
    try:
        where = f"{url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        with urllib.request.urlopen(where, timeout=10) as answer:
            result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            return result
    except OSError:
        return []


def rules(url: str) -> list[dict[str, Any]]:
    """All rules as the server evaluates them."""
    with urllib.request.urlopen(f"{url}/api/v1/rules", timeout=10) as answer:
        groups = json.load(answer)["data"]["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels(*, namespace: str, job: str) -> list[tuple[str, str]]:
    """Title and expression of every query of every dashboard, its variables filled in."""
    filled = []
    for path in DASHBOARDS:
        board = json.loads(path.read_text())
        for panel in board["panels"]:
            for target in panel.get("targets", []):
                expression = target["expr"].replace("$__rate_interval", "1m")
                for name, value in (("namespace", namespace), ("job", job), ("pool", ".*")):
                    expression = expression.replace(f"${name}", value)
                filled.append((f"{path.stem}: {panel['title']}", expression))
    return filled


def scrapes_of(monitor: Mapping[str, Any], kubeconfig: Path) -> list[dict[str, Any]]:
    """Scrape configurations that prometheus-operator would make of a monitor, without its own.

    Of a PodMonitor or a ServiceMonitor it takes what the chart's have: a selector, labels of pods,
    ports and relabelings.
    """
    of_pods = monitor["kind"] == "PodMonitor"
    spec, name = monitor["spec"], monitor["metadata"]["name"]
    object_label = f"{META}{'pod' if of_pods else 'service'}_label_"
    selector = spec["selector"]
    wanted = [
        *((key, re.escape(value)) for key, value in selector.get("matchLabels", {}).items()),
        *(
            (each["key"], "|".join(map(re.escape, each["values"])))
            for each in selector.get("matchExpressions", [])
            if each["operator"] == "In"
        ),
    ]
    common = [
        *(_keep(object_label + _sanitized(key), values) for key, values in wanted),
        *(
            {"source_labels": [META + source], "target_label": target}
            for source, target in (
                ("namespace", "namespace"),
                ("pod_name", "pod"),
                ("pod_container_name", "container"),
            )
        ),
        *(
            {
                "source_labels": [object_label + _sanitized(key)],
                "regex": "(.+)",
                "target_label": _sanitized(key),
            }
            for key in spec.get("podTargetLabels", [])
        ),
    ]
    port_label = META + ("pod_container_port_name" if of_pods else "endpoint_port_name")
    discovery = {"role": "pod" if of_pods else "endpoints", "kubeconfig_file": str(kubeconfig)}
    return [
        {
            "job_name": f"{name}/{number}",
            "metrics_path": endpoint["path"],
            "kubernetes_sd_configs": [discovery],
            "relabel_configs": [
                *([_drop(META + "pod_phase", "Failed|Succeeded")] if of_pods else []),
                _keep(port_label, endpoint["port"]),
                *common,
                *map(_relabeling, endpoint.get("relabelings", [])),
            ],
        }
        for number, endpoint in enumerate(spec["podMetricsEndpoints" if of_pods else "endpoints"])
    ]


def _keep(label: str, regex: str) -> dict[str, Any]:
    return {"source_labels": [label], "regex": regex, "action": "keep"}


def _drop(label: str, regex: str) -> dict[str, Any]:
    return _keep(label, regex) | {"action": "drop"}


def _sanitized(key: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", key)


def _relabeling(given: Mapping[str, Any]) -> dict[str, Any]:
    """The same in Prometheus' own spelling."""
    return {re.sub("([A-Z])", r"_\1", key).lower(): value for key, value in given.items()}
