"""One persistent WebSocket against one HTTP request per turn, on the same gateway, in one run.

Both ways go over TLS to the same process. The old way opens a connection for each turn and sends
the whole context; the new way sends on an open socket what the turn adds. Agent loops of 1 and 20
tool calls over contexts of 1,000 and 30,000 tokens are run in turns, old and new interleaved.

- Overhead: a whole turn's wall time on an engine that answers at once (`firehose.py --instant`).
- Time to first token: on the simulated wafer, whose own prefill is the same for both.
- Cost: CPU time of the gateway's process per output token on the instant engine.

    python tests/bench/headline.py
"""

import argparse
import contextlib
import http.client
import json
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import trustme
from websockets.sync.client import connect
from websockets.sync.connection import Connection

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench.firehose import MODEL, Text  # noqa: E402
from tests.bench.relay import cpu_us  # noqa: E402
from tests.bench.streams import BACKEND  # noqa: E402
from tests.e2e.gateway_process import (  # noqa: E402
    CONFIG,
    DEVELOPMENT_KEY,
    GatewayProcess,
    free_port,
    redis_server,
)

TLS = "[server]\ntls_cert_path = 'server.pem'\ntls_key_path = 'server.key'\n"
HEADERS = {"Authorization": f"Bearer {DEVELOPMENT_KEY}", "Content-Type": "application/json"}
TOOL = {
    "type": "function",
    "name": "read_lines",
    "description": "Read lines of a file.",
    "parameters": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "first_line": {"type": "integer"}},
        "required": ["path", "first_line"],
    },
}
TOOL_OUTPUT_TOKENS = 150  # what a call gives back: some ten lines of code
GOALS = {"overhead": 80, "ttft": 50, "cost": 30}  # per cent less than the old way


class Turn(NamedTuple):
    """What one turn took, in seconds, and what it gave."""

    ttft_s: float
    whole_s: float
    output: list[dict[str, Any]]
    response_id: str
    output_tokens: int


class Loop(NamedTuple):
    """An agent's loop, run once."""

    turns: list[Turn]
    gateway_cpu_us: float
    sent_bytes: int


class OldWay:
    """A connection and the whole context for each turn."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self._gateway = gateway
        self.sent_bytes = 0

    @contextlib.contextmanager
    def conversation(self, body: dict[str, Any]) -> Iterator[None]:
        """Begin another one."""
        self._body = body
        self._items: list[dict[str, Any]] = []
        yield

    def turn(self, items: list[dict[str, Any]]) -> Turn:
        """Ask for one response."""
        self._items += items
        payload = json.dumps({**self._body, "input": self._items, "stream": True}).encode()
        self.sent_bytes += len(payload)
        started_s = time.perf_counter()
        assert self._gateway.trusting is not None
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._gateway.port, context=self._gateway.trusting
        )
        connection.request("POST", "/v1/responses", payload, HEADERS)
        with connection.getresponse() as answer:
            assert answer.status == 200, answer.read()
            lines = (line[6:] for line in answer if line.startswith(b"data: "))
            turn = read_turn(lines, started_s)
        connection.close()
        self._items += [strip(item) for item in turn.output]
        return turn


class NewWay:
    """One socket, opened before; a turn sends what it adds."""

    def __init__(self, gateway: GatewayProcess, socket: Connection) -> None:
        self._socket = socket
        self.sent_bytes = 0

    @contextlib.contextmanager
    def conversation(self, body: dict[str, Any]) -> Iterator[None]:
        """Begin another one."""
        self._body = body
        self._last: str | None = None
        yield

    def turn(self, items: list[dict[str, Any]]) -> Turn:
        """Ask for one response."""
        event = {"type": "response.create", **self._body, "input": items}
        if self._last is not None:
            event["previous_response_id"] = self._last
        payload = json.dumps(event)
        self.sent_bytes += len(payload)
        started_s = time.perf_counter()
        self._socket.send(payload)
        turn = read_turn(iter(self._socket.recv, None), started_s)
        self._last = turn.response_id
        return turn


def read_turn(events: Iterator[Any], started_s: float) -> Turn:
    """Follow a response to its end; parses only its last event."""
    ttft_s = 0.0
    for event in events:
        text = event.decode() if isinstance(event, bytes) else event
        if not ttft_s and '.delta"' in text[:64]:
            ttft_s = time.perf_counter() - started_s
        elif text.startswith('{"type":"response.completed"'):
            whole_s = time.perf_counter() - started_s
            response = json.loads(text)["response"]
            tokens = response["usage"]["output_tokens"]
            return Turn(ttft_s, whole_s, response["output"], response["id"], tokens)
        assert not text.startswith(('{"type":"error"', '{"type":"response.failed"')), text
    raise AssertionError("the response did not end")


def strip(item: dict[str, Any]) -> dict[str, Any]:
    """An output item as input."""
    return {name: value for name, value in item.items() if name not in ("id", "status")}


def run_loop(
    way: OldWay | NewWay, pid: int, model: str, context_tokens: int, calls: int, salt: int
) -> Loop:
    """One conversation: the ask with its context, then so many tool calls answered."""
    text = Text()
    context = f"Conversation {salt}.\n" + text.piece(salt, context_tokens)
    body = {"model": model, "tools": [TOOL], "tool_choice": "required", "store": False}
    before_us, sent = cpu_us(pid), way.sent_bytes
    turns = []
    with way.conversation(body):
        items: list[dict[str, Any]] = [{"role": "user", "content": context}]
        for number in range(calls):
            turns.append(way.turn(items))
            (call,) = (item for item in turns[-1].output if item["type"] == "function_call")
            output = text.piece(salt + 31 * number, TOOL_OUTPUT_TOKENS)
            items = [{"type": "function_call_output", "call_id": call["call_id"], "output": output}]
    return Loop(turns, cpu_us(pid) - before_us, way.sent_bytes - sent)


def measure(gateway: GatewayProcess, repetitions: int) -> list[dict[str, Any]]:
    """All rows."""
    rows = []
    with connect(
        gateway.socket_url,
        ssl=gateway.trusting,
        additional_headers=HEADERS,
        max_size=None,
        compression=None,
    ) as socket:
        ways: dict[str, OldWay | NewWay] = {"old": OldWay(gateway), "new": NewWay(gateway, socket)}
        for context_tokens in (1_000, 30_000):
            for calls in (1, 20):
                loops = loops_of(gateway, ways, MODEL, context_tokens, calls, repetitions)
                real = loops_of(gateway, ways, "lanewise-fast", context_tokens, calls, repetitions)
                rows.append(row(context_tokens, calls, loops, real))
    return rows


def loops_of(
    gateway: GatewayProcess,
    ways: dict[str, OldWay | NewWay],
    model: str,
    context_tokens: int,
    calls: int,
    repetitions: int,
) -> dict[str, list[Loop]]:
    """The same loop both ways, interleaved; each with a context that no engine has seen."""
    loops: dict[str, list[Loop]] = {name: [] for name in ways}
    pid = gateway.process.pid
    # A loop of one call is too short for the clock of /proc, which ticks every 10 ms.
    each = max(1, 20 // calls)
    for repetition in range(repetitions * each):
        for number, (name, way) in enumerate(ways.items()):
            salt = 7 * (2 * repetition + number) + 100_000 * calls + context_tokens
            loops[name].append(run_loop(way, pid, model, context_tokens, calls, salt))
    return loops


def row(
    context_tokens: int, calls: int, loops: dict[str, list[Loop]], real: dict[str, list[Loop]]
) -> dict[str, Any]:
    """Medians of both ways, and how much less the new one is."""
    figures: dict[str, Any] = {"context_tokens": context_tokens, "tool_calls": calls}
    for name in ("old", "new"):
        turns = [turn for loop in loops[name] for turn in loop.turns]
        tokens = sum(turn.output_tokens for turn in turns)
        figures[f"overhead_ms_{name}"] = statistics.median(t.whole_s for t in turns) * 1e3
        figures[f"cost_cpu_us_per_token_{name}"] = (
            sum(loop.gateway_cpu_us for loop in loops[name]) / tokens
        )
        figures[f"sent_kb_per_turn_{name}"] = (
            sum(p.sent_bytes for p in loops[name]) / len(turns) / 1e3
        )
        first = [turn.ttft_s for loop in real[name] for turn in loop.turns]
        figures[f"ttft_ms_{name}"] = statistics.median(first) * 1e3
    for metric, unit in (("overhead", "ms"), ("ttft", "ms"), ("cost", "cpu_us_per_token")):
        old, new = figures[f"{metric}_{unit}_old"], figures[f"{metric}_{unit}_new"]
        figures[f"{metric}_less_percent"] = (1 - new / old) * 100
    return figures


def table(rows: list[dict[str, Any]]) -> str:
    """For people: old, new, and how much less; the goals on top."""
    lines = [
        f"{'context':>8}{'calls':>7}"
        + "".join(
            f"{name:>30}"
            for name in (
                f"overhead ms (goal -{GOALS['overhead']} %)",
                f"first token ms (goal -{GOALS['ttft']} %)",
                f"CPU us/token (goal -{GOALS['cost']} %)",
            )
        )
    ]
    for figures in rows:
        cells = ""
        for metric, unit in (("overhead", "ms"), ("ttft", "ms"), ("cost", "cpu_us_per_token")):
            old, new = figures[f"{metric}_{unit}_old"], figures[f"{metric}_{unit}_new"]
            cells += f"{f'{old:.1f} -> {new:.1f}  -{(1 - new / old):.0%}':>30}"
        lines.append(f"{figures['context_tokens']:>8,}{figures['tool_calls']:>7}{cells}")
    return "\n".join(lines)


@contextlib.contextmanager
def serving(folder: Path, redis_url: str) -> Iterator[GatewayProcess]:
    """A gateway over TLS with the instant engine and the simulated ones."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    certificate.private_key_pem.write_to_path(folder / "server.key")
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    port = free_port()
    script = Path(__file__).with_name("firehose.py")
    engine = subprocess.Popen([sys.executable, str(script), "--port", str(port), "--instant"])
    limits = CONFIG.replace("6000", "1000000").replace("20000000", "1000000000000")
    simulated = '[[backends]]\nkind = "wafer"\n[[backends]]\nkind = "gpu"\n'
    config = folder / "lanewise.toml"
    config.write_text(TLS + limits + simulated + BACKEND.format(port=port, model=MODEL))
    gateway = GatewayProcess(
        folder, "--config", str(config), "--redis", redis_url, trusting=trusting
    )
    try:
        gateway.wait_until_ready()
        while not gateway.metrics().total("lanewise_backend_up", backend="firehose"):
            time.sleep(0.05)
        yield gateway
    finally:
        gateway.stop()
        engine.terminate()
        engine.wait()


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=5, help="of each loop, each way")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="lw-bench-") as name,
        redis_server(Path(name)) as url,
        serving(Path(name), url) as gateway,
    ):
        rows = measure(gateway, arguments.repetitions)
    print(json.dumps(rows) if arguments.json else table(rows))


if __name__ == "__main__":
    main()
