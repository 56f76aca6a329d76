"""Measures how soon a steer shows: from its sending to the client's first new words.

    python tests/bench/steer.py [--rounds 50] [--beside 0] [--json FILE]

Starts a gateway with the default simulated engines, embedded Redis included, and steers a long
answer again and again over one WebSocket, once its words flow: each round from the moment the
steer's frame is sent until `response.steer.accepted`, until the steered response's terminal event,
and until the successor's first `response.output_text.delta`. Times are the client's, on loopback.
`--beside` streams that many other answers on the same socket meanwhile. The goal is below 100 ms on
the fast engine. Takes about half a second a round and engine.
"""

import argparse
import asyncio
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import websockets

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench import rows as shape  # noqa: E402
from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess, served  # noqa: E402

MODELS = {"fast": "lanewise-fast", "deep": "lanewise-deep"}
LONG = "Write a guide to sorting of 16,000 tokens."
GOAL_MS = 100.0
MAX_BESIDE = 14  # a connection runs 16 at once
TERMINALS = ("response.completed", "response.incomplete", "response.failed")


class Round(NamedTuple):
    """Counts milliseconds from the steer's sending."""

    accepted_ms: float
    stopped_ms: float
    first_word_ms: float


async def receive(socket: websockets.ClientConnection, stream_id: str) -> dict[str, Any]:
    """Returns the next event of a stream; those of others are read past."""
    while True:
        event: dict[str, Any] = json.loads(await socket.recv())
        if event["type"] == "error":
            raise RuntimeError(event["error"]["message"])
        if event.get("stream_id") == stream_id:
            return event


async def steer_once(socket: websockets.ClientConnection, model: str) -> Round:
    """Steers one answer after its first words, and cancels it after the first new ones."""
    create = {"type": "response.create", "model": model, "input": LONG, "store": False}
    await socket.send(json.dumps({**create, "stream_id": "steered"}))
    target = ""
    num_deltas = 0
    while num_deltas < 3:
        event = await receive(socket, "steered")
        target = event.get("response", {}).get("id", target)
        num_deltas += event["type"] == "response.output_text.delta"
    steer = {"type": "response.steer", "previous_response_id": target, "input": "Now a poem."}
    frame = json.dumps(steer)
    started_s = time.perf_counter()
    await socket.send(frame)
    at_ms: dict[str, float] = {}
    successor = ""
    while "word" not in at_ms:
        event = await receive(socket, "steered")
        now_ms = (time.perf_counter() - started_s) * 1e3
        if event["type"] == "response.steer.accepted":
            at_ms["accepted"] = now_ms
        elif event["type"] in TERMINALS and event["response"]["id"] == target:
            at_ms["stopped"] = now_ms
        elif event["type"] == "response.created":
            successor = event["response"]["id"]
        elif event["type"] == "response.output_text.delta" and successor:
            at_ms["word"] = now_ms
    await socket.send(json.dumps({"type": "response.cancel", "response_id": successor}))
    while event["type"] not in TERMINALS:
        event = await receive(socket, "steered")
    return Round(at_ms["accepted"], at_ms["stopped"], at_ms["word"])


async def measure(gateway: GatewayProcess, model: str, rounds: int, beside: int) -> list[Round]:
    """Measures so many rounds, after a few that warm up."""
    headers = {"authorization": f"Bearer {DEVELOPMENT_KEY}"}
    async with websockets.connect(
        gateway.socket_url, additional_headers=headers, max_size=None, compression=None
    ) as socket:
        for number in range(beside):
            other = {"model": "lanewise-deep", "input": LONG, "store": False}
            frame = {"type": "response.create", **other, "stream_id": f"beside-{number}"}
            await socket.send(json.dumps({**frame, "max_output_tokens": 30_000}))
        measured = [await steer_once(socket, model) for _ in range(rounds + 3)]
        return measured[3:]


def percentile(values: list[float], share: float) -> float:
    """Takes it by rank; of few values the largest counts for the tail."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def row_of(engine: str, report: dict[str, dict[str, float]]) -> shape.Row:
    """Says how soon new words come; the time until the old answer has stopped is within it."""
    return shape.Row(
        name=f"steer on the {engine} engine: first new word, p95",
        unit="ms",
        values=[report["first_word_ms"]["p95"]],
        baseline="the old answer has stopped, p95",
        baseline_values=[report["stopped_ms"]["p95"]],
        goal=shape.at_most(GOAL_MS, "ms") if engine == "fast" else None,
        per="steer",
        wall_us=[report["first_word_ms"]["p50"] * 1e3],
        baseline_wall_us=[report["stopped_ms"]["p50"] * 1e3],
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--beside", type=int, default=0, help=f"at most {MAX_BESIDE}")
    parser.add_argument("--json", type=Path)
    shape.add_argument(parser)
    arguments = parser.parse_args()
    if not (arguments.rounds > 0 and 0 <= arguments.beside <= MAX_BESIDE):
        parser.error(f"rounds above 0 and beside from 0 to {MAX_BESIDE}, please")
    report: dict[str, Any] = {
        "commit": subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout.strip(),
        "machine": platform.platform(),
        "rounds": arguments.rounds,
        "beside": arguments.beside,
    }
    print(f"{'engine':8}{'accepted':>22}{'stopped':>22}{'first new word':>22}   p50 / p95 ms")
    with (
        tempfile.TemporaryDirectory(prefix="lw-steer-") as folder,
        served(Path(folder)) as gateway,
    ):
        for name, model in MODELS.items():
            measured = asyncio.run(measure(gateway, model, arguments.rounds, arguments.beside))
            columns = zip(Round._fields, zip(*measured, strict=True), strict=True)
            row = {
                field: {"p50": statistics.median(ms), "p95": percentile(list(ms), 0.95)}
                for field, ms in columns
            }
            report[name] = row
            cells = "".join(f"{c['p50']:>12.1f} / {c['p95']:7.1f}" for c in row.values())
            print(f"{name:8}{cells}")
    p95_ms = report["fast"]["first_word_ms"]["p95"]
    print(f"fast, 95 of 100: {p95_ms:.1f} ms, {GOAL_MS / p95_ms:.1f} times within {GOAL_MS:.0f} ms")
    if arguments.rows is not None:
        shape.publish([row_of(name, report[name]) for name in MODELS], arguments)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
