"""Measures what a short task costs: the gateway's CPU for each, and the latency it adds.

    python tests/bench/tasks.py [--tasks 1500] [--rounds 5] [--only socket] [--cores all]

A gateway stands before `fake_upstream.py`; `task_load.py` sends it tasks of 16 tokens, each
admitted by pools in Redis, classified, routed, relayed and settled, and sends the same straight to
the upstream. All four are processes of their own. Every row is measured once in each round, and
the table has the medians over the rounds. CPU is what the kernel says its threads ran, in
nanoseconds (schedstat), between the first task's sending and the last one's end.

That load and upstream are not the limit shows in the rows without a gateway ("straight"): with as
many at once they do several times as many tasks a second, and the load's own CPU is beside each.
How fast the machine is at the moment shows in the rows of HAProxy, which only relays and is each
row's baseline, where it can be had (`rivals/haproxy.py`).

All of them share one core, so that what is measured is the gateway's work. With `--cores all` each
step of a task wakes a core that sleeps; in a virtual machine the host is called for that, at the
cost of who wakes it.

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
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench import rows as shape  # noqa: E402
from tests.bench.rivals import haproxy  # noqa: E402
from tests.bench.rivals.rival import CannotInstallError, Upstream  # noqa: E402
from tests.bench.rivals.running import Running, running  # noqa: E402
from tests.bench.rows import Row  # noqa: E402
from tests.e2e.gateway_process import (  # noqa: E402
    CONFIG,
    DEVELOPMENT_KEY,
    GatewayProcess,
    redis_server,
    served,
)

HERE = Path(__file__).resolve().parent
ENGINE = "lanewise-fast"
RELAY = "HAProxy"
RELAY_FOLDER = ROOT / "build" / "rivals" / "haproxy"
# CPU-us of a task, by what is asked over and how many at once; then what is aimed at.
GOALS_CPU_US = {
    ("responses-ws", 1): (750, 450),
    ("responses-ws", 50): (400, 250),
    ("responses-sse", 1): (900, None),
    ("chat-sse", 1): (800, None),
    ("chat-json", 50): (400, None),
}
GOAL_ADDED_P50_MS, AIM_ADDED_P50_MS = 1.0, 0.6  # on the socket, one at once

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
    """Is one kind of load."""

    name: str
    mode: str  # of task_load.py
    model: str
    concurrency: int
    more: tuple[str, ...] = ()  # options of task_load.py
    via: str = "gateway"  # or "straight", to the upstream without one; or a relay

    @property
    def goal(self) -> tuple[int, int | None]:
        """Returns the CPU-us that a task may take, and the aim; 0 where there is no goal."""
        is_plain = self.via == "gateway" and self.model != ENGINE and not self.more
        return GOALS_CPU_US.get((self.mode, self.concurrency), (0, None)) if is_plain else (0, None)


KINDS = (
    *(
        Kind(f"{name}, {concurrency} at once{note}", mode, model, concurrency, via=via)
        for concurrency in (1, 50)
        for name, mode, by in (
            ("socket", "responses-ws", "by-socket"),
            ("SSE", "responses-sse", "by-sse"),
            ("chat SSE", "chat-sse", "by-chat"),
            ("chat JSON", "chat-json", "by-chat"),
        )
        for model, note, via in (
            ("fake", ", straight", "straight"),
            ("fake", f", {RELAY}", RELAY),
            (by, "", "gateway"),
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
    """Returns what all threads of a process and of its descendants have run so far."""
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


def share_one_core() -> None:
    """Keeps this process, and all that it will start, on one core, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    else:
        print("this system keeps no process on one core: they run on all", file=sys.stderr)


@contextlib.contextmanager
def fake_upstream() -> Iterator[tuple[str, int]]:
    """Gives a running one: its base URL and process id."""
    command = [sys.executable, str(HERE / "fake_upstream.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            port = json.loads(server.stdout.readline())["port"]
            yield f"http://127.0.0.1:{port}/v1", server.pid
        finally:
            server.terminate()


def redis_pid(folder: Path) -> int:
    """Finds the server that was started in that folder: a child of this process."""
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
    """Gives one before the upstream, with ample room; `code`: the checkout that it runs."""
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


@contextlib.contextmanager
def relay_before(folder: Path, upstream_url: str) -> Iterator[Running | None]:
    """Gives HAProxy before the upstream; None where it cannot be had."""
    port = urlsplit(upstream_url).port
    assert port is not None
    try:
        haproxy.install(RELAY_FOLDER)
    except (CannotInstallError, OSError) as error:
        print(f"no {RELAY} to compare with: {error}", file=sys.stderr)
        yield None
        return
    with running(haproxy.RIVAL, RELAY_FOLDER, folder, Upstream(port, 0, folder)) as relay:
        yield relay


def median(results: list[dict[str, Any]], *path: str) -> float:
    """Returns that of one figure over all rounds."""

    def figure(result: Any) -> float:
        for name in path:
            result = result[name]
        return float(result)

    return statistics.median(map(figure, results))


Results = dict[str, dict[str, list[dict[str, Any]]]]  # row -> "", or a checkout -> rounds


def table(rows: list[Kind], results: Results) -> str:
    """Writes for people, with a goal behind its figure."""
    head = f"{'':36}{'CPU us/task':>16}{'Redis':>7}{'load':>6}{'p50 ms':>9}{'p99 ms':>9}"
    lines = [f"{head}{'added p50':>16}{'added p99':>11}{'tasks/s':>9}"]
    for row in rows:
        straight = beside(row, "straight")
        for code, found in results[row.name].items():
            cpu = added = added_p99 = ""
            p50, p99 = (median(found, "total_ms", share) for share in ("p50", "p99"))
            if row.via != "straight":
                cpu = f"{median(found, 'gateway_cpu_us'):,.0f}"
                cpu += f" ({row.goal[0]})" if row.goal[0] else ""
            if row.via != "straight" and row.model != ENGINE and straight.name in results:
                base = results[straight.name][""]
                added = f"{p50 - median(base, 'total_ms', 'p50'):.2f}"
                is_bound = row.via == "gateway" and row.mode == "responses-ws"
                added += f" ({GOAL_ADDED_P50_MS:g})" if is_bound and row.concurrency == 1 else ""
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


def beside(kind: Kind, via: str) -> Kind:
    """Returns the same load on something else."""
    return next(
        each
        for each in KINDS
        if each.via == via and (each.mode, each.concurrency) == (kind.mode, kind.concurrency)
    )


def published(kinds: list[Kind], results: Results, cores: str) -> list[Row]:
    """For the table of all measurements: CPU of each kind, and added latency on the socket."""
    made: list[Row] = []
    note = ", all cores" if cores == "all" else ""
    for kind in kinds:
        if kind.via != "gateway":
            continue
        found = results[kind.name][""]
        is_socket = kind.mode == "responses-ws"
        wall_us = [each["total_ms"]["p50"] * 1e3 for each in found]
        cpu = [each["gateway_cpu_us"] for each in found]
        busy = max(each["load_cpu_us_per_task"] * each["tasks_per_s"] / 1e6 for each in found)
        load = f"{kind.name}: the load at most {busy:.0%} of a core"
        straight = results.get(beside(kind, "straight").name, {}).get("")
        relayed = results.get(beside(kind, RELAY).name, {}).get("", [])
        if straight is not None and kind.model != ENGINE:
            rate = median(straight, "tasks_per_s") / median(found, "tasks_per_s")
            load += f"; without the gateway {rate:.1f} times as many tasks a second"
        made.append(
            Row(
                name=f"a short task, {kind.name}{note}",
                unit="CPU-us/task",
                values=cpu,
                baseline=f"{RELAY}, which only relays" if relayed else "",
                baseline_values=[each["gateway_cpu_us"] for each in relayed],
                goal=shape.at_most(kind.goal[0], "CPU-us", aim=kind.goal[1])
                if kind.goal[0]
                else None,
                per="task",
                cpu_us=cpu,
                wall_us=wall_us,
                load=load,
            )
        )
        if straight is None or kind.model == ENGINE or kind.more:
            continue
        for share in ("p50", "p99"):
            added = [
                ours["total_ms"][share] - base["total_ms"][share]
                for ours, base in zip(found, straight, strict=True)
            ]
            has_goal = is_socket and share == "p50" and kind.concurrency == 1
            made.append(
                Row(
                    name=f"latency added, {kind.name}{note}, {share}",
                    unit="ms",
                    values=added,
                    goal=shape.at_most(GOAL_ADDED_P50_MS, "ms", aim=AIM_ADDED_P50_MS)
                    if has_goal
                    else None,
                    per="task",
                )
            )
    return made


def run(arguments: argparse.Namespace, rows: list[Kind]) -> Results:
    """Runs all rows, round after round."""
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
        relay = stack.enter_context(relay_before(folder, upstream_url))
        rows = [row for row in rows if row.via != RELAY or relay is not None]
        for _ in range(arguments.rounds):
            for row in rows:
                for name, process in gateways.items():
                    if row.via != "gateway" and name:
                        continue
                    url, watched = process.base_url, pids | {"gateway": process.process.pid}
                    if row.via == "straight":
                        url, watched = upstream_url, pids
                    elif row.via == RELAY and relay is not None:
                        url, watched = relay.url, pids | {"gateway": relay.pid}
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
    parser.add_argument(
        "--cores", choices=("one", "all"), default="one", help="that all processes share"
    )
    parser.add_argument("--against", type=Path, help="a checkout of other code to compare with")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep every figure")
    shape.add_argument(parser)
    arguments = parser.parse_args()
    kinds = [kind for kind in KINDS if arguments.only in kind.name]
    if arguments.cores == "one":
        share_one_core()
    results = run(arguments, kinds)
    if arguments.rows is None:
        print(table(kinds, results))
    else:
        shape.publish(published(kinds, results, arguments.cores), arguments)
    if arguments.json is not None:
        machine = {"machine": platform.platform(), "python": platform.python_version()}
        arguments.json.write_text(json.dumps({**machine, "results": results}))


if __name__ == "__main__":
    main()
