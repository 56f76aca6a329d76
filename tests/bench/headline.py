"""Compares one persistent WebSocket with a request per turn, on one gateway, in one run.

All ways go over TLS 1.3 to the same process. The old way opens a connection for each turn and
sends the whole context; the new way has a socket, warms each conversation with its context
(`generate: false`) before the user's message, and sends what a turn adds. Between them are what
SDKs do: "kept" is the old way over one connection, and "chained" sends what a turn adds over one
connection, to a server that stores responses. Kinds of work over contexts of 1,000 and 30,000
tokens, all ways interleaved:

- loops of 8, 20 and 40 tool calls;
- one turn, in a context of its own;
- one turn, in a context that eight prompts share: each forks from it, and it is warmed once.

- Overhead: from the moment the client begins a turn to the first token, less the engine's own time
  and one round trip of the network, which nobody can spare. A turn begins with opening the
  connection in the old way, with sending in the new. The engine (`firehose.py --instant`) answers
  at once; its own time is its process's CPU time per turn. On loopback the round trip counts as
  none; with `--away-ms` it is what opening a TCP connection takes.
- First token: the same span on the simulated wafer, with engine and network in it.
- Cost: CPU time of the gateway's process per output token on the instant engine, warm-ups included.

    python tests/bench/headline.py
    python tests/bench/headline.py --away-ms 20      # over a network of so much a round trip
"""

import argparse
import contextlib
import http.client
import json
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import trustme

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench import rows as shape  # noqa: E402
from tests.bench.clocks import Watch  # noqa: E402
from tests.bench.distance import FAR, away, round_trip_s  # noqa: E402
from tests.bench.firehose import MODEL, Text  # noqa: E402
from tests.bench.plain_socket import PlainSocket  # noqa: E402
from tests.bench.rows import Goal, Row  # noqa: E402
from tests.bench.streams import BACKEND  # noqa: E402
from tests.e2e.gateway_process import (  # noqa: E402
    CONFIG,
    DEVELOPMENT_KEY,
    GatewayProcess,
    free_port,
    redis_server,
)

TLS = "[server]\ntls_cert_path = 'server.pem'\ntls_key_path = 'server.key'\n"
KEY = "sk-headline-5f02b97ce1d8a463"  # the development key is for loopback alone
HEADERS = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
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
PROMPT_TOKENS = 40
NAMED = '{"type":"response.output_item.added"'
NUM_SHARING = 8  # prompts that share a context
KINDS = {
    "one turn": 1,
    "one turn, context shared": NUM_SHARING,
    "8 tool calls": 8,
    "20 tool calls": 20,
    "40 tool calls": 40,
}  # turns
BASELINES = {
    "old": "a connection and the context per turn",
    "kept": "the context per turn, connection kept",
    "chained": "what a turn adds, connection kept",
}
CELLS = [(context, kind) for context in (1_000, 30_000) for kind in KINDS]
Cell = tuple[int, str]
WAFER = "lanewise-fast"
OVERHEAD, FIRST, COST = (
    shape.less_by(80, aim=90),
    shape.less_by(50, aim=70),
    shape.less_by(30, aim=60),
)


class Turn(NamedTuple):
    """Says what one turn took, in seconds, and what it gave."""

    ttft_s: float
    output: list[dict[str, Any]]
    response_id: str
    output_tokens: int


class Loop(NamedTuple):
    """Is an agent's loop, run once."""

    turns: list[Turn]
    gateway_us: float  # CPU
    engine_us: float
    client_us: float
    wall_us: float
    sent_bytes: int
    network_us: float  # a round trip

    @property
    def ttft_us(self) -> float:
        """Returns the median of its turns."""
        return statistics.median(turn.ttft_s for turn in self.turns) * 1e6

    @property
    def overhead_us(self) -> float:
        """Returns the same without the engine's own time and one round trip."""
        return self.ttft_us - self.engine_us / len(self.turns) - self.network_us

    @property
    def tokens(self) -> int:
        """Counts those of all its answers."""
        return sum(turn.output_tokens for turn in self.turns)


class OldWay:
    """Sends a request per turn: on its own connection or a kept one, with the context or without.

    Without the context it names the response before, which the server stores.
    """

    def __init__(
        self, gateway: GatewayProcess, host: str, *, keeps: bool = False, chains: bool = False
    ) -> None:
        assert gateway.trusting is not None
        self._connection = http.client.HTTPSConnection(host, gateway.port, context=gateway.trusting)
        self._keeps = keeps
        self._chains = chains
        self.sent_bytes = 0

    @contextlib.contextmanager
    def conversation(self, body: dict[str, Any], context: list[dict[str, Any]]) -> Iterator[None]:
        """Begin another one."""
        self._body = body
        self._context = context
        self.begin()
        yield

    def begin(self) -> None:
        """Go back to where the conversation began."""
        self._items = list(self._context)
        self._last: str | None = None

    def turn(self, items: list[dict[str, Any]]) -> Turn:
        """Ask for one response."""
        self._items += items
        body = {**self._body, "input": self._items, "stream": True}
        if self._chains:
            body |= {"store": True, "previous_response_id": self._last}
        payload = json.dumps(body).encode()
        self.sent_bytes += len(payload)
        started_s = time.perf_counter()
        self._connection.request("POST", "/v1/responses", payload, HEADERS)
        with self._connection.getresponse() as answer:
            assert answer.status == 200, answer.read()
            lines = (line[6:] for line in answer if line.startswith(b"data: "))
            turn = read_turn(lines, started_s)
            answer.read()
        if not self._keeps:
            self._connection.close()
        self._last = turn.response_id
        self._items = [] if self._chains else [*self._items, *map(strip, turn.output)]
        return turn


class NewWay:
    """Keeps one socket, opened before; a turn sends what it adds."""

    def __init__(self, socket: PlainSocket) -> None:
        self._socket = socket
        self.sent_bytes = 0

    @contextlib.contextmanager
    def conversation(self, body: dict[str, Any], context: list[dict[str, Any]]) -> Iterator[None]:
        """Begin another one: its context goes ahead of the user's message."""
        self._body = body
        warm_up = {"type": "response.create", **body, "input": context, "generate": False}
        payload = json.dumps(warm_up)
        self.sent_bytes += len(payload)
        self._socket.send(payload)
        self._warm = read_turn(iter(self._socket.recv, None), 0.0).response_id
        self.begin()
        yield

    def begin(self) -> None:
        """Go back to where the conversation began."""
        self._last = self._warm

    def turn(self, items: list[dict[str, Any]]) -> Turn:
        """Ask for one response."""
        event = {"type": "response.create", **self._body, "input": items}
        payload = json.dumps({**event, "previous_response_id": self._last})
        self.sent_bytes += len(payload)
        started_s = time.perf_counter()
        self._socket.send(payload)
        turn = read_turn(iter(self._socket.recv, None), started_s)
        self._last = turn.response_id
        return turn


def read_turn(events: Iterator[Any], started_s: float) -> Turn:
    """Follow a response to its end; parses only its last event.

    The first token of a call is its function's name, which comes with the item's first event.
    """
    ttft_s = 0.0
    for event in events:
        text = event.decode() if isinstance(event, bytes) else event
        if not ttft_s and (text.startswith(NAMED) or '.delta"' in text[:64]):
            ttft_s = time.perf_counter() - started_s
        elif text.startswith('{"type":"response.completed"'):
            response = json.loads(text)["response"]
            tokens = response["usage"]["output_tokens"]
            return Turn(ttft_s, response["output"], response["id"], tokens)
        assert not text.startswith(('{"type":"error"', '{"type":"response.failed"')), text
    raise AssertionError("the response did not end")


def strip(item: dict[str, Any]) -> dict[str, Any]:
    """Returns an output item as input."""
    return {name: value for name, value in item.items() if name not in ("id", "status")}


def run_loop(
    way: OldWay | NewWay, watch: Watch, model: str, cell: Cell, salt: int, network_us: float = 0.0
) -> Loop:
    """Runs one conversation: its context, then prompts, or a prompt and answers to tool calls."""
    context_tokens, kind = cell
    text = Text()
    content = f"Conversation {salt}.\n" + text.piece(salt, context_tokens)
    body = {"model": model, "tools": [TOOL], "tool_choice": "required", "store": False}
    sent = way.sent_bytes
    watch.restart()
    turns = []
    with way.conversation(body, [{"role": "developer", "content": content}]):
        for number in range(KINDS[kind]):
            if number == 0 or kind == "one turn, context shared":
                way.begin()
                prompt = f"Ask {number}: {text.piece(salt + 31 * number, PROMPT_TOKENS)}"
                items: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
            turns.append(way.turn(items))
            (call,) = (item for item in turns[-1].output if item["type"] == "function_call")
            output = text.piece(salt + 31 * number, TOOL_OUTPUT_TOKENS)
            items = [{"type": "function_call_output", "call_id": call["call_id"], "output": output}]
    spent_us, wall_us = watch.read()
    cpu_us = [spent_us[name] for name in ("gateway", "engine", "client")]
    return Loop(turns, *cpu_us, wall_us, way.sent_bytes - sent, network_us)


def loops_of(
    ways: dict[str, OldWay | NewWay],
    watch: Watch,
    model: str,
    cell: Cell,
    repetitions: int,
    network_us: float = 0.0,
) -> dict[str, list[Loop]]:
    """Runs the same loop in each way, interleaved, each with a context that is new to engines."""
    loops: dict[str, list[Loop]] = {name: [] for name in ways}
    each = 8 if cell[1] == "one turn" else 1  # short ones are cheap, and vary more
    for repetition in range(repetitions * each):
        for number, (name, way) in enumerate(ways.items()):
            salt = 7 * (len(ways) * repetition + number) + 100_000 * CELLS.index(cell)
            loops[name].append(run_loop(way, watch, model, cell, salt, network_us))
    return loops


def rows_of(
    cell: Cell, instant: dict[str, list[Loop]], wafer: dict[str, list[Loop]], away_ms: float
) -> list[Row]:
    """Returns the figures of one kind of loop; what it costs is the same however far away."""
    name = f"{cell[0] // 1000}k of context, {cell[1]}"
    if away_ms:
        name = f"{away_ms:g} ms away, {name}"

    def row(
        what: str,
        unit: str,
        of: dict[str, Sequence[float]],
        goal: Goal | None,
        load: str,
        base: str = "old",
    ) -> Row:
        def per_turn(way: str, field: str) -> list[float]:
            loops = wafer[way] if what.startswith("first token") else instant[way]
            return [getattr(loop, field) / len(loop.turns) for loop in loops]

        return Row(
            name=f"{name}: {what}",
            unit=unit,
            values=of["new"],
            baseline=BASELINES[base],
            baseline_values=of[base],
            goal=goal,
            per="turn",
            cpu_us=per_turn("new", "gateway_us"),
            wall_us=per_turn("new", "wall_us"),
            baseline_cpu_us=per_turn(base, "gateway_us"),
            baseline_wall_us=per_turn(base, "wall_us"),
            load=load,
        )

    def of(loops: dict[str, list[Loop]], figure: Any) -> dict[str, Sequence[float]]:
        return {way: [figure(loop) for loop in them] for way, them in loops.items()}

    overhead = of(instant, lambda o: o.overhead_us / 1e3)
    ttft = of(wafer, lambda o: o.ttft_us / 1e3)
    first = [
        row("overhead", "ms", overhead, OVERHEAD, load_of(name, instant)),
        row("first token", "ms", ttft, FIRST, ""),
    ]
    for way in ("kept", "chained"):
        first.append(row(f"overhead, against {way}", "ms", overhead, None, "", way))
        first.append(row(f"first token, against {way}", "ms", ttft, None, "", way))
    if away_ms:
        return first
    cost = of(instant, lambda o: o.gateway_us / o.tokens)
    return [*first, row("cost", "CPU-us/token", cost, COST, "")]


def load_of(name: str, loops: dict[str, list[Loop]]) -> str:
    """Says how busy client and engine were: one turn is under way at a time, so nothing queues."""
    said = []
    for way, them in loops.items():
        turns = sum(len(loop.turns) for loop in them)
        client, engine = (
            sum(getattr(loop, field) for loop in them) / turns / 1e3
            for field in ("client_us", "engine_us")
        )
        kb = sum(loop.sent_bytes for loop in them) / turns / 1e3
        said.append(f"{way}: client {client:.1f} and engine {engine:.1f} CPU-ms, {kb:.1f} kB sent")
    network_us = statistics.median(loop.network_us for them in loops.values() for loop in them)
    if network_us:
        said.append(f"to open a TCP connection {network_us / 1e3:.1f} ms")
    return f"{name}, a turn, {'; '.join(said)}"


def measure(
    gateway: GatewayProcess, engine: int, asked: argparse.Namespace
) -> Iterator[tuple[Cell, dict[str, list[Loop]], dict[str, list[Loop]]]]:
    """Measures all cells, on both engines."""
    watch = Watch({"gateway": gateway.process.pid, "engine": engine, "client": os.getpid()})
    host = FAR if asked.away_ms else "127.0.0.1"
    network_us = round_trip_s(gateway.port) * 1e6 if asked.away_ms else 0.0
    assert gateway.trusting is not None
    url = gateway.socket_url.replace("127.0.0.1", host)
    with PlainSocket(url, gateway.trusting, HEADERS) as socket:
        every: dict[str, OldWay | NewWay] = {
            "old": OldWay(gateway, host),
            "kept": OldWay(gateway, host, keeps=True),
            "chained": OldWay(gateway, host, keeps=True, chains=True),
            "new": NewWay(socket),
        }
        ways = {name: way for name, way in every.items() if asked.way in (name, "all")}
        for model in (MODEL, WAFER):  # what is done once, no turn pays for
            loops_of(ways, watch, model, CELLS[0], 1)
        for number, cell in enumerate(CELLS):
            if asked.cell in (None, number):
                instant, wafer = (
                    loops_of(ways, watch, model, cell, asked.repetitions, network_us)
                    for model in (MODEL, WAFER)
                )
                yield cell, instant, wafer


@contextlib.contextmanager
def serving(folder: Path, redis_url: str) -> Iterator[tuple[GatewayProcess, int]]:
    """Gives a gateway over TLS with the instant and the simulated engines; and the first's id."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", FAR)
    certificate.private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    certificate.private_key_pem.write_to_path(folder / "server.key")
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    port = free_port()
    script = Path(__file__).with_name("firehose.py")
    engine = subprocess.Popen([sys.executable, str(script), "--port", str(port), "--instant"])
    limits = CONFIG.replace("6000", "1000000").replace("20000000", "1000000000000")
    first = limits.split("[[tenants]]")[1]  # the others' keys are too weak for a public address
    tenants = "[[tenants]]" + first.replace(DEVELOPMENT_KEY, KEY)
    simulated = '[[backends]]\nkind = "wafer"\n[[backends]]\nkind = "gpu"\n'
    config = folder / "lanewise.toml"
    config.write_text(TLS + tenants + simulated + BACKEND.format(port=port, model=MODEL))
    at = free_port()
    arguments = ("--config", str(config), "--redis", redis_url, "--host", "0.0.0.0")  # FAR, too
    gateway = GatewayProcess(
        folder, *arguments, "--admin-address", f"0.0.0.0:{at}", port=at, trusting=trusting
    )
    try:
        gateway.wait_until_ready()
        while not gateway.metrics().total("lanewise_backend_up", backend="firehose"):
            time.sleep(0.05)
        yield gateway, engine.pid
    finally:
        gateway.stop()
        engine.terminate()
        engine.wait()


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=5, help="of each loop, each way")
    parser.add_argument("--cell", type=int, help="one row of work only, from 0")
    parser.add_argument("--way", default="all", choices=("all", *BASELINES, "new"),
                        help="one way only, to look at: prints the gateway id")  # fmt: skip
    parser.add_argument("--away-ms", type=float, default=0.0,
                        help="so long a round trip away, over `distance.py`")  # fmt: skip
    shape.add_argument(parser)
    asked = parser.parse_args()
    with contextlib.ExitStack() as stack:
        if asked.away_ms:
            try:
                stack.enter_context(away(asked.away_ms / 2e3))
            except RuntimeError as error:
                print(f"left out: {error}", file=sys.stderr)
                shape.publish([], asked)
                return
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="lw-bench-"))
        url = stack.enter_context(redis_server(Path(name)))
        gateway, engine = stack.enter_context(serving(Path(name), url))
        if asked.way != "all":
            print(f"gateway {gateway.process.pid}", flush=True)
        measured = list(measure(gateway, engine, asked))
    if asked.way == "all":
        shape.publish([row for one in measured for row in rows_of(*one, asked.away_ms)], asked)
    else:
        for cell, instant, wafer in measured:
            for loops in (*instant.values(), *wafer.values()):
                us = [loop.gateway_us / len(loop.turns) for loop in loops]
                print(f"{cell}: {statistics.median(us):,.0f} CPU-us of the gateway a turn")


if __name__ == "__main__":
    main()
