"""Draws the dashboards of gateway/metrics/table.py as Grafana has them, by Grafana's own SDK."""

import re

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    GraphThresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    GridPos,
    Threshold,
    ThresholdsMode,
    VariableOption,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from gateway.metrics.record import Dashboard, Panel
from gateway.metrics.table import METRICS

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
COLUMNS, WIDTH, HEIGHT = 3, 8, 8  # panels beside one another, and their size on Grafana's grid
JOB = 'job="lanewise"'
# Variable -> the labels that it selects by; the others' names are their labels'.
SELECTS = {"model": ("model", "model_name")}
# What a variable's values are read from.
VALUES = {
    "instance": f"label_values(up{{{JOB}}}, instance)",
    "route": "label_values(lanewise_requests_total, route)",
    "model": f"label_values(vllm:num_requests_running{{{JOB}}}, model_name)",
    "tenant": "label_values(lanewise_tenant_tokens_total, tenant)",
}
ANNOTATIONS = {
    # Beside a gateway that was not there before there is no change to see.
    "Policy changes": (
        "blue",
        'max(changes(lanewise_policy_version{mode="live",instance=~"$instance"}[1m])) > 0',
    ),
    "Restarts": (
        "orange",
        f'changes(process_start_time_seconds{{{JOB},instance=~"$instance"}}[1m]) > 0',
    ),
}
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}
# Sample name -> its metric's labels.
LABELS = {
    metric.name + suffix: {"instance", *(label.name for label in metric.labels)}
    for metric in METRICS
    for suffix in _SUFFIXES.get(metric.kind, ("",))
}
_SAMPLE = re.compile(r"\b(?:lanewise_|vllm:|process_)\w+\b(\{)?")


def selected(expr: str, variables: tuple[str, ...]) -> str:
    """Narrows every metric of a query down to what the dashboard's variables select.

    Names that others have, too, of any process and of vLLM itself, are those of our job.
    """

    def with_selectors(match: re.Match[str]) -> str:
        name = match[0].rstrip("{")
        if name not in LABELS:
            return match[0]
        selectors = "" if name.startswith("lanewise_") else f"{JOB},"
        selectors += ",".join(
            f'{label}=~"${variable}"'
            for variable in variables
            for label in SELECTS.get(variable, (variable,))
            if label in LABELS[name]
        )
        if match[1]:
            return f"{name}{{{selectors},"
        return f"{name}{{{selectors}}}"

    return _SAMPLE.sub(with_selectors, expr)


def dashboard_json(table: Dashboard) -> str:
    """Returns the document that Grafana imports."""
    builder = (
        dashboard.Dashboard(table.title)
        .uid(table.uid)
        .description(table.description)
        .tags(["lanewise"])
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .refresh("10s")
        .time("now-30m", "now")
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Source").type("prometheus")
        )
        .link(
            dashboard.DashboardLink("Lanewise")
            .type(DashboardLinkType.DASHBOARDS)
            .tags(["lanewise"])
            .keep_time(True)
            .include_vars(True)
        )
    )
    for name in table.variables:
        builder.with_variable(_variable(name))
    for name, (colour, expr) in ANNOTATIONS.items():
        builder.annotation(
            dashboard.AnnotationQuery()
            .name(name)
            .datasource(SOURCE)
            .enable(True)
            .icon_color(colour)
            .expr(expr)
        )
    numbers, y = iter(range(1, 1_000)), 0
    for row in table.rows:
        spot = GridPos(h=1, w=COLUMNS * WIDTH, x=0, y=y)
        builder.with_row(dashboard.Row(row.title).id(next(numbers)).grid_pos(spot))
        y += 1
        for number, panel in enumerate(row.panels):
            spot = GridPos(
                h=HEIGHT, w=WIDTH, x=number % COLUMNS * WIDTH, y=y + number // COLUMNS * HEIGHT
            )
            builder.with_panel(_panel(panel, table.variables).id(next(numbers)).grid_pos(spot))
        y += -(-len(row.panels) // COLUMNS) * HEIGHT
    return JSONEncoder(sort_keys=True, indent=1).encode(builder.build()) + "\n"


def _variable(name: str) -> dashboard.QueryVariable:
    everything = VariableOption(selected=True, text="All", value="$__all")
    return (
        dashboard.QueryVariable(name)
        .label(name.capitalize())
        .datasource(SOURCE)
        .query(VALUES[name])
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(everything)
    )


def _panel(panel: Panel, variables: tuple[str, ...]) -> stat.Panel | timeseries.Panel:
    drawn: stat.Panel | timeseries.Panel = stat.Panel() if panel.is_stat else timeseries.Panel()
    drawn.title(panel.title).description(panel.description).datasource(SOURCE).unit(panel.unit)
    drawn.thresholds(_thresholds(panel))
    if isinstance(drawn, timeseries.Panel):
        drawn.min(0).legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        if panel.steps:
            dashed = common.GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED)
            drawn.thresholds_style(dashed)
    for number, line in enumerate(panel.lines):
        drawn.with_target(
            prometheus.Dataquery()
            .ref_id(chr(ord("A") + number))
            .datasource(SOURCE)
            .expr(selected(line.expr, variables))
            .legend_format(line.legend)
            .format(PromQueryFormat.TIME_SERIES)
        )
    return drawn


def _thresholds(panel: Panel) -> dashboard.ThresholdsConfig:
    """Colours what is below the first step green, where the panel has no step for that."""
    steps = [Threshold(value=None, color="green")]
    steps += [Threshold(value=value, color=colour) for value, colour in panel.steps]
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)
