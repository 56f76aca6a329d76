"""Dashboards, rules and pages are what follows from their tables; every query parses."""

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard as GrafanaDashboard

from dashboards.alerts.table import ALERTS, LONG_RECORDINGS, RECORDINGS
from dashboards.generate import written
from dashboards.grafana import LABELS
from gateway.cli.main import ADMIN_COMMANDS, COMMANDS
from gateway.metrics.table import DASHBOARDS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "dashboards"
RUNBOOKS = ROOT / "docs" / "runbooks"
TEXTS = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.json"))}
DOCUMENTS: dict[str, dict[str, Any]] = {name: json.loads(text) for name, text in TEXTS.items()}
PANELS = [
    pytest.param(panel, id=f"{name}: {panel['title']}")
    for name, document in DOCUMENTS.items()
    for panel in document["panels"]
    if panel["type"] != "row"
]
RANGES = {"$__rate_interval": "1m", "$__interval": "1m"}


def parsed(expr: str) -> None:
    for macro, value in RANGES.items():
        expr = expr.replace(macro, value)
    promql_parser.parse(expr)


def test_the_files_are_what_the_script_writes() -> None:
    files = written()
    for path, text in files.items():
        assert path.read_text() == text, f"{path.relative_to(ROOT)}: run make dashboards"
    on_disk = {*FOLDER.glob("*.json"), *FOLDER.glob("*.yml"), *RUNBOOKS.glob("*.md")}
    assert on_disk <= set(files), "files that nobody writes any more"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_grafanas_own_schema_takes_every_dashboard_whole(name: str) -> None:
    read = GrafanaDashboard.from_json(DOCUMENTS[name])
    assert JSONEncoder(sort_keys=True, indent=1).encode(read) + "\n" == TEXTS[name]
    assert read.uid == f"lanewise-{name}"
    assert read.templating.list_val is not None
    assert len(read.templating.list_val) == len(DOCUMENTS[name]["templating"]["list"]) > 1


@pytest.mark.parametrize("panel", PANELS)
def test_every_query_parses_and_every_panel_explains_itself(panel: dict[str, Any]) -> None:
    assert panel["description"]
    assert panel["targets"]
    for target in panel["targets"]:
        parsed(target["expr"])
        assert target["legendFormat"]
        # A zero beside labelled series is a line that means nothing.
        assert " by (" not in target["expr"] or "vector(0)" not in target["expr"]


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_has_one_unit(panel: dict[str, Any]) -> None:
    """Rates and levels do not share an axis, unless what is per second is the level's unit."""
    kinds = {"rate(" in target["expr"] for target in panel["targets"]}
    assert len(kinds) == 1 or panel["title"] == "Watts"


def test_every_query_obeys_the_variables_of_its_dashboard() -> None:
    sample = re.compile(r"\b((?:lanewise_|vllm:)\w+)(\{[^}]*\})?")
    for table in DASHBOARDS:
        document = DOCUMENTS[table.uid.removeprefix("lanewise-")]
        for panel in document["panels"]:
            for target in panel.get("targets", ()):
                for name, selectors in sample.findall(target["expr"]):
                    wanted = [each for each in table.variables if each in LABELS[name]]
                    assert "instance" in wanted
                    assert all(f'{each}=~"${each}"' in selectors for each in wanted), target


def test_names_that_other_programs_have_too_are_asked_of_our_job() -> None:
    """Every process has `process_*`, and a server of vLLM's own has `vllm:*`."""
    asked = [alert.expr for alert in ALERTS]
    for document in DOCUMENTS.values():
        asked += [each["expr"] for each in document["annotations"]["list"]]
        for panel in document["panels"]:
            asked += [target["expr"] for target in panel.get("targets", ())]
        asked += [each.get("query", "") for each in document["templating"]["list"]]
    found = [
        selectors
        for expr in asked
        for selectors in re.findall(r"\b(?:vllm:|process_)\w+(\{[^}]*\})?", str(expr))
    ]
    assert len(found) > 20
    assert all('job="lanewise"' in selectors for selectors in found)


def test_panels_are_numbered_once_and_do_not_overlap() -> None:
    for document in DOCUMENTS.values():
        ids = [panel["id"] for panel in document["panels"]]
        assert len(set(ids)) == len(ids)
        taken: set[tuple[int, int]] = set()
        for panel in document["panels"]:
            place = panel["gridPos"]
            cells = {
                (place["x"] + x, place["y"] + y)
                for x in range(place["w"])
                for y in range(place["h"])
            }
            assert not taken & cells, panel["title"]
            assert all(x < 24 for x, _ in cells)
            taken |= cells


def test_rules_ask_for_metrics_that_there_are() -> None:
    recordings = (*RECORDINGS, *LONG_RECORDINGS)
    recorded = {recording.name for recording in recordings}
    for expr in (*(each.expr for each in recordings), *(alert.expr for alert in ALERTS)):
        parsed(expr)
        names = set(re.findall(r"\b(?:lanewise[_:]|process_)[\w:]+", expr))
        assert names <= {*LABELS, *recorded}, expr


def test_every_alert_has_its_page() -> None:
    rules = yaml.safe_load((FOLDER / "lanewise.rules.yml").read_text())
    found = [rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule]
    assert [rule["alert"] for rule in found] == [alert.name for alert in ALERTS]
    for rule in found:
        page = RUNBOOKS / rule["annotations"]["runbook_url"].rpartition("/")[2]
        text = page.read_text()
        assert page.stem == rule["alert"]
        for heading in ("## Meaning", "## First look", "## Remedy"):
            assert heading in text


@pytest.mark.parametrize("path", sorted(RUNBOOKS.glob("*.md")), ids=lambda path: str(path.stem))
def test_a_page_names_what_there_is(path: Path) -> None:
    text = path.read_text()
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (path.parent / target).exists(), target
    panels = {panel["title"] for document in DOCUMENTS.values() for panel in document["panels"]}
    looks = text.partition("## First look")[2].partition("## Remedy")[0]
    assert set(re.findall(r"\*\*([^*]+)\*\*", looks)) <= panels
    for command, below in re.findall(r"(?m)(?:`|^)lanewise (\w+) ?([a-z]*)", text):
        assert command in COMMANDS, command
        package = "gateway.cli.admin" if command in ADMIN_COMMANDS else "gateway.cli"
        held = import_module(f"{package}.{command}").COMMAND.held
        assert not (held and below) or below in held, f"{command} {below}"


def is_muted(alert: dict[str, str], by: dict[str, str]) -> bool:
    """Says whether one alert, while raised, keeps another from being told, as Alertmanager does.

    Labels that a rule names as `equal` are so too where both alerts have none.
    """
    alertmanager = yaml.safe_load((ROOT / "deploy" / "alertmanager.yml").read_text())

    def matches(matchers: list[str], labels: dict[str, str]) -> bool:
        pairs = [re.fullmatch(r'(\w+) = "(\w+)"', matcher) for matcher in matchers]
        return all(pair is not None and labels.get(pair[1], "") == pair[2] for pair in pairs)

    return any(
        matches(rule["source_matchers"], by)
        and matches(rule["target_matchers"], alert)
        and all(alert.get(name, "") == by.get(name, "") for name in rule.get("equal", ()))
        for rule in alertmanager["inhibit_rules"]
    )


def test_a_group_that_is_down_mutes_its_own_engines_and_no_others() -> None:
    raised = {
        alert.name: {"alertname": alert.name, **alert.fires.labels}
        for alert in ALERTS
        if alert.name in ("LanewiseGroupDown", "LanewiseBackendDown")
    }
    group, engine = raised["LanewiseGroupDown"], raised["LanewiseBackendDown"]
    assert engine["group"] == group["group"] == "fast"
    assert is_muted(engine, by=group)
    assert not is_muted({**engine, "backend": "gpu", "group": "deep"}, by=group)
    assert not is_muted(group, by=engine)
