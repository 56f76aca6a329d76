"""Compares a turn on a warm socket with the same turn cold: when its first token comes.

    python tests/bench/warm.py [--repetitions 9] [--json FILE]

Starts a gateway over TLS with the default simulated engines, embedded Redis included. Cold: a new
connection, TLS handshake included, and one POST with the whole context, which no engine has seen.
Warm: a socket that is open, on which the context was sent ahead with `generate: false`; the turn
brings its ask alone. Each is timed from the moment the client begins (the cold one with connecting)
until the first `response.output_text.delta` is there. Both are run in turns, each repetition with a
context of its own, at 1,000 and 30,000 tokens. The goal is half the time at most. Takes about two
minutes, most of it the deep engine's prefills.
"""

import argparse
import http.client
import json
import platform
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import trustme

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench import rows as shape  # noqa: E402
from tests.bench.firehose import Text  # noqa: E402
from tests.bench.headline import HEADERS, KEY, TLS, read_turn  # noqa: E402
from tests.bench.plain_socket import PlainSocket  # noqa: E402
from tests.bench.rows import Row, less_by  # noqa: E402
from tests.e2e.gateway_process import CONFIG, DEVELOPMENT_KEY, GatewayProcess, served  # noqa: E402

MODELS = {"fast": "lanewise-fast", "deep": "lanewise-deep"}
CONTEXTS_TOKENS = (1_000, 30_000)
PROMPT = "In one word: is that so?"
MAX_OUTPUT_TOKENS = 16
GOAL = less_by(50)


def context(number: int, tokens: int) -> dict[str, Any]:
    """Returns a user message of that length that begins as no other does."""
    text = f"Document {number} of {time.time_ns()}.\n" + Text().piece(number, tokens)
    return {"role": "user", "content": text}


def cold_ms(gateway: GatewayProcess, model: str, number: int, tokens: int) -> float:
    """Times one request as clients without a socket make it."""
    items = [context(number, tokens), {"role": "user", "content": PROMPT}]
    body = {"model": model, "input": items, "store": False, "stream": True}
    payload = json.dumps({**body, "max_output_tokens": MAX_OUTPUT_TOKENS}).encode()
    started_s = time.perf_counter()
    connection = http.client.HTTPSConnection("127.0.0.1", gateway.port, context=gateway.trusting)
    connection.request("POST", "/v1/responses", payload, HEADERS)
    with connection.getresponse() as answer:
        assert answer.status == 200, answer.read()
        lines = (line[6:] for line in answer if line.startswith(b"data: "))
        return first_token_ms(lines, started_s)


def warm_ms(socket: PlainSocket, model: str, number: int, tokens: int) -> float:
    """Times one turn behind a warm-up that was done before."""
    create = {"type": "response.create", "model": model, "store": False}
    warm_up = {**create, "input": [context(number, tokens)], "generate": False}
    socket.send(json.dumps(warm_up))
    response_id = read_turn(iter(socket.recv, None), 0).response_id
    turn = {**create, "input": PROMPT, "previous_response_id": response_id}
    payload = json.dumps({**turn, "max_output_tokens": MAX_OUTPUT_TOKENS})
    started_s = time.perf_counter()
    socket.send(payload)
    return first_token_ms(iter(socket.recv, None), started_s)


def first_token_ms(events: Any, started_s: float) -> float:
    """Follow a response to its end; milliseconds to its first token."""
    ttft_s = 0.0
    for event in events:
        text = event.decode() if isinstance(event, bytes) else event
        if not ttft_s and '.delta"' in text[:64]:
            ttft_s = time.perf_counter() - started_s
        elif text.startswith(('{"type":"response.completed"', '{"type":"response.incomplete"')):
            assert ttft_s, text
            return ttft_s * 1e3
        assert not text.startswith(('{"type":"error"', '{"type":"response.failed"')), text
    raise AssertionError("the response did not end")


def measure(gateway: GatewayProcess, repetitions: int) -> list[Row]:
    """Measures all rows; cold and warm in turns, after one of each that is not counted."""
    found = []
    assert gateway.trusting is not None
    with PlainSocket(gateway.socket_url, gateway.trusting, HEADERS) as socket:
        for engine, model in MODELS.items():
            for tokens in CONTEXTS_TOKENS:
                cold, warm = [], []
                for number in range(repetitions + 1):
                    cold.append(cold_ms(gateway, model, 2 * number, tokens))
                    warm.append(warm_ms(socket, model, 2 * number + 1, tokens))
                found.append(row(f"warm turn, {engine}, {tokens // 1000}k", warm[1:], cold[1:]))
    return found


def row(name: str, warm: list[float], cold: list[float]) -> Row:
    """Compares first token with first token."""
    return Row(
        name=name,
        unit="ms to first token",
        values=warm,
        baseline="cold HTTP",
        baseline_values=cold,
        goal=GOAL,
    )


def rows(repetitions: int) -> list[Row]:
    """Start a gateway over TLS, measure, stop it."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with tempfile.TemporaryDirectory(prefix="lw-warm-") as name:
        folder = Path(name)
        certificate.private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
        certificate.private_key_pem.write_to_path(folder / "server.key")
        config = folder / "lanewise.toml"
        config.write_text(TLS + CONFIG.replace(DEVELOPMENT_KEY, KEY))
        with served(folder, "--config", str(config), trusting=trusting) as gateway:
            return measure(gateway, repetitions)


def main() -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=9, help="of each, interleaved")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    shape.add_argument(parser)
    arguments = parser.parse_args()
    if arguments.repetitions < 1:
        parser.error("at least one repetition, please")
    measured = rows(arguments.repetitions)
    shape.publish(measured, arguments)
    if arguments.json is not None:
        commit = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout.strip()
        report = {
            "commit": commit,
            "machine": platform.platform(),
            "rows": [each.as_json() for each in measured],
        }
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
