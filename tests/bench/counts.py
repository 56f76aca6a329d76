"""Counts what one task and one token make the gateway do: figures that noise cannot move.

    python tests/bench/counts.py [--json FILE] [--against FILE] [--repeat 3] [--only socket]

Calls of Python and C functions, bytecodes, JSON texts, asyncio tasks and futures and commands to
Redis, on five paths through a gateway in this process; client and upstream are in another one. A
task is alone and has 20 tokens: after a warm-up, the medians over `--repeat` such tasks. A token is
the slope between 20 and 220 tokens, each of which is an event by itself and comes 20 ms after the
one before, but on the path where all events of an answer come in one read. What traces one thing
changes another, so that each kind of counting has tasks of its own.

The loop is asyncio's own, since uvloop makes tasks, futures and calls where nobody can count them,
and the clock stands still while the gateway works (`counts_gateway.py`). What the loop's functions
do is not counted: in production that is C. Loop turns and calls to the system (turns, and what is
called of sockets) stand beside and guard nothing.

`--against` compares with what `--json` kept and exits with 1 where a count rose by more than 3 %.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench import rows as shape  # noqa: E402
from tests.bench.counts_gateway import KINDS, Counts, run  # noqa: E402
from tests.bench.counts_peer import Orders, Series  # noqa: E402
from tests.bench.rows import Row  # noqa: E402
from tests.bench.table import machine  # noqa: E402
from tests.bench.tasks import UPSTREAM  # noqa: E402
from tests.e2e.gateway_process import CONFIG, DEVELOPMENT_KEY, redis_server  # noqa: E402

PEER = Path(__file__).with_name("counts_peer.py")
FEW_TOKENS, MANY_TOKENS = 20, 220
WARM_UP_TASKS = 5
RISE = 0.03  # that a count may have
GOAL_CALLS = 800  # of a task whose answer comes at once
GOAL_BYTECODES = 300  # of a token alone, from one socket to the other
LEAST = 0.005  # a token: what slopes of small numbers differ by
BESIDE = ("loop turns", "socket calls")  # not guarded: they depend on what arrives together
PACKAGES = ("hiredis", "httptools", "litestar", "msgspec", "redis", "uvicorn", "websockets")
ENGINE = '[[backends]]\nkind = "gpu"\nname = "engine"\n'


class PathThrough(NamedTuple):
    """Is one way that tasks take."""

    name: str
    mode: str  # of task_load.py
    model: str
    protocol: str = ""  # of the upstream; none is the engine in the gateway
    together: bool = False  # all of an answer comes in one read, to a prompt that has come before


ALONE = "socket, upstream over Responses"
TOGETHER = f"{ALONE}, all at once"
PATHS = (
    PathThrough("socket, engine in the gateway", "responses-ws", "lanewise-deep"),
    PathThrough(ALONE, "responses-ws", "by-socket", "responses-ws"),
    PathThrough(TOGETHER, "responses-ws", "by-socket", "responses-ws", together=True),
    PathThrough("chat over SSE, upstream over chat", "chat-sse", "by-chat", "chat"),
    PathThrough("JSON, upstream over Responses", "responses-json", "by-sse", "responses"),
)
Table = dict[str, dict[str, Counts]]  # path -> "task" or "token" -> counts


def counted(paths: Sequence[PathThrough], repeat: int) -> Table:
    """Run everything."""
    ours, theirs = socket.socketpair()
    with tempfile.TemporaryDirectory(prefix="lw-bench-") as name, redis_server(Path(name)), ours:
        command = [sys.executable, str(PEER), str(theirs.fileno())]
        with subprocess.Popen(command, pass_fds=[theirs.fileno()]) as peer:
            theirs.close()
            try:
                url = f"http://127.0.0.1:{int(ours.recv(16))}/v1"
                config = Path(name) / "lanewise.toml"
                config.write_text(config_of(url))
                found = run(ours, orders_of(paths, repeat), config, f"{name}/redis.sock")
            finally:
                peer.terminate()
    return table_of(paths, found)


def config_of(upstream_url: str) -> str:
    """Configures a gateway with an engine, an upstream for each protocol, and ample room."""
    protocols = {path.model: path.protocol for path in PATHS if path.protocol}
    upstreams = (
        UPSTREAM.format(name=name, url=upstream_url, protocol=protocol, group="fast")
        for name, protocol in protocols.items()
    )
    limits = CONFIG.replace("6000", "1000000000").replace("20000000", "1000000000")
    return "[redis]\nbudget_ms = 5000\n" + limits + ENGINE + "".join(upstreams)


def orders_of(paths: Sequence[PathThrough], repeat: int) -> Orders:
    """Returns what the peer is to run."""
    series = [
        Series(path.mode, path.model, tokens, WARM_UP_TASKS, list(KINDS), repeat, path.together)
        for path in paths
        for tokens in (FEW_TOKENS, MANY_TOKENS)
    ]
    return Orders("", DEVELOPMENT_KEY, series)


def table_of(paths: Sequence[PathThrough], found: Sequence[tuple[Series, str, Counts]]) -> Table:
    """Returns of each path a task's counts, and a token's."""
    table: Table = {}
    for path in paths:
        few, many = (
            medians([counts for s, _, counts in found if _is_of(s, path) and s.tokens == tokens])
            for tokens in (FEW_TOKENS, MANY_TOKENS)
        )
        table[path.name] = {"task": few, "token": slope(few, many, MANY_TOKENS - FEW_TOKENS)}
    return table


def _is_of(series: Series, path: PathThrough) -> bool:
    return (series.model, series.together) == (path.model, path.together)


def medians(counts: Sequence[Counts]) -> Counts:
    """Returns the median of every name in them."""
    names = dict.fromkeys(name for each in counts for name in each)
    return {n: statistics.median([each[n] for each in counts if n in each]) for n in names}


def slope(few: Counts, many: Counts, num_tokens: int) -> Counts:
    """Returns what each token adds."""
    return {name: (many[name] - few[name]) / num_tokens for name in few}


def risen(table: Table, base: Table) -> list[str]:
    """Returns the guarded counts that are more than they may be."""
    return [
        f"{path}, {per}: {name} {base[path][per][name]:g} -> {count:g}"
        for path, per, name, count in flat(table)
        if name not in BESIDE and count > base[path][per][name] * (1 + RISE) + LEAST
    ]


def flat(table: Table) -> list[tuple[str, str, str, float]]:
    """Yields path, "task" or "token", name, count."""
    return [
        (path, per, name, count)
        for path, both in table.items()
        for per, counts in both.items()
        for name, count in counts.items()
    ]


def text_of(table: Table, base: Table | None = None) -> str:
    """Writes for people a column for each path and scale; `base` is compared behind a count."""
    names = list(next(iter(table.values()))["task"])
    names.sort(key=lambda name: name in BESIDE)
    lines = []
    for path, both in table.items():
        lines.append(f"{path:46}{'a task':>20}{'a token':>20}")
        for name in names:
            cells = []
            for per in ("task", "token"):
                count = both[per][name]
                cell = f"{count:,.2f}" if per == "token" else f"{count:,.0f}"
                if base is not None:
                    cell += f" {change(count, base[path][per][name]):>7}"
                cells.append(cell)
            label = name + (" (beside)" if name in BESIDE else "")
            lines.append((f"  {label:44}" + "".join(f"{cell:>20}" for cell in cells)).rstrip())
    return "\n".join(lines)


def change(count: float, base: float) -> str:
    """Returns the change in per cent of the base."""
    if base == 0:
        return "" if count == 0 else "new"
    return f"{count / base - 1:+.1%}"


def rows_of(table: Table) -> list[Row]:
    """Returns for the table of all measurements the two counts that say most, and the goals'."""
    goals = {(ALONE, "token", "bytecodes"): shape.at_most(GOAL_BYTECODES, "bytecodes")}
    rows = [
        Row(
            name=f"{path}, a {per}: {name}",
            unit=name,
            values=[count],
            goal=goals.get((path, per, name)),
            per=per,
        )
        for path, per, name, count in flat(table)
        if name in ("Python calls", "bytecodes")
    ]
    if TOGETHER in table:
        task = table[TOGETHER]["task"]
        calls = [task["Python calls"] + task["C calls"]]
        goal = shape.at_most(GOAL_CALLS, "calls")
        rows.append(
            Row(name=f"{TOGETHER}, a task", unit="calls", values=calls, goal=goal, per="task")
        )
    return rows


def kept(table: Table) -> dict[str, Any]:
    """Returns for a file what was counted, and of what."""
    packages = {name: version(name) for name in PACKAGES}
    return {"machine": machine(), "packages": packages, "counts": table}


def differing(ours: Mapping[str, Any], base: Mapping[str, Any]) -> list[str]:
    """Returns what makes two files hard to compare: another Python, other packages."""
    versions = [{"Python": each["machine"]["python"], **each["packages"]} for each in (ours, base)]
    return [
        f"{name} {versions[0].get(name)}, but the base's is {versions[1].get(name)}"
        for name in {**versions[0], **versions[1]}
        if versions[0].get(name) != versions[1].get(name)
    ]


def main() -> int:
    """Parse, count, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=3, help="tasks of each kind")
    parser.add_argument("--only", default="", help="paths whose name contains that")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep every count")
    parser.add_argument("--against", type=Path, metavar="FILE", help="what --json kept")
    shape.add_argument(parser)
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets, as in every other run
        os.execve(
            sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"}
        )
    paths = [path for path in PATHS if arguments.only in path.name]
    found = kept(counted(paths, arguments.repeat))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    if arguments.rows is not None:
        shape.publish(rows_of(found["counts"]), arguments)
        return 0
    if arguments.against is None:
        print(text_of(found["counts"]))
        return 0
    base = json.loads(arguments.against.read_bytes())
    print(text_of(found["counts"], base["counts"]))
    rises = risen(found["counts"], base["counts"])
    for line in [*differing(found, base), *(f"risen: {rise}" for rise in rises)]:
        print(line)
    return int(bool(rises))


if __name__ == "__main__":
    sys.exit(main())
