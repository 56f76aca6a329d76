"""What the metrics' table is made of: metrics, panels and rows, and how a panel draws."""

from collections.abc import Sequence
from itertools import chain
from typing import Literal, NamedTuple

import msgspec

from gateway.metrics.reports import Read

Kind = Literal["counter", "gauge", "histogram"]
# How several workers' values become one. `engine`: an engine behind a link tells each worker its
# own totals, so the largest counts; an upstream's are counted by each, and add up.
Merge = Literal["sum", "max", "min", "engine"]
# Who has it: every gateway, the supervisor of several workers alone, or prometheus_client's own
# collectors, which also say what it means.
Owner = Literal["gateway", "supervisor", "prometheus_client"]


class Label(NamedTuple):
    """A label; `values` is empty where they are configured names, whose number is bounded."""

    name: str
    values: tuple[str, ...] = ()


class Line(NamedTuple):
    """A line of a panel, in PromQL; METRIC stands for the metric's name."""

    expr: str
    legend: str


class Metric(msgspec.Struct, frozen=True):
    """One metric."""

    name: str  # as a scrape shows it
    kind: Kind
    help: str
    labels: tuple[Label, ...] = ()
    show: tuple[Line, ...] = ()  # on its panel
    buckets: tuple[float, ...] = ()  # a histogram's upper bounds
    read: Read | None = None  # how a scrape reads it from the reports; None: it is counted
    merge: Merge = "sum"
    owner: Owner = "gateway"
    starts_at_zero: bool = False  # all its series are there before they count anything
    has_created: bool = False  # with a `_created` series, as older ones have; new ones need none

    @property
    def family(self) -> str:
        """Its name as prometheus_client has it."""
        return self.name.removesuffix("_total") if self.kind == "counter" else self.name


class Panel:
    """A panel of the dashboard, and the metrics that it draws."""

    def __init__(
        self, title: str, unit: str, description: str, *metrics: Metric, is_stat: bool = False
    ) -> None:
        """`unit`: as Grafana calls it; `is_stat`: a number instead of a curve."""
        self.title, self.unit, self.description = title, unit, description
        self.metrics, self.is_stat = metrics, is_stat


class Row:
    """A row of the dashboard: its panels, and metrics of the same topic that no panel draws."""

    def __init__(self, title: str, *members: Panel | Metric) -> None:
        self.title = title
        self.panels = tuple(member for member in members if isinstance(member, Panel))
        each = (m.metrics if isinstance(m, Panel) else (m,) for m in members)
        self.metrics = tuple(chain.from_iterable(each))


def _rate_of(metric: str, *by: str) -> str:
    """Per second, summed over everything but `by`."""
    grouping = f" by ({', '.join(by)})" if by else ""
    return f"sum{grouping} (rate({metric}[$__rate_interval]))"


def line(expr: str, legend: str, or_zero: bool = False) -> tuple[Line, ...]:
    """`or_zero`: while nothing was counted; errors are rare, and a blank panel says nothing."""
    return (Line(f"{expr} or vector(0)" if or_zero else expr, legend),)


def rate(*by: str, legend: str = "", or_zero: bool = False) -> tuple[Line, ...]:
    """A counter's rise."""
    return line(_rate_of("METRIC", *by), legend or _legend(by), or_zero)


def over(operator: str, *by: str, legend: str = "") -> tuple[Line, ...]:
    """A gauge's sum, max, min or count over everything but `by`."""
    grouping = f" by ({', '.join(by)}) " if by else ""
    return line(f"{operator}{grouping}(METRIC)", legend or _legend(by))


def quantile(q: float, *by: str, legend: str = "", or_zero: bool = False) -> tuple[Line, ...]:
    """Of a histogram."""
    expr = f"histogram_quantile({q}, {_rate_of('METRIC_bucket', 'le', *by)})"
    return line(expr, legend or _legend(by), or_zero)


def quantiles(*by: str, upper: float = 0.95, or_zero: bool = False) -> tuple[Line, ...]:
    """A histogram's median, and one above."""
    lines: tuple[Line, ...] = ()
    for q in (0.5, upper):
        legend = f"p{q * 100:.0f} {_legend(by)}".strip()
        lines += quantile(q, *by, legend=legend, or_zero=or_zero)
    return lines


def _legend(by: Sequence[str]) -> str:
    return " ".join(f"{{{{{name}}}}}" for name in by)
