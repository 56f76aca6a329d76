"""A start costs little: help 0.1 s of CPU, a wrong configuration 0.5 s, the first answer 1.5 s.

Counted is the CPU of the process and of all below it, the embedded Redis and engines of processes
of their own included, living or ended, and of the best of a few starts, since another process on
the same core makes each dearer. Bytecode is there, as `make run` leaves it: one start makes it.
"""

import json
import os
import resource
import subprocess
import tempfile
import urllib.request
from collections.abc import Callable
from pathlib import Path

from tests.e2e.gateway_process import DEVELOPMENT_KEY, LANEWISE, GatewayProcess, children

LIMIT_S = 300
NUM_STARTS = 5
MAX_HELP_S, MAX_WRONG_S, MAX_ANSWER_S = 0.1, 0.5, 1.5
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def main() -> bool:
    """Prints what each start took, and returns whether the best of each kind is in its bound."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": name}
        first_answer_cpu_s(folder)
        wrong = folder / "wrong.toml"
        wrong.write_text('[[backends]]\nkind = "nope"\n')
        rows: list[tuple[str, Callable[[], float], float]] = [
            ("help", lambda: ended_cpu_s("serve", "--help"), MAX_HELP_S),
            ("wrong", lambda: ended_cpu_s("serve", "--config", str(wrong)), MAX_WRONG_S),
            ("answer", lambda: first_answer_cpu_s(folder), MAX_ANSWER_S),
        ]
        held = True
        for title, start, bound_s in rows:
            taken_s = sorted(start() for _ in range(NUM_STARTS))
            print(f"{title}: {', '.join(f'{each:.2f}' for each in taken_s)} s, bound {bound_s} s")
            held = held and taken_s[0] <= bound_s
    return held


def ended_cpu_s(*arguments: str) -> float:
    """Returns the CPU of a command that ends by itself."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([LANEWISE, *arguments], capture_output=True, check=False, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def first_answer_cpu_s(folder: Path) -> float:
    """Returns the CPU of a gateway and all below it, from its start to its first answer."""
    gateway = GatewayProcess(folder)
    try:
        gateway.wait_until_listening()
        asked = urllib.request.Request(
            f"{gateway.base_url}/responses",
            json.dumps({"model": "auto", "input": "Say hello."}).encode(),
            {"authorization": f"Bearer {DEVELOPMENT_KEY}"},
        )
        with urllib.request.urlopen(asked, timeout=60) as answer:
            assert json.load(answer)["status"] == "completed"
        return sum(map(_cpu_s, (gateway.process.pid, *_below(gateway.process.pid))))
    finally:
        gateway.stop()


def _below(pid: int) -> list[int]:
    own = children(pid)
    return [*own, *(each for child in own for each in _below(child))]


def _cpu_s(pid: int) -> float:
    """Returns what a process and its ended children took; proc(5), stat, fields 14 to 17."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS_PER_S
