"""Serves the simulated wafer alone, by the least OpenAI-compatible server to be measured.

    python tests/bench/others/engine_server.py --port 9000

`GET /v1/models` and `POST /v1/chat/completions`, streamed or not, straight from the backend: no
keys, limits, router or Redis. What it takes longer behind the gateway is the gateway's.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import uvloop

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from backends.contract import (  # noqa: E402
    Delta,
    Extras,
    Finish,
    GenerateRequest,
    Message,
    TextFormat,
    TextPart,
)
from backends.prompt import measure, prompt_size  # noqa: E402
from backends.simulated.wafer import WaferBackendConfig  # noqa: E402

MODEL = "lanewise-fast"
JSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
SSE_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


class QueueSink:
    """Hands what the engine pushes to the connection that waits for it."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Delta | Finish] = asyncio.Queue()

    def push(self, delta: Delta) -> None:
        self.queue.put_nowait(delta)

    def finish(self, finish: Finish) -> None:
        self.queue.put_nowait(finish)


def generate_request(number: int, body: dict[str, Any]) -> GenerateRequest:
    items = tuple(measure(Message(m["role"], (_text(m["content"]),))) for m in body["messages"])
    num_tokens, prefix = prompt_size(None, (), TextFormat(), items)
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or 1_000
    extras = Extras(
        min_tokens=body.get("min_tokens") or 0, ignore_eos=body.get("ignore_eos") is True
    )
    return GenerateRequest(
        id=f"request-{number}",
        model=MODEL,
        items=items,
        num_prompt_tokens=num_tokens,
        prefix=prefix,
        max_output_tokens=limit,
        extras=extras,
    )


def _text(content: Any) -> TextPart:
    parts = content if isinstance(content, list) else [{"text": content}]
    return TextPart("".join(part.get("text", "") for part in parts))


def _chunk(number: int, delta: dict[str, str], reason: str | None, usage: Any = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    chunk = {"id": f"chat-{number}", "object": "chat.completion.chunk", "created": 0}
    chunk |= {"model": MODEL, "choices": [choice], **({"usage": usage} if usage else {})}
    data = f"data: {json.dumps(chunk)}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


class Server:
    """Answers connections, one request after the other on each."""

    def __init__(self) -> None:
        self._backend = WaferBackendConfig().make()
        self._number = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.decode().split("\r\n")
                fields = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
                body = await reader.readexactly(int(fields.get("content-length", 0)))
                if lines[0].startswith("POST"):
                    await self._answer(json.loads(body), writer)
                else:
                    _json(writer, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _answer(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        self._number += 1
        number, sink, text = self._number, QueueSink(), ""
        self._backend.start(generate_request(number, body), sink)
        if streams := body.get("stream") is True:
            writer.write(SSE_HEAD)
        while isinstance(pushed := await sink.queue.get(), Delta):
            text += pushed.text
            if streams:
                writer.write(_chunk(number, {"content": pushed.text}, None))
        tokens = (pushed.usage.num_input_tokens, pushed.usage.num_output_tokens)
        usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]}
        usage["total_tokens"] = sum(tokens)
        if streams:
            writer.write(_chunk(number, {"content": ""}, pushed.reason.value, usage))
            writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
            return
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": pushed.reason.value}
        _json(writer, {"object": "chat.completion", "choices": [choice], "usage": usage})


def _json(writer: asyncio.StreamWriter, document: Any) -> None:
    body = json.dumps(document).encode()
    writer.write(JSON_HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    server = await asyncio.start_server(Server().serve, "127.0.0.1", parser.parse_args().port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
