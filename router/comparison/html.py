"""Writes a back-test down as one HTML file, which opens offline and has no script."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from router.comparison.charts import line_chart
from router.comparison.comparison import BacktestReport, Tested
from router.comparison.report import SOURCES, TITLES, compared_rows, shown

_OF_PARTS = ("num_tasks", "ttft_ms_p95", "latency_ms_p50", "latency_ms_p95", "slo_met", "refused")
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 960px; margin: 2em auto; padding: 0 1em;
  color: #1a1a1a; background: #fff; }
table { border-collapse: collapse; margin: 1em 0; }
th, td { padding: .2em .8em; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child, td:first-child, td.words { text-align: left; }
figure { margin: 1.5em 0; } figcaption { font-weight: 600; }
svg { width: 100%; height: auto; font: 11px system-ui, sans-serif; }
svg .frame { fill: none; stroke: #999; } svg .rung { stroke: #eee; }
svg .end { text-anchor: end; } svg .middle { text-anchor: middle; }
svg polyline { fill: none; stroke-width: 1.8; }
.first { padding: .8em 1em; background: #f2f6fa; border-left: 4px solid #0072b2; }
.seen { font-weight: 600; }
@media (prefers-color-scheme: dark) {
  body { color: #e8e8e8; background: #16181b; } .first { background: #20262d; }
  th, td { border-color: #333; } svg text { fill: #ccc; } svg .rung { stroke: #2a2a2a; }
}
"""


def as_html(report: BacktestReport) -> str:
    """Returns the whole document."""
    return "\n".join(_document(report)) + "\n"


def _document(report: BacktestReport) -> Iterator[str]:
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width">'
    yield f"<title>Back-test of {escape(report.replay.policy)}</title><style>{_STYLE}</style>"
    yield f"</head><body><h1>Back-test of {escape(report.replay.policy)}</h1>"
    yield f'<p class="first">{escape(report.first_line)}</p>'
    yield (
        f"<p>{report.num_tasks:,} tasks from {report.first_at}, {report.span_s:,.0f} s. "
        f"SLO: {escape(report.slo.text)}. Intervals hold 90 %.</p>"
    )
    yield _latencies(report)
    yield from _replay(report)
    for tested in report.policies:
        yield from _tested(tested)
    yield "<h2>What to know</h2><ul>"
    for name, count in report.lengths.items():
        if count:
            yield f"<li>Output lengths on the other engine: {count:,} {escape(SOURCES[name])}.</li>"
    for note in report.notes:
        yield f"<li>{escape(note)}</li>"
    yield "</ul></body></html>"


def _latencies(report: BacktestReport) -> str:
    curves = [("as logged", report.logged_curve), ("replayed", report.before.latency_curve)]
    curves += [(tested.name, tested.latency_curve) for tested in report.policies]
    lines = [(name, list(enumerate(curve, start=1))) for name, curve in curves]
    return line_chart(
        "Latency of answered tasks",
        [(name, [(float(x), y) for x, y in points]) for name, points in lines],
        across="percentile",
        up="ms",
        logarithmic=True,
    )


def _replay(report: BacktestReport) -> Iterator[str]:
    yield "<h2>Predicted against real</h2>"
    rows = []
    for figure, off in report.replay.off_by.items():
        real, said = (getattr(each, figure) for each in (report.logged, report.before.summary))
        rows.append((TITLES[figure], shown(figure, real), shown(figure, said), f"{off:+.1%}"))
    yield _table(("", "as logged", "replayed", "off by"), rows)


def _tested(tested: Tested) -> Iterator[str]:
    yield f"<h2>{escape(tested.name)}</h2>"
    energy = ("energy (kJ)", f"{tested.before_energy_kj:,.1f}", f"{tested.energy_kj:,.1f}", "")
    yield _table(("", "before", "after", "difference"), [*compared_rows(tested), energy])
    if tested.moved:
        yield f"<h3>{tested.num_moved:,} tasks go another way</h3>"
        moved = [
            (each.before, each.after, each.rule, f"{each.num_tasks:,}") for each in tested.moved
        ]
        yield _table(("from", "to", "by", "tasks"), moved)
    for title, parts in (("By tenant", tested.tenants), ("By way", tested.ways)):
        yield f"<h3>{title}</h3>"
        yield _table(
            ("", *(TITLES[name] for name in _OF_PARTS)),
            [
                (part.name, *(_pair(part.before, part.after, name) for name in _OF_PARTS))
                for part in parts
            ],
        )
    for untestable in tested.untestable:
        yield f"<p>Rule {escape(untestable.rule)} cannot be tested: {escape(untestable.why)}.</p>"
    yield _pools(tested)


def _pair(before: object, after: object, figure: str) -> str:
    was, now = (shown(figure, getattr(each, figure)) for each in (before, after))
    return was if was == now else f"{was} → {now}"


def _pools(tested: Tested) -> str:
    groups = sorted({sample.group for sample in tested.pools})
    if not tested.pools:
        return ""
    first = min(sample.minute for sample in tested.pools)
    lines = [
        (
            f"{group}: least left",
            [
                (float(sample.minute - first), 100 * sample.least_left)
                for sample in tested.pools
                if sample.group == group
            ],
        )
        for group in groups
    ]
    return line_chart(f"Pools under {tested.name}", lines, across="minutes", up="% left")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["<table><tr>", *(f"<th>{escape(cell)}</th>" for cell in head), "</tr>"]
    for row in rows:
        lines += ["<tr>", *(f"<td>{escape(cell)}</td>" for cell in row), "</tr>"]
    return "".join([*lines, "</table>"])
