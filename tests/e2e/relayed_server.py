"""Offers a server of embeddings and legacy completions, on a thread, whose reports can be set.

Its list of models, by which upstreams are probed, is empty.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.threaded import serving

KEY = "sk-of-the-relay"
WORDS = ("One, ", "two, ", "three.")


class RelayedServer(ThreadingHTTPServer):
    """Answers with `status`, and `message` or `usage`; `bodies` are the requests that came."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.status = 200
        self.message = f"no {KEY}"  # of its errors
        self.usage: Any = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        self.bodies: list[dict[str, Any]] = []
        self.said: dict[str, Any] | None = None  # in place of any answer, as one object
        self.param = "input"  # that its errors name
        self.odd: dict[str, Any] | None = None  # an event between the first word and the others
        self.indent: int | None = None  # of its answers and events, which then have many lines
        self.breaks_off = False  # after the first word of a stream
        self.may_answer = threading.Event()  # until then requests wait
        self.may_answer.set()


class _Answers(BaseHTTPRequestHandler):
    server: RelayedServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._send_json({"data": []})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.bodies.append(body)
        self.server.may_answer.wait()
        if self.headers["authorization"] != f"Bearer {KEY}" or self.server.status != 200:
            status = 401 if self.server.status == 200 else self.server.status
            error = {"message": self.server.message, "type": "x"}
            error |= {"code": "invalid_value", "param": self.server.param}
            self._send(status, "application/json", [json.dumps({"error": error}).encode()])
        elif self.server.said is not None:
            self._send_json(self.server.said)
        elif self.path == "/v1/embeddings":
            data = [{"object": "embedding", "index": 0, "embedding": [0.5, -0.25]}]
            answer = {"object": "list", "data": data, "model": body["model"]}
            self._send_json(answer | {"usage": self.server.usage})
        elif body.get("stream"):
            chunks = [{"model": body["model"], "choices": [{"text": word}]} for word in WORDS]
            if self.server.odd is not None:
                chunks.insert(1, self.server.odd)
            if body["stream_options"]["include_usage"]:
                chunks.append({"choices": [], "usage": self.server.usage})
            texts = [json.dumps(each, indent=self.server.indent) for each in chunks]
            lines = [text.replace("\n", "\ndata: ") for text in texts]
            events = [f"data: {each}\n\n".encode() for each in lines]
            self._send(200, "text/event-stream", [*events, b"data: [DONE]\n\n"])
        else:
            choices = [{"index": 0, "text": "".join(WORDS), "finish_reason": "stop"}]
            self._send_json(
                {"model": body["model"], "choices": choices, "usage": self.server.usage}
            )

    def _send_json(self, answer: dict[str, Any]) -> None:
        text = json.dumps(answer, indent=self.server.indent)
        self._send(200, "application/json", [text.encode()])

    def _send(self, status: int, kind: str, pieces: list[bytes]) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(sum(map(len, pieces))))
        self.end_headers()
        for piece in pieces:
            self.wfile.write(piece)
            self.wfile.flush()
            if self.server.breaks_off:
                self.close_connection = True
                return

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@contextmanager
def relayed_server() -> Iterator[RelayedServer]:
    """Serves until the context ends."""
    with serving(RelayedServer()) as server:
        yield server
