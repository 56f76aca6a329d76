"""Offers an upstream that refuses all it is asked, in chat and Responses, on a thread.

It streams its refusal if it is asked for the model `streamed`, and writes it whole for `whole`.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.threaded import serving

PIECES = ("I ", "am sorry, ", "I cannot ", "help with that.")
REFUSAL = "".join(PIECES)
_USAGE = {"input_tokens": 11, "output_tokens": 9, "total_tokens": 20}


class RefusingUpstream(ThreadingHTTPServer):
    """Keeps the bodies that came."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.bodies: list[dict[str, Any]] = []

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Answers(BaseHTTPRequestHandler):
    server: RefusingUpstream
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._send("application/json", b'{"data":[]}')

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.bodies.append(body)
        is_chat = self.path.endswith("/chat/completions")
        if body["model"] == "whole":
            whole = _completion() if is_chat else _response("completed")
            self._send("application/json", json.dumps(whole).encode())
            return
        events = _chunks() if is_chat else _events()
        written = [f"data: {json.dumps(event)}\n\n".encode() for event in events]
        self._send("text/event-stream", b"".join(written))

    def _send(self, kind: str, content: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


def _completion() -> dict[str, Any]:
    message = {"role": "assistant", "content": None, "refusal": REFUSAL}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"object": "chat.completion", "choices": [choice], "usage": _chat_usage()}


def _chunks() -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": "", "refusal": None}]
    deltas += [{"refusal": piece} for piece in PIECES]
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": _chat_usage()}
    return [*chunks, end]


def _chat_usage() -> dict[str, int]:
    return {"prompt_tokens": 11, "completion_tokens": 9, "total_tokens": 20}


def _message(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": [*parts]}


def _response(status: str) -> dict[str, Any]:
    response = {"id": "resp_1", "object": "response", "status": status, "output": []}
    if status == "completed":
        said = _message({"type": "refusal", "refusal": REFUSAL})
        response |= {"output": [said], "usage": _USAGE}
    return response


def _events() -> list[dict[str, Any]]:
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    begun, whole = ({"type": "refusal", "refusal": text} for text in ("", REFUSAL))
    return [
        {"type": "response.created", "response": _response("in_progress")},
        {"type": "response.output_item.added", "output_index": 0, "item": _message()},
        {"type": "response.content_part.added", **at, "part": begun},
        *({"type": "response.refusal.delta", **at, "delta": piece} for piece in PIECES),
        {"type": "response.refusal.done", **at, "refusal": REFUSAL},
        {"type": "response.content_part.done", **at, "part": whole},
        {"type": "response.output_item.done", "output_index": 0, "item": _message(whole)},
        {"type": "response.completed", "response": _response("completed")},
    ]


@contextmanager
def refusing_upstream() -> Iterator[RefusingUpstream]:
    """Serves until the context ends."""
    with serving(RefusingUpstream()) as server:
        yield server
