"""Makes the table of all measurements: runs the scripts beside this one, and joins their rows.

    make bench                                   # all rows, twelve minutes
    make bench ARGS="--only headline,streams"    # some scripts
    make bench ARGS="--repeat 3"                 # all of them three times, in turns
    make bench ARGS="--all"                      # also those about engines, in need of data
    python tests/bench/table.py --markdown       # what was kept, into docs/performance-rows.md

Rows are kept in build/bench.json with the commit and the machine, with each repetition's value. A
script of `SCRIPTS` takes `--rows FILE` and writes its rows there (`rows.publish`); several runs of
one are joined, so that the medians are over all. Exits with 1 where a script failed; a goal that is
not met is no failure.
"""

import argparse
import json
import os
import platform
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench import rows as shape  # noqa: E402
from tests.bench.ending import end  # noqa: E402
from tests.bench.plots import scatter_svg  # noqa: E402
from tests.bench.rows import Row  # noqa: E402

FOLDER = Path(__file__).parent
KEPT = ROOT / "build" / "bench.json"
DOCUMENT = ROOT / "docs" / "performance-rows.md"
PATIENCE_S = 20.0  # for a script to end what it began
PLOTS = "plots"  # the folder beside the document
BEGIN, END = "<!-- table: tests/bench/table.py --markdown -->", "<!-- end of table -->"


class Script(NamedTuple):
    """Is a script that gives rows."""

    name: str  # its file's stem, unless `file` says otherwise
    title: str  # what its rows are about
    arguments: tuple[str, ...] = ()
    limit_s: int = 120  # then it is ended, and counts as failed
    file: str = ""
    extra: bool = False  # only when asked for: not about the gateway, or in need of data


# Streams from a real server's protocols: an event per token, as slow as such servers are.
UPSTREAM = ("--streams", "200", "--rate", "100", "--seconds", "8", "--source")

SCRIPTS = (
    Script("headline", "One socket against a request per turn", ("--repetitions", "5"), 240),
    Script(
        "headline-away",
        "The same, 20 ms away",
        ("--away-ms", "20", "--repetitions", "2"),
        240,
        "headline.py",
    ),
    Script("warm", "A turn behind a warm-up", ("--repetitions", "3"), limit_s=240),
    Script("streams", "A token over the engine link", ("--seconds", "10")),
    Script(
        "streams-sse",
        "The same to SSE",
        ("--seconds", "10", "--transport", "sse"),
        120,
        "streams.py",
    ),
    Script(
        "relay-ws",
        "A token of a Responses WebSocket",
        (*UPSTREAM, "responses-ws"),
        120,
        "streams.py",
    ),
    Script(
        "relay-sse", "A token of Responses over SSE", (*UPSTREAM, "responses"), 120, "streams.py"
    ),
    Script("relay-chat", "A token of chat completions", (*UPSTREAM, "chat"), 120, "streams.py"),
    Script("scaling", "Cost by streams and by length", limit_s=360),
    Script("sockets", "Many sockets", ("--turns", "500"), limit_s=240),
    Script("workers", "Several workers", ("--repetitions", "3"), limit_s=180),
    Script("relay", "A token of an engine in the gateway", ("--tokens", "1500", "--turns", "5")),
    Script("tasks", "A short task", ("--rounds", "3", "--tasks", "900"), limit_s=240),
    Script(
        "tasks-spread",
        "A short task with its processes on all cores",
        ("--rounds", "3", "--tasks", "900", "--cores", "all", "--only", "socket"),
        240,
        "tasks.py",
    ),
    Script("counts", "What a task and a token run, counted", limit_s=240),
    Script("decide", "A decision"),
    Script("classify", "A classification", ("--texts", "150")),
    Script("pools", "A task's limits in Redis", ("--seconds", "2")),
    Script("strategies", "Both engines at once, in the engines' own time"),
    Script("steer", "Steering", ("--rounds", "20")),
    Script("engine_speeds", "The documented engines", ("--repeat", "1"), extra=True),
    Script("replay_trace", "Replaying a trace", extra=True),
    # The first time it installs them.
    Script("compare", "Beside relays and other gateways", limit_s=7200, extra=True),
)


class Outcome(msgspec.Struct, kw_only=True):
    """Says what became of one script."""

    name: str
    title: str
    command: str = ""
    rows: list[Row] = []
    failure: str = ""
    wall_s: float = 0.0
    other_load: float = 0.0  # cores that the rest of the machine kept busy meanwhile


def machine() -> dict[str, Any]:
    """Returns what the figures hold for."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "commit": git("rev-parse", "--short", "HEAD"),
        "changed": bool(git("status", "--porcelain", "--untracked-files=no")),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def git(*arguments: str) -> str:
    """Returns what git says; empty where this is no checkout."""
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def machine_cpu_s() -> float:
    """Returns what all processes have used so far; proc(5), stat."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    idle = int(fields[3]) + int(fields[4])
    return (sum(map(int, fields[:8])) - idle) / os.sysconf("SC_CLK_TCK")


def children_cpu_s() -> float:
    """Returns what the processes that this one began, and theirs, have used, once they ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(script: Script, folder: Path) -> Outcome:
    """Runs one script, in a process of its own."""
    file = script.file or f"{script.name}.py"
    said = " ".join(("tests/bench/" + Path(file).name, *script.arguments))
    outcome = Outcome(name=script.name, title=script.title, command=said)
    written = folder / f"{script.name}.json"
    written.unlink(missing_ok=True)
    command = [sys.executable, str(FOLDER / file)]
    command += [*script.arguments, "--rows", str(written)]
    began_s, all_s, ours_s = time.perf_counter(), machine_cpu_s(), children_cpu_s()
    log = folder / f"{script.name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT, start_new_session=True
        )
        try:
            status = process.wait(script.limit_s)
            outcome.failure = f"ended with {status}" if status else ""
        except KeyboardInterrupt:
            end(process, signal.SIGINT, PATIENCE_S)
            raise
        except subprocess.TimeoutExpired:
            end(process, signal.SIGINT, PATIENCE_S)
            outcome.failure = f"was not done after {script.limit_s} s"
    outcome.wall_s = time.perf_counter() - began_s
    others_s = (machine_cpu_s() - all_s) - (children_cpu_s() - ours_s)
    outcome.other_load = max(0.0, others_s / outcome.wall_s)
    if not outcome.failure:
        outcome.rows = shape.read(written)
    else:
        outcome.failure += ":\n" + log.read_text(errors="replace")[-2000:]
    return outcome


def joined(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Returns one of each script, with all its repetitions."""
    found: dict[str, Outcome] = {}
    for outcome in outcomes:
        first = found.setdefault(outcome.name, outcome)
        if first is outcome:
            continue
        again = {row.name: row for row in outcome.rows}
        first.rows = [
            row.joined(again.pop(row.name)) if row.name in again else row for row in first.rows
        ] + list(again.values())
        first.failure = first.failure or outcome.failure
        first.wall_s += outcome.wall_s
        first.other_load = max(first.other_load, outcome.other_load)
    return list(found.values())


def report(kept: dict[str, Any]) -> str:
    """Returns all rows for a terminal, and what failed."""
    lines = []
    for outcome in outcomes_of(kept):
        lines.append(f"\n{outcome.title} ({outcome.name}, {outcome.wall_s:.0f} s)")
        lines.append(shape.text_table(outcome.rows) if outcome.rows else "no rows")
        lines += [f"  load: {load}" for load in loads_of(outcome)]
        if outcome.failure:
            lines.append(f"  FAILED: {outcome.failure}")
    return "\n".join([*lines, "", summary(kept)])


def draw(kept: dict[str, Any], folder: Path) -> list[str]:
    """Write every row's plot; gives their lines for the document beside the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    rows = [row for outcome in outcomes_of(kept) for row in outcome.rows]
    for plot in (row.plot for row in rows if row.plot is not None):
        svg = scatter_svg(plot.title, plot.x_label, plot.y_label, plot.points)
        (folder / f"{plot.slug}.svg").write_text(svg)
        lines.append(f"![{plot.title}]({folder.name}/{plot.slug}.svg)")
    return lines


def loads_of(outcome: Outcome) -> list[str]:
    """Returns each load once."""
    return list(dict.fromkeys(row.load for row in outcome.rows if row.load))


def summary(kept: dict[str, Any]) -> str:
    """Returns how many goals are met, and where this ran."""
    rows = [row for outcome in outcomes_of(kept) for row in outcome.rows]
    asked = [row for row in rows if row.goal is not None]
    on = kept["machine"]
    busy = max((outcome.other_load for outcome in outcomes_of(kept)), default=0.0)
    return (
        f"{len(rows)} rows; {sum(bool(row.met) for row in asked)} of {len(asked)} goals met. "
        f"Commit {on['commit']}{' (changed)' if on['changed'] else ''}, {on['at']}, {on['cpu']}, "
        f"{on['cores']} cores, Python {on['python']}; other programs kept up to {busy:.1f} cores "
        "busy."
    )


def outcomes_of(kept: dict[str, Any]) -> list[Outcome]:
    """Reads the outcomes from JSON."""
    return msgspec.convert(kept["scripts"], list[Outcome])


def markdown(kept: dict[str, Any], plots: Sequence[str] = ()) -> str:
    """Returns all rows and plots for a document."""
    parts = [BEGIN, summary(kept), *plots]
    for outcome in outcomes_of(kept):
        parts += [f"### {outcome.title}", f"`{outcome.command}`"]
        if outcome.rows:
            parts.append(shape.markdown_table(outcome.rows))
        parts += [f"Load: {load}." for load in loads_of(outcome)]
        if outcome.failure:
            parts.append("It failed.")
    return "\n\n".join([*parts, END])


def written_into(text: str, table: str) -> str:
    """Returns the document with this table between its two marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"the document lacks the lines {BEGIN!r} and {END!r}: add them")
    return before + table + after


def main() -> int:
    """Parse; run and print, or render what was kept."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", metavar="NAMES", help="scripts, with commas between")
    parser.add_argument("--all", action="store_true", help="the extra ones, too")
    parser.add_argument("--repeat", type=int, default=1, help="run all of them so often, in turns")
    parser.add_argument("--json", type=Path, default=KEPT, help="where the rows are kept")
    parser.add_argument("--list", action="store_true", help="name the scripts and end")
    parser.add_argument(
        "--markdown", nargs="?", type=Path, const=DOCUMENT, metavar="FILE",
        help="run nothing: write what was kept into a document",
    )  # fmt: skip
    asked = parser.parse_args()
    if asked.list:
        print("\n".join(f"{script.name:16}{script.title}" for script in SCRIPTS))
        return 0
    if asked.markdown is not None:
        kept = json.loads(asked.json.read_bytes())
        plots = draw(kept, asked.markdown.parent / PLOTS)
        text = written_into(asked.markdown.read_text(), markdown(kept, plots))
        asked.markdown.write_text(text)
        return 0
    names = [script.name for script in SCRIPTS if asked.all or not script.extra]
    names = asked.only.split(",") if asked.only else names
    if unknown := set(names) - {script.name for script in SCRIPTS}:
        parser.error(f"no script named {', '.join(sorted(unknown))}; --list names them")
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="lw-bench-") as folder:
        for script in [s for _ in range(asked.repeat) for s in SCRIPTS if s.name in names]:
            print(f"{script.name} ...", end=" ", file=sys.stderr, flush=True)
            outcomes.append(run(script, Path(folder)))
            print(f"{outcomes[-1].wall_s:.0f} s", file=sys.stderr, flush=True)
    kept = {"machine": machine(), "scripts": []}
    for outcome in joined(outcomes):
        rows = [row.as_json() for row in outcome.rows]
        kept["scripts"].append({**msgspec.to_builtins(outcome), "rows": rows})
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps(kept, indent=1) + "\n")
    print(report(kept))
    return int(any(outcome.failure for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
