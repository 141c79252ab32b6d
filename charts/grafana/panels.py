"""What the tables of the Grafana dashboards are made of: panels, queries, and PromQL.

Labels are those of the chart's PodMonitor and ServiceMonitor: ``rl_operator_io_job`` is the RLJob,
``rl_operator_io_pool`` the SamplerPool, ``namespace`` that of the pod.
"""

from __future__ import annotations

from dataclasses import dataclass

RUN = 'namespace="$namespace",rl_operator_io_job=~"$job"'
POOL = 'namespace="$namespace",rl_operator_io_pool=~"$pool"'
NAMESPACE = 'namespace=~"$namespace"'
RATE = "[$__rate_interval]"


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression, and the text of its legend."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """A chart, or with ``stat`` a single number.

    Attributes:
        unit: Grafana's name of a unit: ``short``, ``s``, ``percentunit``, ``bytes``.
        note: what to read from it; shown at its title.
    """

    title: str
    unit: str
    queries: tuple[Query, ...]
    note: str = ""
    stat: bool = False


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A page of rows of panels.

    Attributes:
        name: the file's, and the last part of its uid.
        variables: names with the label and the metric that their values come from; the first
            narrows the second.
    """

    name: str
    title: str
    variables: tuple[tuple[str, str, str], ...]
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]


def run(metric: str, *, by: str = "rl_operator_io_job") -> str:
    """The value of a metric of the chosen runs, one for each group of labels."""
    return f"max by ({by}) ({metric}{{{RUN}}})"


def runs(*metrics: tuple[str, str]) -> tuple[Query, ...]:
    """A query for each metric of a run, with its part of the legend."""
    return tuple(
        Query(run(metric), f"{{{{rl_operator_io_job}}}} {legend}".strip())
        for metric, legend in metrics
    )


def rate(metric: str, labels: str, *, by: str) -> str:
    """A counter's increase per second, summed over all labels but those of ``by``."""
    return f"sum by ({by}) (rate({metric}{{{labels}}}{RATE}))"


def quantile(share: float, metric: str, labels: str = "") -> str:
    """The value that a share in [0, 1] of a histogram's recent observations do not exceed."""
    where = f"{{{labels}}}" if labels else ""
    return f"histogram_quantile({share}, sum by (le) (rate({metric}_bucket{where}{RATE})))"


def stat(title: str, expression: str, unit: str = "short", *, note: str = "") -> Panel:
    """A panel of a single number for each run."""
    return Panel(title, unit, (Query(expression, "{{rl_operator_io_job}}"),), note, stat=True)
