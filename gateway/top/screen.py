"""Draws a picture of the gateway for a terminal, what is wrong first; times are local.

This is an edge.
"""

import time
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gateway.top.picture import Picture, Sections

_STEPS = " ▁▂▃▄▅▆▇█"
WIDE = 110  # columns, from which there is room for more
_BAR_CHARS, _NARROW_BAR_CHARS = 12, 6
_ID_WIDTH = 96  # columns, from which responses' ids are shown
MAX_POOLS = 12
MIN_DECISIONS = 3
_GOOD, _WARN, _BAD = "green", "yellow", "red"
_OUTCOMES = {"ok": _GOOD, "rate_limited": _WARN, "shed": _WARN, "cancelled": _WARN}


def drawn(picture: Picture, width: int, num_lines: int, lost: str = "") -> RenderableType:
    """Returns the screen; `lost` says why nothing comes at the moment."""
    parts: list[RenderableType] = [_headline(picture, lost), *_problems(picture)]
    parts += [Text(), _rates(picture, width), Text(), _engines(picture, width)]
    num_used = 9 + len(picture.problems) * 2 + len(picture.backends)
    if picture.pools:
        room = num_lines - num_used - 4 - MIN_DECISIONS  # two heads, two empty lines
        pools = _pools(picture, width, max(1, min(MAX_POOLS, room)))
        parts += [Text(), pools]
        num_used += 2 + pools.row_count
    num_left = max(MIN_DECISIONS, num_lines - num_used)
    parts += [Text(), _decisions(picture, width, num_left)]
    return Group(*parts)


def spark(values: Sequence[float], width: int) -> str:
    """Draws the latest values as bars of eight heights, the largest in full."""
    shown = list(values)[-width:]
    most = max(shown, default=0)
    if most <= 0:
        return " " * len(shown)
    return "".join(_STEPS[round(value / most * 8)] for value in shown)


def bar(value: float, most: float, num_chars: int) -> Text:
    """Draws a share, in the colour of how much is left."""
    share = min(1.0, value / most) if most else 0.0
    style = _BAD if share >= 0.95 else _WARN if share >= 0.75 else _GOOD
    num_full = round(share * num_chars)
    text = Text("█" * num_full, style=style)
    return text.append("·" * (num_chars - num_full), style="dim")


def count(number: float) -> str:
    """Writes a number as a person says it: 950, 12.3k, 4.5M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= size:
            return f"{number / (1e3 if unit == 'k' else size):.1f}{unit}"
    return f"{number:.0f}"


def _clock(unix_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(unix_s))


def _headline(picture: Picture, lost: str) -> Text:
    gateway = picture.gateway
    text = Text("lanewise top  ", style="bold")
    if picture.at:
        words = (
            f"{_clock(picture.at)}  policy {gateway['policy']}  workers {gateway['workers']}  "
            f"gateways {gateway['num_gateways']}  running {gateway['running']}  "
            f"sockets {gateway['connections']}"
        )
        text.append(words, style="dim" if lost else "")
    if lost:
        text.append(f"  {lost}", style=_BAD)
    return text


def _problems(picture: Picture) -> list[Text]:
    if not picture.problems and picture.at:
        return [Text("Nothing is wrong.", style=_GOOD)]
    lines = []
    for problem in picture.problems:
        style = _BAD if problem["severity"] == "bad" else _WARN
        since = "before" if problem["is_older"] else "since"
        lines += [
            Text(f"{problem['words']} ({since} {_clock(problem['since'])})", style=style),
            Text(f"  {problem['todo']} docs/{problem['runbook']}", style="dim"),
        ]
    return lines


def _rates(picture: Picture, width: int) -> Table:
    table = Table.grid(padding=(0, 1))
    for name, values in (
        ("tokens/s", picture.tokens_per_s()),
        ("tasks/s", picture.tasks_per_s()),
        ("running", [point["running"] for point in picture.points]),
    ):
        now = values[-1] if values else 0.0
        table.add_row(name, Text(count(now), style="bold"), spark(values, max(10, width - 22)))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(column, no_wrap=True)
    return table


def _bar_chars(width: int) -> int:
    return _BAR_CHARS if width >= WIDE else _NARROW_BAR_CHARS


def _engines(picture: Picture, width: int) -> Table:
    table = _table("ENGINE", "GROUP", "STATE", "BATCH", "", "WAIT", "KV CACHE", "TOKENS/S", "")
    chars = _bar_chars(width)
    for each in picture.backends:
        state, style = ("up", _GOOD) if each["healthy"] else ("down", _BAD)
        if each.get("drained"):
            state, style = "drained", _WARN
        rates = picture.tokens_per_s(each["name"])
        table.add_row(
            each["name"],
            each["group"],
            Text(state, style=style),
            bar(each["running"], each["max_num_seqs"], chars),
            f"{each['running']} of {each['max_num_seqs']}",
            str(each["waiting"]),
            bar(each["kv_used_tokens"], each["kv_capacity_tokens"], chars),
            count(rates[-1] if rates else 0),
            spark(rates, chars) if width >= WIDE else "",
        )
    return table


def _pools(picture: Picture, width: int, most: int) -> Table:
    """Draws the fullest pools first."""
    table = _table("TENANT", "POOL", "USED", "", "FULL IN")
    chars = _bar_chars(width)
    rows = [(each["tenant"], pool) for each in picture.pools for pool in each["pools"]]
    rows.sort(key=lambda row: row[1]["remaining"] / max(1, row[1]["limit"]))
    for each in picture.pools:
        if fault := each.get("fault"):
            table.add_row(each["tenant"], "cannot be read", "", fault, "")
    for tenant, pool in rows[: max(0, most - table.row_count)]:
        used = pool["limit"] - pool["remaining"]
        name = f"{pool['group']} {pool['unit']}"
        left = f"{count(max(0, pool['remaining']))} of {count(pool['limit'])} left"
        table.add_row(
            tenant,
            name,
            bar(used, pool["limit"], chars),
            left,
            f"{pool['reset_s']:.0f} s",
        )
    return table


def _decisions(picture: Picture, width: int, num_rows: int) -> Table:
    columns = ["AT", "TENANT", "ROUTE", "WHY", "OUTCOME", "FIRST", "TOKENS", "RESPONSE"]
    num_columns = len(columns) if width >= _ID_WIDTH else len(columns) - 1
    table = _table(*columns[:num_columns])
    for record in picture.decisions[:num_rows]:
        table.add_row(*_decision(record)[:num_columns])
    return table


def _decision(record: Sections) -> list[str | Text]:
    ttft_ms = record.get("ttft_ms")
    outcome = record.get("error") or record["outcome"]
    return [
        _clock(record["at"]),
        record["tenant"],
        record.get("strategy") or record.get("route") or "-",
        record.get("rule") or record.get("reason") or "-",
        Text(outcome, style=_OUTCOMES.get(record["outcome"], _BAD)),
        "-" if ttft_ms is None else f"{ttft_ms:.0f} ms",
        f"{count(record['input_tokens'])}+{count(record['output_tokens'])}",
        record["id"][:21],
    ]
