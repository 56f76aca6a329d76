"""Answers that break off or stall at any token: within 2 s they go on, and they end whole.

Both engines are chat servers on loopback that take an answer's first words. One of them breaks, or
falls silent, where its prompt says; over SSE, a socket, chat completions, JSON and in background.
"""

import asyncio
import contextlib
import itertools
import json
import random
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

from tests.accept.connections import KEY
from tests.e2e.gateway_process import GatewayProcess

WORDS = [f"w{number} " for number in range(39)] + ["end."]
TEXT = "".join(WORDS)
TOKEN_S = 0.03
BROKEN_S = 2.0  # from the last word before a break to the next
STALLED_S = 3.0 + 2.0  # from the last word before a stall to the next
SEED = 1122
BACKEND = """
[[backends]]
kind = "upstream"
name = "{group}"

[backends.options]
group = "{group}"
model = "{group}-model"
upstream_model = "{group}"
base_url = "{url}/{group}/v1"
prefill = "last_message"
probe_path = "/models"
eject_after = 1000000
"""
RUNS: dict[str, dict[str, str]] = {
    "fast": {"route": "fast"},
    "deep": {"route": "deep"},
    "hedge": {"route": "parallel", "strategy": "hedge"},
    "breadth": {"route": "parallel", "strategy": "breadth", "n": "2", "judge": "false"},
    "delegate": {"route": "parallel", "strategy": "delegate"},
}
WIRES = ("sse", "socket", "chat", "json", "background")
Heard = tuple[str, float, dict[str, Any]]  # the text, its longest silence, the routing


def main() -> bool:
    """Every run at random places, each over another wire; prints what went wrong."""
    chance = random.Random(SEED)
    print(f"seed {SEED}")
    with tempfile.TemporaryDirectory(prefix="lw-continued-") as name:
        return asyncio.run(_measure(Path(name), chance))


async def _measure(folder: Path, chance: random.Random) -> bool:
    async with _engines() as url:
        config = folder / "gateway.toml"
        config.write_text(
            "".join(BACKEND.format(group=group, url=url) for group in ("fast", "deep"))
        )
        process = await asyncio.to_thread(_started, folder, config)
        try:
            faults = []
            for run, metadata in RUNS.items():
                group = "deep" if run in ("deep", "hedge") else "fast"
                for wire in WIRES:
                    for fault, limit_s in (("break", BROKEN_S), ("stall", STALLED_S)):
                        place = chance.randrange(1, len(WORDS))
                        ask = f"{group} {fault} {place}"
                        faults += await asyncio.to_thread(
                            _check, process, run, metadata, wire, ask, limit_s
                        )
            print(
                "\n".join(faults) or f"{len(RUNS) * len(WIRES) * 2} answers went on and were whole"
            )
            return not faults
        finally:
            await asyncio.to_thread(process.stop)


def _started(folder: Path, config: Path) -> GatewayProcess:
    process = GatewayProcess(folder, "--config", str(config))
    process.wait_until_ready()
    return process


def _check(
    process: GatewayProcess, run: str, metadata: dict[str, str], wire: str, ask: str, limit_s: float
) -> list[str]:
    text, silent_s, routing = _HEARING[wire](process, ask, metadata)
    which = f"{run} over {wire}, {ask}"
    wanted = [TEXT, TEXT * 2] if run == "breadth" else [TEXT]
    found = []
    if text.replace("\n", "") not in wanted:
        found.append(f"{which}: not whole: {text!r}")
    if silent_s > limit_s:
        found.append(f"{which}: silent for {silent_s:.1f} s")
    num_broken = 2 if run == "breadth" else 1  # variations
    if wire != "chat" and len(routing.get("continued", ())) != num_broken:
        found.append(f"{which}: {routing.get('continued')}")
    return found


def _posted(process: GatewayProcess, path: str, body: dict[str, Any] | None) -> Iterator[bytes]:
    data = None if body is None else json.dumps(body).encode()
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    request = urllib.request.Request(f"{process.base_url}{path}", data, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        yield from answer


def _silence(times: list[float]) -> float:
    return max((after - before for before, after in itertools.pairwise(times)), default=0)


def _events(messages: Iterator[str | bytes]) -> Heard:
    times, last = [], {}
    for message in messages:
        event = json.loads(message)
        if event["type"] == "response.output_text.delta":
            times.append(time.monotonic())
        last = event
        if event["type"] in (
            "response.completed",
            "response.failed",
            "response.incomplete",
            "error",
        ):
            break
    return (
        *_said(last.get("response", {})),
        _silence(times),
        last.get("response", {}).get("routing", {}),
    )  # type: ignore[return-value]


def _said(response: dict[str, Any]) -> tuple[str]:
    items = [item for item in response.get("output", ()) if item["type"] == "message"]
    return ("".join(part["text"] for item in items for part in item["content"]),)


def _over_sse(process: GatewayProcess, ask: str, metadata: dict[str, str]) -> Heard:
    body = {"model": "auto", "input": ask, "metadata": metadata, "stream": True}
    lines = _posted(process, "/responses", body)
    return _events(line[6:] for line in lines if line.startswith(b"data: {"))


def _over_socket(process: GatewayProcess, ask: str, metadata: dict[str, str]) -> Heard:
    headers = {"authorization": f"Bearer {KEY}"}
    with connect(process.socket_url, additional_headers=headers) as socket:
        body = {"type": "response.create", "model": "auto", "input": ask, "metadata": metadata}
        socket.send(json.dumps(body))
        return _events(iter(socket))


def _over_chat(process: GatewayProcess, ask: str, metadata: dict[str, str]) -> Heard:
    messages = [{"role": "user", "content": ask}]
    body = {"model": "auto", "messages": messages, "metadata": metadata, "stream": True}
    times, texts = [], []
    for line in _posted(process, "/chat/completions", body):
        if line.startswith(b"data: {"):
            delta = (json.loads(line[6:]).get("choices") or [{"delta": {}}])[0]["delta"]
            if delta.get("content"):
                times.append(time.monotonic())
                texts.append(delta["content"])
    return "".join(texts), _silence(times), {}


def _as_json(process: GatewayProcess, ask: str, metadata: dict[str, str]) -> Heard:
    body = {"model": "auto", "input": ask, "metadata": metadata}
    response = json.loads(b"".join(_posted(process, "/responses", body)))
    return (*_said(response), 0.0, response["routing"])


def _in_background(process: GatewayProcess, ask: str, metadata: dict[str, str]) -> Heard:
    body = {"model": "auto", "input": ask, "metadata": metadata, "background": True}
    response = json.loads(b"".join(_posted(process, "/responses", body)))
    until_s = time.monotonic() + 30
    while response["status"] in ("queued", "in_progress") and time.monotonic() < until_s:
        time.sleep(0.1)
        response = json.loads(b"".join(_posted(process, f"/responses/{response['id']}", None)))
    return (*_said(response), 0.0, response.get("routing") or {})


_HEARING = dict(
    zip(WIRES, (_over_sse, _over_socket, _over_chat, _as_json, _in_background), strict=True)
)


# -- the engines -----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _engines() -> AsyncIterator[str]:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            if head.startswith("GET"):
                body = b'{"data":[]}'
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
                continue
            lengths = [
                line for line in head.lower().splitlines() if line.startswith("content-length")
            ]
            asked = json.loads(await reader.readexactly(int(lengths[0].split(":")[1])))
            await _say(reader, writer, head.split("/")[1], asked["messages"])
    writer.close()


async def _say(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    group: str,
    messages: list[dict[str, Any]],
) -> None:
    """Says the words behind those of the last message, as far as its prompt lets it."""
    is_begun = messages[-1]["role"] == "assistant"
    said = messages[-1]["content"] if is_begun else ""
    prompt = next(m["content"] for m in reversed(messages) if m["role"] == "user")
    at, fault, place = prompt.split()[:3]
    assert TEXT.startswith(said), said
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    writer.write(head)
    for number, word in enumerate(WORDS[len(said.split()) :]):
        if not is_begun and at == group and number == int(place):
            if fault == "stall":
                await reader.read(1)  # until the other side leaves
            writer.transport.abort()
            return
        await _send(writer, {"choices": [{"index": 0, "delta": {"content": word}}]})
        await asyncio.sleep(TOKEN_S)
    await _send(writer, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
    await writer.drain()


async def _send(writer: asyncio.StreamWriter, chunk: dict[str, Any]) -> None:
    data = b"data: " + json.dumps(chunk).encode() + b"\n\n"
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))
    await writer.drain()


if __name__ == "__main__":
    raise SystemExit(not main())
