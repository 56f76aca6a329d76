"""Writes the alerts of dashboards/alerts as Prometheus, promtool and people read them."""

import re
from collections.abc import Iterable
from typing import Any

import yaml

from dashboards.alerts.record import Alert, Case, Recording
from dashboards.alerts.table import ALERTS, GROUPS, LONG_RECORDINGS, RECORDINGS

RULES = "lanewise.rules.yml"
DAYS = ("12h", "40h")  # when cases end that take long
WRITTEN = "# Written by `make dashboards` from dashboards/alerts.\n"


def rules() -> str:
    """Returns the rules that Prometheus loads."""
    recorded = {"name": "lanewise-recorded", "rules": _recorded(RECORDINGS)}
    long = {
        "name": "lanewise-recorded-long",
        "interval": "1m",
        "rules": _recorded(LONG_RECORDINGS),
    }
    groups = [
        {"name": f"lanewise-{name}", "rules": [_rule(alert) for alert in alerts]}
        for name, alerts in GROUPS.items()
    ]
    return WRITTEN + _yaml({"groups": [recorded, long, *groups]})


def _recorded(recordings: Iterable[Recording]) -> list[dict[str, str]]:
    return [{"record": each.name, "expr": each.expr} for each in recordings]


def _rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": alert.lasts,
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "runbook_url": alert.runbook_url},
    }


def tests() -> dict[str, str]:
    """Returns the tests of each alert, for `promtool test rules`: it fires, it stays silent.

    File -> text. Rules are evaluated as often as most cases have samples. Cases over days have a
    file of their own, whose rules are evaluated less often.
    """
    cases: list[dict[str, Any]] = []
    for alert in ALERTS:
        raised = {
            "exp_labels": {"severity": alert.severity, **alert.fires.labels},
            "exp_annotations": {
                "summary": alert.fires.says,
                "runbook_url": alert.default_runbook_url,
            },
        }
        cases.append(_case(alert, "fires", alert.fires.case, [raised]))
        if alert.silent is not None:
            cases.append(_case(alert, "stays silent", alert.silent, []))
        if alert.few is not None:
            cases.append(_case(alert, "stays silent for few", alert.few, []))
        if alert.young is not None:
            cases.append(_case(alert, "stays silent on a short history", alert.young, []))
    files: dict[str, str] = {}
    for name, interval, of_days in (
        ("lanewise.test.yml", "30s", False),
        ("lanewise.days.test.yml", "5m", True),
    ):
        document = {
            "rule_files": [RULES],
            "evaluation_interval": interval,
            "tests": [
                case
                for case in cases
                if (case["alert_rule_test"][0]["eval_time"] in DAYS) is of_days
            ],
        }
        files[name] = f"# promtool test rules dashboards/{name}\n{WRITTEN}{_yaml(document)}"
    return files


def _case(alert: Alert, does: str, case: Case, expected: list[Any]) -> dict[str, Any]:
    series = [{"series": name, "values": values} for name, values in case.series.items()]
    test = {"eval_time": case.at, "alertname": alert.name, "exp_alerts": expected}
    return {
        "name": f"{alert.name} {does}",
        "interval": case.interval,
        "input_series": series,
        "alert_rule_test": [test],
    }


def runbook(alert: Alert) -> str:
    """Returns an alert's page, as Markdown."""
    lasting = "" if alert.lasts == "0s" else f", for {alert.lasts}"
    return f"""\
# {alert.name}

{_plain(alert.summary)}

Severity: {alert.severity}. Raised by{lasting}:

```promql
{alert.expr}
```

## Meaning

{alert.meaning}

## First look

{alert.first_look}

## Remedy

{alert.remedy}
"""


def runbook_list() -> str:
    """Returns the page that lists all others."""
    rows = "".join(
        f"| [{alert.name}]({alert.name}.md) | {alert.severity} | {_plain(alert.summary)} |\n"
        for alert in ALERTS
    )
    return f"""\
# Runbooks

What each alert means, where to look first, what to do. A page waits for nobody; a ticket can wait
for the morning. The pages are written by `make dashboards` from `dashboards/alerts`.

| alert | severity | says |
| --- | --- | --- |
{rows}"""


def _plain(summary: str) -> str:
    return re.sub(r"\{\{ \$(?:labels\.)?(\w+)[^}]*\}\}", r"*\1*", summary)


def _yaml(document: Any) -> str:
    text: str = yaml.safe_dump(document, sort_keys=False, width=100, allow_unicode=True)
    return text
