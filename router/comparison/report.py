"""Writes a back-test down for people: as text, and as rows for a spreadsheet."""

import csv
import io
from collections.abc import Iterator

from router.comparison.comparison import BacktestReport, Tested
from router.comparison.statistics import FIGURES, Difference, TaskSummary

TITLES = {
    "num_tasks": "tasks",
    "ttft_ms_p50": "TTFT p50 (ms)",
    "ttft_ms_p95": "TTFT p95 (ms)",
    "ttft_ms_p99": "TTFT p99 (ms)",
    "tpot_ms_p50": "TPOT p50 (ms)",
    "tpot_ms_p95": "TPOT p95 (ms)",
    "tpot_ms_p99": "TPOT p99 (ms)",
    "latency_ms_mean": "latency mean (ms)",
    "latency_ms_p50": "latency p50 (ms)",
    "latency_ms_p95": "latency p95 (ms)",
    "latency_ms_p99": "latency p99 (ms)",
    "slo_met": "SLO met",
    "refused": "refused",
    "waited": "waited",
    "weighted_tokens": "weighted tokens",
    "output_tokens": "output tokens",
    "money_usd": "money (USD)",
}
_SHARES = ("slo_met", "refused", "waited", "answered", "failed")
SOURCES = {
    "log": "said by the log itself",
    "pairs": "learned from tasks that both engines answered",
    "other": "taken to be as long as the engine's that answered, as no task was answered by both",
    "classifier": "the classifier's expectation",
}


def shown(figure: str, value: float | None) -> str:
    """Writes one figure."""
    if value is None:
        return "-"
    if figure in _SHARES:
        return f"{value:.1%}"
    if figure == "money_usd":
        return f"{value:,.4f}"
    return f"{value:,.1f}" if figure.endswith(("p50", "p95", "p99", "mean")) else f"{value:,.0f}"


def verdict(found: Difference) -> str:
    """Says what a difference comes to, in words."""
    if not found.seen:
        return "no difference seen"
    if found.figure in _SHARES:
        points = (found.change * 100, found.low * 100, found.high * 100)
        return "{:+.1f} points ({:+.1f} to {:+.1f})".format(*points)
    if not found.before:
        return f"{found.change:+,.1f} ({found.low:+,.1f} to {found.high:+,.1f})"
    shares = (each / found.before for each in (found.change, found.low, found.high))
    return "{:+.1%} ({:+.1%} to {:+.1%})".format(*shares)


def compared_rows(tested: Tested) -> Iterator[tuple[str, str, str, str]]:
    """Yields each figure's title, how it was and is, and what the difference comes to."""
    found = {each.figure: each for each in tested.differences}
    for figure in FIGURES:
        before, after = (getattr(each, figure) for each in (tested.before, tested.summary))
        if figure != "money_usd" or before or after:
            words = verdict(found[figure]) if figure in found else ""
            yield TITLES[figure], shown(figure, before), shown(figure, after), words


def as_text(report: BacktestReport) -> str:
    """Returns the report in lines; the first says how far it can be believed."""
    return "\n".join(_lines(report))


def _lines(report: BacktestReport) -> Iterator[str]:
    yield report.first_line
    yield (
        f"{report.num_tasks:,} tasks from {report.first_at}, {report.span_s:,.0f} s; "
        f"SLO: {report.slo.text}; 90 % intervals."
    )
    if not report.policies:
        yield ""
        yield from _replay_lines(report)
    for tested in report.policies:
        yield ""
        yield from _tested_lines(tested)
    yield ""
    sources = ", ".join(
        f"{count:,} {SOURCES[name]}" for name, count in report.lengths.items() if count
    )
    yield f"Output lengths on the other engine: {sources}."
    yield from report.notes


def _replay_lines(report: BacktestReport) -> Iterator[str]:
    """Sets what was simulated beside the log, where nothing else is there to compare."""
    replayed = report.before
    yield f"== {replayed.name}"
    yield f"{'':20}{'as logged':>14}{'replayed':>14}  off by"
    for figure in FIGURES:
        real, said = (getattr(each, figure) for each in (report.logged, replayed.summary))
        if figure == "money_usd" and not said:
            continue
        row = f"{TITLES[figure]:20}{shown(figure, real):>14}{shown(figure, said):>14}"
        yield f"{row}  {_off_by(figure, real, said)}".rstrip()
    yield f"{'energy (kJ)':20}{'-':>14}{replayed.energy_kj:>14,.1f}"
    yield from _part_lines(replayed)


def _off_by(figure: str, real: float | None, said: float | None) -> str:
    if real is None or said is None:
        return ""
    if figure in _SHARES:
        return f"{(said - real) * 100:+.1f} points"
    return f"{(said - real) / real:+.1%}" if real else ""


def _tested_lines(tested: Tested) -> Iterator[str]:
    yield f"== {tested.name}"
    yield f"{'':20}{'before':>14}{'after':>14}  difference"
    for title, before, after, words in compared_rows(tested):
        yield f"{title:20}{before:>14}{after:>14}  {words}".rstrip()
    yield f"{'energy (kJ)':20}{tested.before_energy_kj:>14,.1f}{tested.energy_kj:>14,.1f}"
    if tested.num_moved:
        yield f"{tested.num_moved:,} tasks go another way:"
    for moved in tested.moved:
        yield f"  {moved.num_tasks:>7,}  {moved.before} -> {moved.after}, by {moved.rule}"
    yield from _part_lines(tested)


def _part_lines(tested: Tested) -> Iterator[str]:
    for title, rows in (("tenant", tested.tenants), ("way", tested.ways)):
        for part in rows if len(rows) > 1 else ():
            before, after = _part(part.before), _part(part.after)
            yield f"  {title} {part.name}: {before if before == after else f'{before} -> {after}'}"
    for name, count in tested.limits.items():
        yield f"  refused by pool {name}: {count:,}"
    for name, count in tested.waits.items():
        yield f"  waited for {name}: {count:,}"
    for untestable in tested.untestable:
        yield f"  rule {untestable.rule!r} cannot be tested: {untestable.why}"


def _part(summary: TaskSummary) -> str:
    if not summary.num_tasks:
        return "no task"
    p95 = shown("latency_ms_p95", summary.latency_ms_p95)
    return f"{summary.num_tasks:,} tasks, p95 {p95} ms, SLO {shown('slo_met', summary.slo_met)}"


def as_csv(report: BacktestReport) -> str:
    """Returns every summary, one row each, with what it is of."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["policy", "of", "name", "when", *TaskSummary.__struct_fields__])
    writer.writerow(["as logged", "all", "", "logged", *_values(report.logged)])
    for tested in (report.before, *report.policies):
        writer.writerow([tested.name, "all", "", "after", *_values(tested.summary)])
        for kind, rows in (("tenant", tested.tenants), ("way", tested.ways)):
            for part in rows:
                writer.writerow([tested.name, kind, part.name, "before", *_values(part.before)])
                writer.writerow([tested.name, kind, part.name, "after", *_values(part.after)])
    return table.getvalue()


def _values(summary: TaskSummary) -> list[object]:
    return [getattr(summary, name) for name in summary.__struct_fields__]
