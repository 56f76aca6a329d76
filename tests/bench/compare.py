"""Compares Lanewise with relays and other gateways: same load, same upstream, same run.

    python tests/bench/compare.py                        # all of them; the first time they install
    python tests/bench/compare.py --only HAProxy,vllm-router --rounds 1

Every rival stands before one `paced_upstream.py` and is installed by its file in `rivals/` into
`build/rivals`. All run at once and take turns: a round measures each kind of load on each of them,
and on the upstream itself ("straight"), before the next begins. A rival's CPU is that of its whole
process tree. Load and upstream are processes of their own: how busy they were is noted, and no
figure counts where one was busier than a core allows.

Prints tables and keeps every figure in build/compare.json; `--rows` gives the rows of `make bench`:
Lanewise against the best that routes, and against the best relay, for each kind of load.
"""

import argparse
import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import trustme

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench import rows as shape  # noqa: E402
from tests.bench.clocks import cpu_us  # noqa: E402
from tests.bench.compare_rows import LOADS, STRAIGHT, Kept, Load, report, rows_of  # noqa: E402
from tests.bench.rivals import (  # noqa: E402
    envoy,
    haproxy,
    lanewise,
    litellm,
    portkey,
    sglang_router,
    tensorzero,
    vllm_router,
)
from tests.bench.rivals.rival import CannotInstallError, Rival, Upstream  # noqa: E402
from tests.bench.rivals.running import CannotStartError, Running, running  # noqa: E402
from tests.bench.table import machine  # noqa: E402
from tests.bench.tasks import redis_pid  # noqa: E402
from tests.e2e.gateway_process import redis_server  # noqa: E402

HERE = Path(__file__).resolve().parent
INSTALLED = ROOT / "build" / "rivals"
KEPT = ROOT / "build" / "compare.json"
DOCUMENT = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- tables: tests/bench/compare.py --kept --markdown -->", "<!-- end of tables -->"
RIVALS = (
    *map(lanewise.over, lanewise.PROTOCOLS),
    *(haproxy.RIVAL, envoy.RIVAL, vllm_router.RIVAL, sglang_router.RIVAL, tensorzero.RIVAL),
    *(portkey.RIVAL, litellm.RIVAL, litellm.RELAYING),
)
STREAMS = 20
SHORT_PROMPT = "Rename the variable."  # nobody doubts that a fast model can
TOKENS = {100: 200, 1000: 500, 0: 500}  # of an answer, by the stream's tokens/s
MAX_ROUNDS = 16  # all that came is kept until the end
LOAD_LIMIT_S = 90.0
SETTLE_S = 30.0  # a router may need that long to trust its workers
TRIAL_TASKS = 30  # tell how many a measurement takes


class LoadError(Exception):
    """A load ended with an error; the message is its last words."""


class Subject(NamedTuple):
    """Says what is asked: a rival, or the upstream itself."""

    name: str
    url: str
    key: str = "none"
    headers: tuple[str, ...] = ()
    rival: Running | None = None


class Comparison:
    """Is one run: what is measured so far, and what could not be."""

    def __init__(self, upstream: Upstream, pids: dict[str, int], seconds: float) -> None:
        self._upstream = upstream
        self._pids = pids  # of Redis and the upstream
        self._seconds = seconds
        self._sizes: dict[tuple[str, str], int] = {}  # (subject, load) -> tasks, or rounds
        self._settled = {STRAIGHT}  # have answered once
        self.figures: Kept = {}
        self.failures: dict[str, str] = {}

    def measure(self, subject: Subject, load: Load, model: str) -> None:
        """Puts one load on one of them, once; a failure is kept with its reason."""
        key = (subject.name, load.name)
        where = f"{subject.name}, {load.name}"
        if where in self.failures:
            return
        try:
            found = None
            if key not in self._sizes:
                trial = self._trial(subject, load, model)
                self._sizes[key] = self._size(load, trial["wall_s"])
                found = trial if self._sizes[key] <= self._trial_size(load) else None
            found = found or self._run(subject, load, model, self._sizes[key])
        except LoadError as error:
            self.failures[where] = str(error)
            print(f"{where}: {error}", file=sys.stderr, flush=True)
            return
        self.figures.setdefault(load.name, {}).setdefault(subject.name, []).append(found)

    def _trial(self, subject: Subject, load: Load, model: str) -> dict[str, Any]:
        """Makes a first go; patient until it has answered once."""
        deadline_s = time.monotonic() + SETTLE_S
        while True:
            try:
                trial = self._run(subject, load, model, self._trial_size(load))
                break
            except LoadError:
                if subject.name in self._settled or time.monotonic() > deadline_s:
                    self._settled.add(subject.name)
                    raise
                time.sleep(2)
        self._settled.add(subject.name)
        return trial

    def _trial_size(self, load: Load) -> int:
        return max(TRIAL_TASKS, load.concurrency) if load.is_short else 1

    def _size(self, load: Load, trial_s: float) -> int:
        """Returns how many tasks, or rounds of streams, take about as long as asked."""
        times = self._seconds / trial_s
        if load.is_short:
            return max(2 * load.concurrency, min(round(self._trial_size(load) * times), 20_000), 60)
        return max(1, min(round(times), MAX_ROUNDS))

    def _run(self, subject: Subject, load: Load, model: str, size: int) -> dict[str, Any]:
        script = "task_load.py" if load.is_short else "token_load.py"
        command = [sys.executable, str(HERE / script), "--url", subject.url, "--model", model]
        command += ["--mode", load.mode, "--key", subject.key]
        for header in subject.headers:
            command += ["--header", header]
        if load.is_short:
            command += ["--concurrency", str(load.concurrency), "--tasks", str(size), "--hold"]
            command += ["--timeout-s", str(LOAD_LIMIT_S), "--text", SHORT_PROMPT]
        else:
            command += ["--streams", str(STREAMS), "--tokens", str(TOKENS[load.rate])]
            command += ["--rounds", str(size)]
            command += ["--rate", str(load.rate), "--upstream", self._upstream.url]
        pids = self._pids
        with tempfile.TemporaryFile("w+") as words:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=words, text=True
            )
            alarm = threading.Timer(LOAD_LIMIT_S, process.kill)
            alarm.start()
            try:
                found = self._watched(process, subject, pids)
            except (ValueError, OSError):
                process.kill()
                words.seek(0)
                last = words.read().strip().splitlines()[-1:] or ["it did not end in time"]
                raise LoadError(last[0][:500]) from None
            finally:
                process.wait()
                alarm.cancel()
        count = found["tokens"] if "tokens" in found else found["tasks"]
        for name in ("cpu_us", "redis_cpu_us"):
            found[name] = found[name] / count
        return found

    def _watched(
        self, process: subprocess.Popen[str], subject: Subject, pids: dict[str, int]
    ) -> dict[str, Any]:
        """Let it run; its figures with what it cost meanwhile.

        Raises:
            ValueError, OSError: It said something else than a load does, or ended.
        """

        def spent() -> dict[str, float]:
            clocks = {name: cpu_us(pid) for name, pid in pids.items()}
            clocks["subject"] = subject.rival.cpu_us() if subject.rival else 0.0
            clocks["load"] = cpu_us(process.pid)
            return clocks

        assert process.stdin is not None
        assert process.stdout is not None
        json.loads(process.stdout.readline())
        before, began_s = spent(), time.perf_counter()
        process.stdin.write("\n")
        process.stdin.flush()
        line = process.stdout.readline()
        after, wall_s = spent(), time.perf_counter() - began_s
        found = json.loads(line)
        if found == {"done": True}:
            found = json.loads(process.stdout.readline())
        cost = {name: after[name] - before[name] for name in before}
        assert isinstance(found, dict)
        return {
            **found,
            "cpu_us": cost["subject"],
            "redis_cpu_us": cost["redis"],
            "upstream_busy": cost["upstream"] / 1e6 / wall_s,
            "load_busy": cost["load"] / 1e6 / wall_s,
            "subject_busy": cost["subject"] / 1e6 / wall_s,
        }


@contextlib.contextmanager
def paced_upstream(scratch: Path) -> Iterator[tuple[Upstream, int]]:
    """Gives the upstream and its process id."""
    authority = trustme.CA()
    certificate = scratch / "upstream.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
    command = [sys.executable, str(HERE / "paced_upstream.py"), "--certificate", str(certificate)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            ports = json.loads(server.stdout.readline())
            yield Upstream(ports["port"], ports["tls_port"], certificate), server.pid
        finally:
            server.terminate()


def prepared(rivals: list[Rival]) -> tuple[dict[str, str], dict[str, str]]:
    """Install what is missing: versions, and reasons of those that cannot be had."""
    versions, failures = {}, {}
    for rival in rivals:
        try:
            print(f"{rival.name} ...", end=" ", file=sys.stderr, flush=True)
            versions[rival.name] = rival.install(folder_of(rival))
            print(versions[rival.name], file=sys.stderr, flush=True)
        except CannotInstallError as error:
            failures[rival.name] = f"cannot be installed: {error}"
            print(failures[rival.name], file=sys.stderr, flush=True)
    return versions, failures


def folder_of(rival: Rival) -> Path:
    """Returns where it is installed; two ways of using one share it."""
    return INSTALLED / rival.install.__module__.rpartition(".")[2]


def run(asked: argparse.Namespace, rivals: list[Rival], loads: list[Load]) -> None:
    """Runs all rounds; what they gave is kept in a file."""
    versions, failures = prepared(rivals)
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lw-compare-")))
        redis_url = stack.enter_context(redis_server(scratch))
        (scratch / lanewise.REDIS_URL).write_text(redis_url)
        upstream, upstream_pid = stack.enter_context(paced_upstream(scratch))
        pids = {"redis": redis_pid(scratch), "upstream": upstream_pid}
        straight = Subject(STRAIGHT, f"{upstream.url}/v1")
        subjects: list[tuple[Subject, dict[str, str]]] = [
            (straight, {load.mode: "fake" for load in loads})
        ]
        for rival in rivals:
            if rival.name in failures:
                continue
            try:
                up = stack.enter_context(running(rival, folder_of(rival), scratch, upstream))
            except CannotStartError as error:
                failures[rival.name] = f"does not start: {error}"
                continue
            subject = Subject(rival.name, up.url, rival.key, up.headers, up)
            subjects.append((subject, dict(rival.modes)))
        comparison = Comparison(upstream, pids, asked.seconds)
        for number in range(asked.rounds):
            print(f"round {number + 1} of {asked.rounds}", file=sys.stderr, flush=True)
            for load in loads:
                began_s = time.monotonic()
                for subject, models in subjects:
                    if load.mode in models:
                        comparison.measure(subject, load, models[load.mode])
                took_s = time.monotonic() - began_s
                print(f"  {load.name}: {took_s:.0f} s", file=sys.stderr, flush=True)
                kept = {
                    "machine": machine(),
                    "versions": versions,
                    "routes": {rival.name: rival.routes for rival in rivals},
                    "notes": {rival.name: rival.note for rival in rivals if rival.note},
                    "failures": failures | comparison.failures,
                    "figures": comparison.figures,
                }
                # After each load, so that a run which is ended loses nothing.
                asked.json.write_text(json.dumps(kept, indent=1) + "\n")


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = list(dict.fromkeys(rival.name for rival in RIVALS))
    parser.add_argument("--only", metavar="NAMES", help=f"beside Lanewise; of {', '.join(names)}")
    parser.add_argument("--loads", metavar="TEXT", default="", help="whose name contains that")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement, about")
    parser.add_argument("--json", type=Path, default=KEPT, help="where every figure is kept")
    parser.add_argument("--kept", action="store_true", help="run nothing: print what was kept")
    parser.add_argument(
        "--markdown", action="store_true", help="write the tables into docs/performance.md"
    )
    shape.add_argument(parser)
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # with all it began
    if not asked.kept:
        wanted = {"Lanewise", *(asked.only.split(",") if asked.only else names)}
        if unknown := wanted - set(names):
            parser.error(f"no rival named {', '.join(sorted(unknown))}; there are: {names}")
        rivals = [rival for rival in RIVALS if rival.name in wanted]
        run(asked, rivals, [load for load in LOADS if asked.loads in load.name])
    kept = json.loads(asked.json.read_text())
    if asked.rows is not None:
        shape.publish(rows_of(kept), asked)
    elif asked.markdown:
        before, begin, rest = DOCUMENT.read_text().partition(BEGIN)
        _, end, after = rest.partition(END)
        if not (begin and end):
            parser.error(f"{DOCUMENT.name} lacks the lines {BEGIN!r} and {END!r}: add them")
        DOCUMENT.write_text(f"{before}{BEGIN}\n\n{report(kept, markdown=True)}\n\n{END}{after}")
    else:
        print(report(kept, markdown=False))


if __name__ == "__main__":
    main()
