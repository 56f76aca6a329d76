"""Defines what the metrics' table is made of: metrics, panels, rows, dashboards and their look."""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Literal, NamedTuple

import msgspec

from gateway.metrics.reports import Read, Reports

Kind = Literal["counter", "gauge", "histogram"]
# How several workers' values become one. `engine`: an engine behind a link tells each worker its
# own totals, so the largest counts; an upstream's are counted by each, and add up.
Merge = Literal["sum", "max", "min", "engine"]
# Who has it: every gateway, the supervisor of several workers alone, whichever of the two runs the
# part, or prometheus_client's own collectors, which also say what it means.
Owner = Literal["gateway", "supervisor", "either", "prometheus_client"]
# Label values of series that are to be there before they count anything, where labels are open.
Zeros = Callable[[Reports], Iterable[tuple[str, ...]]]


class Label(NamedTuple):
    """Names a label; `values` is empty where they are configured names, whose number is bounded."""

    name: str
    values: tuple[str, ...] = ()


class Line(NamedTuple):
    """Draws a line of a panel, in PromQL; METRIC stands for the metric's name.

    The names of the table's metrics get the dashboard's variables as selectors when it is written.
    """

    expr: str
    legend: str


class Metric(msgspec.Struct, frozen=True):
    """Describes one metric: what it counts, how a scrape reads it, and how its panel draws it."""

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
    zeros: Zeros | None = None  # those that are, where its labels have no closed values
    ends: bool = False  # a series of it may end while its process lives
    has_created: bool = False  # with a `_created` series, as older ones have; new ones need none

    @property
    def family(self) -> str:
        """Returns its name as prometheus_client has it."""
        return self.name.removesuffix("_total") if self.kind == "counter" else self.name


class Panel:
    """Is a panel of the dashboard, with the metrics that it draws."""

    def __init__(
        self,
        title: str,
        unit: str,
        description: str,
        *metrics: Metric,
        lines: Sequence[Line] = (),
        steps: Sequence[tuple[float, str]] = (),
        is_stat: bool = False,
    ) -> None:
        """Describes a panel.

        Args:
            unit: As Grafana calls it; of all its lines.
            lines: Drawn besides the metrics' own, of what rules record or others have.
            steps: Thresholds: from this value on, in this colour; green below.
            is_stat: A number instead of a curve.
        """
        self.title, self.unit, self.description = title, unit, description
        self.metrics, self.steps, self.is_stat = metrics, tuple(steps), is_stat
        drawn = (
            line._replace(expr=line.expr.replace("METRIC", metric.name))
            for metric in metrics
            for line in metric.show
        )
        self.lines = (*drawn, *lines)


class Row:
    """Is a row of the dashboard: its panels, and metrics of the same topic that no panel draws."""

    def __init__(self, title: str, *members: Panel | Metric) -> None:
        self.title = title
        self.panels = tuple(member for member in members if isinstance(member, Panel))
        each = (m.metrics if isinstance(m, Panel) else (m,) for m in members)
        self.metrics = tuple(chain.from_iterable(each))


class Dashboard:
    """Is a dashboard: its rows, and what narrows them down."""

    def __init__(
        self, uid: str, title: str, description: str, *rows: Row, variables: Sequence[str] = ()
    ) -> None:
        """Takes as `variables` labels that narrow its queries down, besides `instance`."""
        self.uid, self.title, self.description = uid, title, description
        self.rows, self.variables = rows, ("instance", *variables)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Returns all metrics of its rows."""
        return tuple(chain.from_iterable(row.metrics for row in self.rows))


def _rate_of(metric: str, *by: str) -> str:
    """Writes a counter's rise per second, summed over everything but `by`."""
    grouping = f" by ({', '.join(by)})" if by else ""
    return f"sum{grouping} (rate({metric}[$__rate_interval]))"


def line(expr: str, legend: str) -> tuple[Line, ...]:
    """Makes the line of any expression."""
    return (Line(expr, legend),)


def rate(*by: str, legend: str = "") -> tuple[Line, ...]:
    """Makes the line of a counter's rise."""
    return line(_rate_of("METRIC", *by), legend or _legend(by))


def over(operator: str, *by: str, legend: str = "") -> tuple[Line, ...]:
    """Makes the line of a gauge's sum, max, min or count over everything but `by`."""
    grouping = f" by ({', '.join(by)}) " if by else ""
    return line(f"{operator}{grouping}(METRIC)", legend or _legend(by))


def quantile(q: float, *by: str, legend: str = "") -> tuple[Line, ...]:
    """Makes the line of a histogram's quantile."""
    expr = f"histogram_quantile({q}, {_rate_of('METRIC_bucket', 'le', *by)})"
    return line(expr, legend or _legend(by))


def quantiles(*by: str, upper: float = 0.95) -> tuple[Line, ...]:
    """Makes the lines of a histogram's median and of one quantile above."""
    lines: tuple[Line, ...] = ()
    for q in (0.5, upper):
        lines += quantile(q, *by, legend=f"p{q * 100:.0f} {_legend(by)}".strip())
    return lines


def _legend(by: Sequence[str]) -> str:
    return " ".join(f"{{{{{name}}}}}" for name in by)
