"""Draws a scatter plot with its straight line as SVG, by hand: nothing to install."""

import math
import statistics
from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 40, 50
INK, LINE, DOT, GRID = "#57606a", "#8c959f", "#0969da", "#d0d7de"  # readable on white and on black


def ticks(most: float, num: int = 5) -> list[float]:
    """Returns round numbers from 0 to just beyond `most`."""
    raw = most / num
    power = 10 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw)
    return [step * number for number in range(math.ceil(most / step) + 1)]


def scatter_svg(
    title: str, x_label: str, y_label: str, points: Sequence[tuple[float, float]]
) -> str:
    """Returns the points, from zero on both axes, and the line of least squares through them."""
    x_ticks, y_ticks = (ticks(max(point[axis] for point in points)) for axis in (0, 1))
    x_scale = (WIDTH - LEFT - RIGHT) / x_ticks[-1]
    y_scale = (HEIGHT - TOP - BOTTOM) / y_ticks[-1]

    def point_at(x: float, y: float) -> tuple[float, float]:
        return round(LEFT + x * x_scale, 1), round(HEIGHT - BOTTOM - y * y_scale, 1)

    def text(x: float, y: float, said: str, anchor: str, extra: str = "") -> str:
        return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{extra}>{escape(said)}</text>'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'font-family="sans-serif" font-size="12" fill="{INK}">',
        f"<title>{escape(title)}</title>",
        text(LEFT, 22, title, "start", ' font-size="14" font-weight="bold"'),
    ]
    for tick in y_ticks:
        _, y = point_at(0, tick)
        parts.append(f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke="{GRID}"/>')
        parts.append(text(LEFT - 8, y + 4, f"{tick:g}", "end"))
    for tick in x_ticks:
        x, y = point_at(tick, 0)
        parts.append(text(x, y + 18, f"{tick:,g}", "middle"))
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x_label, "middle"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(text(18, middle, y_label, "middle", f' transform="rotate(-90 18 {middle})"'))
    xs, ys = zip(*points, strict=True)
    slope, intercept = statistics.linear_regression(xs, ys)
    ends = [point_at(x, intercept + slope * x) for x in (min(xs), max(xs))]
    parts.append(
        f'<path d="M{ends[0][0]} {ends[0][1]}L{ends[1][0]} {ends[1][1]}" stroke="{LINE}" '
        'stroke-width="1.5" stroke-dasharray="5 4"/>'
    )
    for x, y in (point_at(*point) for point in points):
        parts.append(f'<circle cx="{x}" cy="{y}" r="4" fill="{DOT}" fill-opacity="0.75"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"
