"""Tests what the doctor reads of a stream: whether it was whole, and what a refusal says."""

import http.server
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gateway.doctor.facts import NoFactError, stream_facts

CREATED = 'event: response.created\ndata: {"type":"response.created"}\n\n'
FAILED = '{"type":"response.failed","response":{"error":{"code":"x","message":"It is down."}}}'
NONE = '{"error":{"message":"There is no model \'m\'."}}'

# status, body, what is wrong; None: the answer is whole
STREAMS: list[tuple[int, str, str | None]] = [
    (200, f'{CREATED}data: {{"type":"response.completed"}}\n\n', None),
    (200, f'{CREATED}data: {{"type":"response.incomplete"}}\n\n', None),
    (200, f"{CREATED}data: {FAILED}\n\n", "a stream failed: It is down."),
    (200, CREATED, "a stream broke off before its answer was whole"),
    (200, "data: [DONE]\n\n", "a stream broke off before its answer was whole"),
    (200, "<html>\n", "a stream held no event"),
    (404, NONE, "a stream was refused with 404: There is no model 'm'."),
    (502, "<html>", "a stream was refused with 502"),
    (503, '{"error":"busy"}', "a stream was refused with 503"),
]


@contextmanager
def answering(status: int, body: str) -> Iterator[str]:
    """Gives a server's address that answers so."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(("status", "body", "fault"), STREAMS)
def test_a_stream(status: int, body: str, fault: str | None) -> None:
    context = ssl.create_default_context()
    with answering(status, body) as url:
        if fault is None:
            facts = stream_facts(url, "sk-mine-1234", "m", context)
            assert 0 <= facts.first_s <= facts.last_s
            return
        with pytest.raises(NoFactError) as caught:
            stream_facts(url, "sk-mine-1234", "m", context)
    assert str(caught.value) == fault
