"""Says what a comparison means: its loads, tables of all figures, and rows of `make bench`."""

import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.bench import rows as shape
from tests.bench.clocks import MAX_BUSY
from tests.bench.rivals.rival import Mode
from tests.bench.rows import Row, figure_of

STRAIGHT = "straight"  # the upstream, asked without anything between
OURS = "Lanewise"

# load -> subject -> one dict of figures for each round
Kept = dict[str, dict[str, list[dict[str, Any]]]]


class Load(NamedTuple):
    """Is one kind of load: short requests, or streams of tokens."""

    name: str  # unique
    mode: Mode
    concurrency: int = 0  # of short requests; 0: streams
    rate: int = 0  # tokens/s of each stream; 0: all at once

    @property
    def is_short(self) -> bool:
        return self.concurrency > 0


TITLES: dict[Mode, str] = {
    "responses-ws": "Responses socket",
    "responses-sse": "Responses SSE",
    "chat-sse": "chat SSE",
    "chat-json": "chat JSON",
}
RATES = {100: "100 tokens/s", 1000: "1,000 tokens/s", 0: "whole answers"}
LOADS = (
    *(
        Load(f"{TITLES[mode]}, {concurrency} at once", mode, concurrency=concurrency)
        for mode in ("responses-ws", "responses-sse", "chat-json")
        for concurrency in (1, 50)
    ),
    *(
        Load(f"{TITLES[mode]}, {title}", mode, rate=rate)
        for mode in ("responses-ws", "responses-sse", "chat-sse")
        for rate, title in RATES.items()
    ),
)


class Figure(NamedTuple):
    """Is one thing that loads of a kind tell."""

    title: str
    unit: str
    of: Callable[[dict[str, Any], dict[str, Any]], float]  # (its round, straight's round)
    is_short: bool
    rates: tuple[int, ...] = tuple(RATES)


def _added(*path: str) -> Callable[[dict[str, Any], dict[str, Any]], float]:
    """Returns how much more it is than straight."""

    def of(found: dict[str, Any], straight: dict[str, Any]) -> float:
        figures: list[Any] = [found, straight]
        for name in path:
            figures = [figure[name] for figure in figures]
        return float(figures[0] - figures[1])

    return of


FIGURES = (
    Figure("CPU per short request", "CPU-us", lambda found, _: found["cpu_us"], True),
    Figure("added latency, p50", "ms", _added("total_ms", "p50"), True),
    Figure("added latency, p99", "ms", _added("total_ms", "p99"), True),
    Figure("CPU per relayed token", "CPU-us", lambda found, _: found["cpu_us"], False),
    Figure("added delay of a token, p50", "ms", _added("delay_ms", "p50"), False, (100, 1000)),
    Figure("added delay of a token, p99", "ms", _added("delay_ms", "p99"), False, (100, 1000)),
    Figure(
        *("tokens that come together, mean", "tokens"),
        *(lambda found, _: found["tokens_per_arrival"], False, (100, 1000)),
    ),
    Figure(
        "gaps of 35 ms and more", "%", lambda found, _: 100 * found["lumps"], False, (100, 1000)
    ),
)


def values_of(kept: dict[str, Any], load: Load, figure: Figure, subject: str) -> list[float]:
    """Returns one for each round in which it and straight were measured."""
    found = kept["figures"].get(load.name, {})
    rounds, straight = found.get(subject, []), found.get(STRAIGHT, [])
    pairs = zip(rounds, straight or rounds, strict=False)
    return [figure.of(one, other) for one, other in pairs]


def loads_of(figure: Figure) -> list[Load]:
    """Returns the loads that tell the figure."""
    return [
        load
        for load in LOADS
        if load.is_short == figure.is_short and (load.is_short or load.rate in figure.rates)
    ]


def median_of(kept: dict[str, Any], load: Load, figure: Figure, subject: str) -> float | None:
    """Returns the median; None where it was not measured."""
    values = values_of(kept, load, figure, subject)
    return statistics.median(values) if values else None


def table(kept: dict[str, Any], figure: Figure, *, markdown: bool) -> str:
    """Returns a line for each subject, a column for each load."""
    loads = [load for load in loads_of(figure) if load.name in kept["figures"]]
    subjects = list(dict.fromkeys(kept["routes"]))
    lines = [[f"{figure.title} ({figure.unit})", *(load.name for load in loads)]]
    for subject in subjects:
        medians = [median_of(kept, load, figure, subject) for load in loads]
        if any(median is not None for median in medians):
            lines.append([subject, *map(figure_of, medians)])
            if subject == OURS and figure.unit == "CPU-us":
                redis = [
                    statistics.median(f["redis_cpu_us"] for f in kept["figures"][load.name][OURS])
                    if kept["figures"][load.name].get(OURS)
                    else None
                    for load in loads
                ]
                lines.append(["its Redis, beside it", *map(figure_of, redis)])
    if markdown:
        lines.insert(1, ["---", *("---:" for _ in loads)])
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            f"{cell:>{width}}" if at else f"{cell:<{width}}"
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def busiest(kept: dict[str, Any], load: Load) -> tuple[float, float]:
    """Returns how busy load and upstream were at most, in medians over rounds; parts of a core."""
    found = kept["figures"].get(load.name, {}).values()
    return (
        max(statistics.median(f["load_busy"] for f in rounds) for rounds in found),
        max(statistics.median(f["upstream_busy"] for f in rounds) for rounds in found),
    )


def load_check(kept: dict[str, Any], load: Load) -> str:
    """Says whether load or upstream may have been the limit, in words."""
    ours, upstream = busiest(kept, load)
    said = f"load at most {ours:.0%} busy, upstream {upstream:.0%}"
    return said + ("; THE LIMIT MAY BE THERE" if max(ours, upstream) > MAX_BUSY else "")


def report(kept: dict[str, Any], *, markdown: bool) -> str:
    """Returns all tables, versions, and what could not be measured."""
    parts = [
        table(kept, figure, markdown=markdown)
        for figure in FIGURES
        if any(load.name in kept["figures"] for load in loads_of(figure))
    ]
    names = ", ".join(f"{name} {version}" for name, version in kept["versions"].items())
    machine = kept["machine"]
    rounds = {len(found) for each in kept["figures"].values() for found in each.values()}
    parts.append(
        f"{machine['at'][:10]}, commit {machine['commit']}, {machine['cores']} cores "
        f"({machine['cpu']}); rounds: {min(rounds)} to {max(rounds)}. {names}."
    )
    parts.append("\n".join(f"- {name}: {note}." for name, note in kept["notes"].items()))
    if kept["failures"]:
        parts.append("Not measured, and why:")
    wrong = [
        f"- {subject}, {load}: {sum(f['wrong_texts'] for f in rounds)} texts differ"
        for load, found in kept["figures"].items()
        for subject, rounds in found.items()
        if any(f.get("wrong_texts") for f in rounds)
    ]
    parts.append(
        "\n".join([*(f"- {name}: {why}" for name, why in kept["failures"].items()), *wrong])
    )
    parts.append("How busy load and upstream were, in parts of a core, on whomever most:")
    checks = [
        f"- {load.name}: {load_check(kept, load)}" for load in LOADS if load.name in kept["figures"]
    ]
    parts.append("\n".join(checks))
    return "\n\n".join(part for part in parts if part)


def rows_of(kept: dict[str, Any]) -> list[Row]:
    """Compares Lanewise with the best that routes (a goal), and with the best relay (the floor)."""
    rows = []
    for figure in FIGURES:
        for load in loads_of(figure):
            ours = values_of(kept, load, figure, OURS)
            if not ours:
                continue
            for routes in (True, False):
                best = best_of(kept, load, figure, routes=routes)
                if best is None:
                    continue
                which = "the best that routes" if routes else "the best relay"
                rows.append(
                    Row(
                        name=f"{figure.title}, {load.name}: against {which}",
                        unit=figure.unit,
                        values=ours,
                        baseline=best,
                        baseline_values=values_of(kept, load, figure, best),
                        goal=shape.ahead() if routes else None,
                        load=load_check(kept, load),
                    )
                )
    return rows


def best_of(kept: dict[str, Any], load: Load, figure: Figure, *, routes: bool) -> str | None:
    """Returns the other subject with the least of it."""
    medians = {
        name: median
        for name, does in kept["routes"].items()
        if does is routes and name != OURS
        if (median := median_of(kept, load, figure, name)) is not None
    }
    return min(medians, key=medians.__getitem__) if medians else None
