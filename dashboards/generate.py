"""Writes what follows from the tables of metrics and alerts.

Grafana's dashboards and the metrics in docs/operations.md from gateway/metrics/table.py; the rules,
their tests and the runbooks from dashboards/alerts. Run it after changing either: make dashboards.
A test compares the files with it.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from dashboards import prometheus  # noqa: E402
from dashboards.alerts.table import ALERTS  # noqa: E402
from dashboards.grafana import dashboard_json  # noqa: E402
from gateway.metrics.table import DASHBOARDS  # noqa: E402

FOLDER = ROOT / "dashboards"
RUNBOOKS = ROOT / "docs" / "runbooks"
PACKAGED = ROOT / "gateway" / "http" / "runbooks.json"  # that a gateway serves
OPERATIONS = ROOT / "docs" / "operations.md"
BEGIN, END = "<!-- metrics: written by `make dashboards` -->\n", "<!-- /metrics -->\n"


def _docs_lines() -> Iterator[str]:
    for dashboard in DASHBOARDS:
        for row in dashboard.rows:
            if not row.metrics:
                continue
            yield f"\n**{dashboard.title.removeprefix('Lanewise: ')}: {row.title}**\n\n"
            yield "| metric | labels | says |\n| --- | --- | --- |\n"
            for metric in row.metrics:
                labels = "; ".join(
                    f"`{label.name}`" + (f": {', '.join(label.values)}" if label.values else "")
                    for label in metric.labels
                )
                yield f"| `{metric.name}` | {labels} | {metric.help} |\n"
    yield "\n"


def documented(text: str) -> str:
    """Returns docs/operations.md with the table as it is now."""
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    return f"{before}{BEGIN}{''.join(_docs_lines())}{END}{after}"


def written() -> dict[Path, str]:
    """Returns every file that is made, with what it has to hold."""
    files = {
        FOLDER / f"{each.uid.removeprefix('lanewise-')}.json": dashboard_json(each)
        for each in DASHBOARDS
    }
    files[OPERATIONS] = documented(OPERATIONS.read_text())
    files[FOLDER / prometheus.RULES] = prometheus.rules()
    files |= {FOLDER / name: text for name, text in prometheus.tests().items()}
    files[RUNBOOKS / "README.md"] = prometheus.runbook_list()
    pages = {f"{alert.name}.md": prometheus.runbook(alert) for alert in ALERTS}
    files |= {RUNBOOKS / name: text for name, text in pages.items()}
    files[PACKAGED] = json.dumps(pages, indent=1) + "\n"
    return files


if __name__ == "__main__":
    for path, text in written().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
