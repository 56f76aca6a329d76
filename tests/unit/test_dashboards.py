"""Dashboard and docs are what follows from the table of metrics, and every query parses."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import promql_parser
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "dashboards"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "overview.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def test_dashboard_and_docs_are_what_the_script_writes() -> None:
    spec = importlib.util.spec_from_file_location("generate", FOLDER / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (FOLDER / "overview.json").read_text() == module.dashboard(), "run make dashboards"
    docs = (FOLDER.parent / "docs" / "operations.md").read_text()
    assert docs == module.documented(docs), "run make dashboards"


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: str(panel["title"]))
def test_every_query_parses_and_every_panel_explains_itself(panel: dict[str, Any]) -> None:
    assert panel["description"]
    assert panel["targets"]
    for target in panel["targets"]:
        promql_parser.parse(target["expr"].replace("$__rate_interval", "1m"))
        assert target["legendFormat"]


def test_panels_are_numbered_once_and_do_not_overlap() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not taken & cells, panel["title"]
        assert all(x < 24 for x, _ in cells)
        taken |= cells
