"""Writes what follows from the table of metrics: the Grafana dashboard and a table of the docs.

Run it after changing gateway/metrics/table.py: make dashboards. A test compares the files with it.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from gateway.metrics.record import Panel  # noqa: E402
from gateway.metrics.table import ROWS  # noqa: E402

OVERVIEW = ROOT / "dashboards" / "overview.json"
OPERATIONS = ROOT / "docs" / "operations.md"
BEGIN, END = "<!-- metrics: written by `make dashboards` -->\n", "<!-- /metrics -->\n"

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24  # of Grafana's grid
HEIGHT = 8


def drawn(panel: Panel) -> dict[str, Any]:
    """A panel as Grafana has it."""
    lines = [(metric.name, line) for metric in panel.metrics for line in metric.show]
    return {
        "type": "stat" if panel.is_stat else "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {},
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": DATASOURCE,
                "expr": line.expr.replace("METRIC", name),
                "legendFormat": line.legend,
            }
            for number, (name, line) in enumerate(lines)
        ],
    }


def layout() -> list[dict[str, Any]]:
    """Three panels side by side under each row's title, numbered and placed."""
    placed: list[dict[str, Any]] = []
    y = 0
    for row in ROWS:
        spot = {"h": 1, "w": WIDTH, "x": 0, "y": y}
        placed.append({"type": "row", "title": row.title, "collapsed": False, "gridPos": spot})
        y += 1
        for number, panel in enumerate(row.panels):
            column = number % 3
            spot = {"h": HEIGHT, "w": WIDTH // 3, "x": column * WIDTH // 3, "y": y}
            placed.append({**drawn(panel), "gridPos": spot})
            y += HEIGHT if column == 2 or number == len(row.panels) - 1 else 0
    return [{"id": number, **entry} for number, entry in enumerate(placed, start=1)]


def dashboard() -> str:
    """The whole document, as Grafana imports it."""
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Source"}
    document = {
        "uid": "lanewise-overview",
        "title": "Lanewise",
        "tags": ["lanewise"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": [source]},
        "panels": layout(),
    }
    return json.dumps(document, indent=1) + "\n"


def _docs_lines() -> Iterator[str]:
    for row in ROWS:
        yield f"\n**{row.title}**\n\n| metric | labels | says |\n| --- | --- | --- |\n"
        for metric in row.metrics:
            labels = "; ".join(
                f"`{label.name}`" + (f": {', '.join(label.values)}" if label.values else "")
                for label in metric.labels
            )
            yield f"| `{metric.name}` | {labels} | {metric.help} |\n"
    yield "\n"


def documented(text: str) -> str:
    """docs/operations.md with the table as it is now."""
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    return f"{before}{BEGIN}{''.join(_docs_lines())}{END}{after}"


if __name__ == "__main__":
    OVERVIEW.write_text(dashboard())
    OPERATIONS.write_text(documented(OPERATIONS.read_text()))
