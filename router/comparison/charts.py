"""Draws a report's charts as SVG, without a library and without script."""

import math
from collections.abc import Iterable, Sequence
from html import escape

Point = tuple[float, float]
Line = tuple[str, Sequence[Point]]  # its name, and its points

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 46
# Distinct for most colour-blind readers: Okabe and Ito's palette, 2008.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")


def line_chart(
    title: str, lines: Iterable[Line], *, across: str, up: str, logarithmic: bool = False
) -> str:
    """Draws lines over common axes; an empty chart says that there is nothing to show."""
    drawn = [(name, [p for p in points if not logarithmic or p[1] > 0]) for name, points in lines]
    drawn = [(name, points) for name, points in drawn if points]
    everything = [point for _, points in drawn for point in points]
    if not everything:
        return f"<p>{escape(title)}: nothing to show.</p>"
    scale = math.log10 if logarithmic else float
    left, right = _range([x for x, _ in everything])
    low, high = _range([scale(y) for _, y in everything])
    if not logarithmic:
        low = min(0.0, low)

    def place(point: Point) -> str:
        x = LEFT + (point[0] - left) / (right - left) * (WIDTH - LEFT - RIGHT)
        y = HEIGHT - BOTTOM - (scale(point[1]) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)
        return f"{x:.1f},{y:.1f}"

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        f'<rect x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" '
        f'height="{HEIGHT - TOP - BOTTOM}" class="frame"/>',
        *_rungs(low, high, logarithmic=logarithmic),
        f'<text x="{LEFT}" y="{HEIGHT - BOTTOM + 16}">{_short(left)}</text>',
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - BOTTOM + 16}" class="end">{_short(right)}</text>',
        f'<text x="{(WIDTH + LEFT) / 2}" y="{HEIGHT - BOTTOM + 16}" class="middle">'
        f"{escape(across)}</text>",
        f'<text x="14" y="{HEIGHT / 2}" class="middle" '
        f'transform="rotate(-90 14 {HEIGHT / 2})">{escape(up)}</text>',
    ]
    for number, (name, points) in enumerate(drawn):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(place(point) for point in points)
        parts.append(f'<polyline points="{path}" stroke="{colour}"/>')
        x = LEFT + number * (WIDTH - LEFT) // max(1, len(drawn))
        parts.append(f'<text x="{x}" y="{HEIGHT - 8}" fill="{colour}">{escape(name[:40])}</text>')
    return f"<figure><figcaption>{escape(title)}</figcaption>{''.join(parts)}</svg></figure>"


def _rungs(low: float, high: float, *, logarithmic: bool) -> Iterable[str]:
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        value = low + share * (high - low)
        y = HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
        shown = _short(10**value if logarithmic else value)
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="rung"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" class="end">{shown}</text>'


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
