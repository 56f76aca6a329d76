"""What a short task costs: the gateway's CPU for each, and the latency it adds.

    python tests/bench/tasks.py [--tasks 1500] [--rounds 5] [--only socket] [--json FILE]

A gateway stands before `fake_upstream.py`; `task_load.py` sends it tasks of 16 tokens, each
admitted by pools in Redis, classified, routed, relayed and settled, and sends the same straight to
the upstream. All four are processes of their own. Every row is measured once in each round, and
the table has the medians over the rounds. CPU is what the kernel says its threads ran, in
nanoseconds (schedstat), between the first task's sending and the last one's end.

That load and upstream are not the limit shows in the rows without a gateway ("straight"): with as
many at once they do several times as many tasks a second, and the load's own CPU is beside each.

Rows with `engine` run on the simulated wafer inside the gateway's process instead: its CPU counts.
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench import rows as shape  # noqa: E402
from tests.bench.rows import Row  # noqa: E402
from tests.e2e.gateway_process import (  # noqa: E402
    CONFIG,
    DEVELOPMENT_KEY,
    GatewayProcess,
    redis_server,
    served,
)

HERE = Path(__file__).resolve().parent
GOAL_CPU_US = 300  # on the socket
GOAL_ADDED_P50_MS = 1.0  # on the socket
ENGINE = "lanewise-fast"

BACKENDS = """
[[backends]]
kind = "wafer"
name = "engine"
"""
UPSTREAM = """
[[backends]]
kind = "upstream"
name = "{name}"
options = {{ base_url = "{url}", protocol = "{protocol}", upstream_model = "fake", \
model = "{name}", group = "{group}", max_num_seqs = 256 }}
"""
UPSTREAMS = (
    ("by-socket", "responses-ws", "fast"),
    ("by-sse", "responses", "fast"),
    ("by-chat", "chat", "deep"),
)


class Kind(NamedTuple):
    """One kind of load."""

    name: str
    mode: str  # of task_load.py
    model: str
    concurrency: int
    more: tuple[str, ...] = ()  # options of task_load.py
    straight: bool = False  # to the upstream, without a gateway


KINDS = (
    *(
        Kind(f"{name}, {concurrency} at once{note}", mode, model, concurrency, more, straight)
        for concurrency in (1, 50)
        for name, mode, model, more, note, straight in (
            ("socket", "responses-ws", "fake", (), ", straight", True),
            ("socket", "responses-ws", "by-socket", (), "", False),
            ("SSE", "responses-sse", "fake", (), ", straight", True),
            ("SSE", "responses-sse", "by-sse", (), "", False),
            ("chat SSE", "chat-sse", "fake", (), ", straight", True),
            ("chat SSE", "chat-sse", "by-chat", (), "", False),
            ("chat JSON", "chat-json", "fake", (), ", straight", True),
            ("chat JSON", "chat-json", "by-chat", (), "", False),
        )
    ),
    Kind("socket, 50 at once, stored", "responses-ws", "by-socket", 50, ("--store",)),
    Kind(
        "socket, 50 at once, 16 a socket",
        *("responses-ws", "by-socket", 50, ("--streams-per-socket", "16")),
    ),
    Kind("engine, socket, 50 at once", "responses-ws", ENGINE, 50),
    Kind("engine, SSE, 50 at once", "responses-sse", ENGINE, 50),
    Kind(
        "engine, socket, 50 at once, every prompt new",
        "responses-ws",
        ENGINE,
        50,
        ("--new-prompts",),
    ),
)


def cpu_us(pid: int) -> float:
    """What all threads of a process and of its descendants have run so far."""
    total_ns = 0
    pids = [pid]
    while pids:
        pid = pids.pop()
        with contextlib.suppress(OSError):  # it may have ended meanwhile
            for thread in Path(f"/proc/{pid}/task").iterdir():
                total_ns += int((thread / "schedstat").read_text().split()[0])
                pids += map(int, (thread / "children").read_text().split())
    return total_ns / 1e3


def measure(url: str, key: str, row: Kind, num_tasks: int, pids: dict[str, int]) -> dict[str, Any]:
    """Run one load; its latencies, and the CPU per task of some processes by name."""
    command = [sys.executable, str(HERE / "task_load.py"), "--url", url, "--key", key, "--hold"]
    command += ["--model", row.model, "--mode", row.mode, "--tasks", str(num_tasks), *row.more]
    command += ["--concurrency", str(row.concurrency), "--warm-up", str(max(20, row.concurrency))]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as load:
        assert load.stdin is not None
        assert load.stdout is not None
        ready = load.stdout.readline()
        before = {name: cpu_us(pid) for name, pid in pids.items()}
        load.stdin.write("\n")
        load.stdin.flush()
        line = load.stdout.readline()
        after = {name: cpu_us(pid) for name, pid in pids.items()}
    if not ready or not line:
        raise RuntimeError(f"{' '.join(command)} ended with {load.returncode}")
    spent = {f"{name}_cpu_us": (after[name] - before[name]) / num_tasks for name in pids}
    result: dict[str, Any] = json.loads(line)
    return result | spent


@contextlib.contextmanager
def fake_upstream() -> Iterator[tuple[str, int]]:
    """A running one: its base URL and process id."""
    command = [sys.executable, str(HERE / "fake_upstream.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            port = json.loads(server.stdout.readline())["port"]
            yield f"http://127.0.0.1:{port}/v1", server.pid
        finally:
            server.terminate()


def redis_pid(folder: Path) -> int:
    """Of the server that was started in that folder: a child of this process."""
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return next(
        int(child)
        for child in children
        if str(folder / "redis.sock").encode() in Path(f"/proc/{child}/cmdline").read_bytes()
    )


@contextlib.contextmanager
def gateway(
    folder: Path, upstream_url: str, redis_url: str, code: Path
) -> Iterator[GatewayProcess]:
    """One before the upstream, with room for everything; `code`: the checkout that it runs."""
    config = folder / "lanewise.toml"
    limits = CONFIG.replace("6000", "1000000000").replace("20000000", "1000000000")
    upstreams = (
        UPSTREAM.format(name=name, url=upstream_url, protocol=protocol, group=group)
        for name, protocol, group in UPSTREAMS
    )
    config.write_text(limits + BACKENDS + "".join(upstreams))
    environ = {"PYTHONPATH": str(code)}
    with served(folder, "--config", str(config), "--redis", redis_url, environ=environ) as process:
        yield process


def median(results: list[dict[str, Any]], *path: str) -> float:
    """Of one figure over all rounds."""

    def figure(result: Any) -> float:
        for name in path:
            result = result[name]
        return float(result)

    return statistics.median(map(figure, results))


Results = dict[str, dict[str, list[dict[str, Any]]]]  # row -> "", or a checkout -> rounds


def table(rows: list[Kind], results: Results) -> str:
    """For people: a goal stands behind its figure."""
    head = f"{'':36}{'CPU us/task':>16}{'Redis':>7}{'load':>6}{'p50 ms':>9}{'p99 ms':>9}"
    lines = [f"{head}{'added p50':>16}{'added p99':>11}{'tasks/s':>9}"]
    for row in rows:
        straight = straight_of(row)
        for code, found in results[row.name].items():
            cpu = added = added_p99 = ""
            p50, p99 = (median(found, "total_ms", share) for share in ("p50", "p99"))
            if not row.straight:
                cpu = f"{median(found, 'gateway_cpu_us'):,.0f}"
                cpu += f" ({GOAL_CPU_US})" if row.mode == "responses-ws" else ""
            if not row.straight and row.model != ENGINE and straight.name in results:
                base = results[straight.name][""]
                added = f"{p50 - median(base, 'total_ms', 'p50'):.2f}"
                added += f" ({GOAL_ADDED_P50_MS:g})" if row.mode == "responses-ws" else ""
                added_p99 = f"{p99 - median(base, 'total_ms', 'p99'):.2f}"
            lines.append(
                f"{row.name + code:36}{cpu:>16}{median(found, 'redis_cpu_us'):>7.0f}"
                f"{median(found, 'load_cpu_us_per_task'):>6.0f}{p50:>9.2f}{p99:>9.2f}"
                f"{added:>16}{added_p99:>11}{median(found, 'tasks_per_s'):>9,.0f}"
            )
        if len(results[row.name]) == 2:
            ours, other = results[row.name].values()
            ratios = [
                a["gateway_cpu_us"] / b["gateway_cpu_us"] for a, b in zip(ours, other, strict=True)
            ]
            lines.append(f"{'':36}{statistics.median(ratios):>16.1%} of the other's CPU")
    return "\n".join(lines)


def straight_of(kind: Kind) -> Kind:
    """The same load without a gateway."""
    return next(
        each
        for each in KINDS
        if each.straight and (each.mode, each.concurrency) == (kind.mode, kind.concurrency)
    )


def published(kinds: list[Kind], results: Results) -> list[Row]:
    """For the table of all measurements: CPU of each kind, and added latency on the socket."""
    made: list[Row] = []
    for kind in kinds:
        if kind.straight:
            continue
        found = results[kind.name][""]
        is_socket = kind.mode == "responses-ws"
        wall_us = [each["total_ms"]["p50"] * 1e3 for each in found]
        cpu = [each["gateway_cpu_us"] for each in found]
        busy = max(each["load_cpu_us_per_task"] * each["tasks_per_s"] / 1e6 for each in found)
        load = f"{kind.name}: the load at most {busy:.0%} of a core"
        straight = results.get(straight_of(kind).name, {}).get("")
        if straight is not None and kind.model != ENGINE:
            rate = median(straight, "tasks_per_s") / median(found, "tasks_per_s")
            load += f"; without the gateway {rate:.1f} times as many tasks a second"
        made.append(
            Row(
                name=f"a short task, {kind.name}",
                unit="CPU-us/task",
                values=cpu,
                goal=shape.at_most(GOAL_CPU_US, "CPU-us") if is_socket else None,
                per="task",
                cpu_us=cpu,
                wall_us=wall_us,
                load=load,
            )
        )
        if straight is None or kind.model == ENGINE or kind.more:
            continue
        for share, goal in (("p50", GOAL_ADDED_P50_MS), ("p99", None)):
            added = [
                ours["total_ms"][share] - base["total_ms"][share]
                for ours, base in zip(found, straight, strict=True)
            ]
            has_goal = is_socket and goal is not None and kind.concurrency == 1
            made.append(
                Row(
                    name=f"latency added, {kind.name}, {share}",
                    unit="ms",
                    values=added,
                    goal=shape.at_most(goal, "ms") if has_goal and goal else None,
                    per="task",
                )
            )
    return made


def run(arguments: argparse.Namespace, rows: list[Kind]) -> Results:
    """All rows, round after round."""
    codes = {"": ROOT}
    if arguments.against is not None:
        codes[f" [{arguments.against.name}]"] = arguments.against.resolve()
    results: Results = {}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lw-bench-")))
        redis_url = stack.enter_context(redis_server(folder))
        pids = {"redis": redis_pid(folder)}
        upstream_url, pids["upstream"] = stack.enter_context(fake_upstream())
        gateways = {
            name: stack.enter_context(gateway(folder, upstream_url, redis_url, code))
            for name, code in codes.items()
        }
        for _ in range(arguments.rounds):
            for row in rows:
                for name, process in gateways.items():
                    if row.straight and name:
                        continue
                    url = upstream_url if row.straight else process.base_url
                    watched = pids | ({} if row.straight else {"gateway": process.process.pid})
                    num_tasks = max(100, arguments.tasks // (3 if row.concurrency == 1 else 1))
                    found = measure(url, DEVELOPMENT_KEY, row, num_tasks, watched)
                    results.setdefault(row.name, {}).setdefault(name, []).append(found)
    return results


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=1500, help="a row and round; a third at 1")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="rows whose name contains that")
    parser.add_argument("--against", type=Path, help="a checkout of other code to compare with")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep every figure")
    shape.add_argument(parser)
    arguments = parser.parse_args()
    kinds = [kind for kind in KINDS if arguments.only in kind.name]
    results = run(arguments, kinds)
    if arguments.rows is None:
        print(table(kinds, results))
    else:
        shape.publish(published(kinds, results), arguments)
    if arguments.json is not None:
        machine = {"machine": platform.platform(), "python": platform.python_version()}
        arguments.json.write_text(json.dumps({**machine, "results": results}))


if __name__ == "__main__":
    main()
