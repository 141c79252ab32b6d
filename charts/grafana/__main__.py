"""Writes the Grafana dashboards of the chart; with ``--check`` compares them with its files.

``python charts/grafana`` needs only the standard library.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from operator_board import OPERATOR_DASHBOARD
from panels import Dashboard, Panel
from pools_board import POOLS_DASHBOARD
from run_board import RUN_DASHBOARD
from stores_board import STORES_DASHBOARD

FOLDER = Path(__file__).resolve().parents[1] / "rl-operator" / "dashboards"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
DASHBOARDS = (RUN_DASHBOARD, POOLS_DASHBOARD, OPERATOR_DASHBOARD, STORES_DASHBOARD)
COLUMNS, CHART_HEIGHT, STAT_HEIGHT = 24, 8, 4


def main(arguments: list[str]) -> int:
    """Write or check the files; return the exit status."""
    stale = []
    for dashboard in DASHBOARDS:
        path = FOLDER / f"{dashboard.name}.json"
        text = json.dumps(rendered(dashboard), indent=1) + "\n"
        if "--check" not in arguments:
            FOLDER.mkdir(exist_ok=True)
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(path.name)
    if stale:
        sys.stderr.write(
            f"{FOLDER}: {', '.join(stale)} differ from charts/grafana; run `make generate`\n"
        )
    return 1 if stale else 0


def rendered(dashboard: Dashboard) -> dict[str, Any]:
    """Grafana's JSON model of a dashboard."""
    return {
        "uid": f"rl-operator-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["rl-operator"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,  # the cursor is shared by all panels
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_datasource(), *map(_variable, dashboard.variables)]},
        "panels": _panels(dashboard),
    }


def _datasource() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
    }


def _variable(variable: tuple[str, str, str]) -> dict[str, Any]:
    name, label, metric = variable
    several = name != "namespace"
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": f"label_values({metric}, {label})", "refId": name},
        "refresh": 2,  # when the time range changes
        "sort": 1,
        "includeAll": several,
        "multi": several,
    }


def _panels(dashboard: Dashboard) -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in dashboard.rows:
        panels.append(
            {
                "type": "row",
                "title": title,
                "collapsed": False,
                "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1},
                "panels": [],
            }
        )
        top += 1
        height = STAT_HEIGHT if row[0].stat else CHART_HEIGHT
        abreast = len(row) if row[0].stat or len(row) < 4 else 2 if len(row) == 4 else 3
        for index, panel in enumerate(row):
            width = COLUMNS // abreast
            line, column = divmod(index, abreast)
            place = {"x": column * width, "y": top + line * height, "w": width, "h": height}
            panels.append(_panel(panel, place))
        top += height * -(-len(row) // abreast)
    return [{"id": number, **panel} for number, panel in enumerate(panels, start=1)]


def _panel(panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    instant = {"instant": True, "range": False} if panel.stat else {}
    return {
        "type": "stat" if panel.stat else "timeseries",
        "title": panel.title,
        "description": panel.note,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": SOURCE,
                "expr": query.expression,
                "legendFormat": query.legend or "__auto",
                **instant,
            }
            for number, query in enumerate(panel.queries)
        ],
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
