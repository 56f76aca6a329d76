"""Runs gateway processes that offer several times what limits give, and counts what they got."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

WORKER = Path(__file__).parent / "pools_worker.py"

ROOT = Path(__file__).parents[2]

NUM_GATEWAYS = 4

UNBOUND = {"requests_per_min": 10**6, "tokens_per_min": 10**9, "max_concurrent": 10**4}

# Each is bound by another pool, and offered several times what that gives.
PLAN: list[dict[str, Any]] = [
    {
        "id": "by-requests",
        "limits": UNBOUND | {"requests_per_min": 120},
        "tokens": 10,
        "rate_per_s": 60,
        "hold_s": 0.0,
    },
    {
        "id": "by-tokens",
        "limits": UNBOUND | {"tokens_per_min": 6_000},
        "tokens": 70,
        "rate_per_s": 50,
        "hold_s": 0.0,
    },
    {
        "id": "by-places",
        "limits": UNBOUND | {"max_concurrent": 5},
        "tokens": 10,
        "rate_per_s": 100,
        "hold_s": 0.05,
    },
]


def gateway(
    url: str, seed: int, seconds: float, plan: list[dict[str, Any]], lease_ms: int = 30_000
) -> Any:
    command = [sys.executable, str(WORKER), url, str(seconds), str(lease_ms), str(seed)]
    return subprocess.Popen(
        [*command, json.dumps(plan)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    )


def run_gateways(url: str, seconds: float) -> tuple[float, dict[str, list[list[Any]]]]:
    """Returns how long they ran, and the tasks of each tenant that they ran."""
    gateways = [gateway(url, seed, seconds, PLAN) for seed in range(NUM_GATEWAYS)]
    ran: dict[str, list[list[Any]]] = {}
    for each in gateways:
        output, _ = each.communicate(timeout=seconds + 60)
        assert each.returncode == 0
        for line in output.splitlines():
            task = json.loads(line)
            ran.setdefault(task[0], []).append(task)
    started_s = min(task[2] for task in ran.pop(""))
    ended_s = max(task[2] for tasks in ran.values() for task in tasks)
    return ended_s - started_s, ran


def most_at_once(tasks: list[list[Any]]) -> int:
    changes = [(task[2], 1) for task in tasks] + [(task[3], -1) for task in tasks]
    running = most = 0
    for _, change in sorted(changes):
        running += change
        most = max(most, running)
    return most


def check_limits(url: str, seconds: float) -> str:
    """Checks that nobody got more than a full pool and its refill, and everybody nearly that."""
    elapsed_s, ran = run_gateways(url, seconds)
    minutes = (elapsed_s + 0.002) / 60  # the server's milliseconds are whole ones
    requests, tokens = len(ran["by-requests"]), sum(task[1] for task in ran["by-tokens"])
    most = most_at_once(ran["by-places"])
    assert 120 <= requests <= 120 + 120 * minutes
    assert 6_000 - 70 <= tokens <= 6_000 + 6_000 * minutes
    assert 3 <= most <= 5
    assert len(ran["by-places"]) > 5 * seconds
    return (
        f"{elapsed_s:.1f} s: {requests} requests of {120 + 120 * minutes:.1f}, {tokens} tokens of "
        f"{6_000 + 6_000 * minutes:.1f}, at most {most} of 5 places at once"
    )
