"""Tests a task's trace in a collector: its steps, its generations, and the next gateway's part."""

import asyncio
import gzip
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.e2e.fronts import wait_for_backend
from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess, served
from tests.e2e.socket_client import SocketClient
from tests.threaded import serving

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
QUICK = {"OTEL_BSP_SCHEDULE_DELAY": "50"}  # OpenTelemetry's own: ms between two exports
UPSTREAM = """
[[backends]]
kind = "wafer"
name = "wafer"

[[backends]]
kind = "upstream"
name = "behind"
options.group = "deep"
options.model = "behind-deep"
options.upstream_model = "lanewise-deep"
options.base_url = "{url}"
options.key_env = "BEHIND_KEY"
options.protocol = "{protocol}"
"""


class Collector(ThreadingHTTPServer):
    """Takes spans as a collector does."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[Any] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/traces"

    def with_tasks(self, number: int) -> list[Any]:
        """Returns the trace's spans once so many tasks are among them; the test bounds the wait."""
        found: list[Any] = []
        while [span.name for span in found].count("task") < number:
            time.sleep(0.05)
            found = [span for span in list(self.spans) if span.trace_id.hex() == TRACE]
        return found


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            content = gzip.decompress(content)
        told = ExportTraceServiceRequest.FromString(content)
        assert isinstance(self.server, Collector)
        for resource in told.resource_spans:
            for scope in resource.scope_spans:
                self.server.spans += scope.spans
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing."""


@contextmanager
def collecting() -> Iterator[Collector]:
    with serving(Collector()) as collector:
        yield collector


@contextmanager
def started(folder: Path, collector: Collector, redis_url: str, more: str) -> Iterator[Any]:
    folder.mkdir()
    path = folder / "lanewise.toml"
    path.write_text(f'[tracing]\nendpoint = "{collector.url}"\nsample = 0\n{more}')
    environ = {**QUICK, "BEHIND_KEY": DEVELOPMENT_KEY}
    with served(folder, "--config", str(path), "--redis", redis_url, environ=environ) as gateway:
        yield gateway


@pytest.mark.parametrize("protocol", ["responses", "responses-ws"])
def test_a_parallel_task_is_one_trace(tmp_path: Path, redis_url: str, protocol: str) -> None:
    with (
        collecting() as collector,
        started(tmp_path / "behind", collector, redis_url, "") as behind,
        started(
            tmp_path / "front",
            collector,
            redis_url,
            UPSTREAM.format(url=behind.base_url, protocol=protocol),
        ) as front,
        OpenAI(base_url=front.base_url, api_key=DEVELOPMENT_KEY) as client,
    ):
        wait_for_backend(front, "behind", up=True)
        metadata = {"route": "parallel", "strategy": "breadth"}
        client.responses.create(model="auto", input="Hi.", metadata=metadata)  # not sampled
        client.responses.create(
            model="auto",
            input="Name a prime.",
            metadata=metadata,
            extra_headers={"traceparent": f"00-{TRACE}-{SPAN}-01"},
        )
        spans = collector.with_tasks(2)
        tasks = {span.span_id: span for span in spans if span.name == "task"}
        (own,) = (span for span in tasks.values() if span.parent_span_id.hex() == SPAN)
        (next_one,) = (span for span in tasks.values() if span.parent_span_id == own.span_id)
        parts = [span for span in spans if span.parent_span_id == own.span_id]
        assert {"queue", "load", "admit", "dispatch"} <= {span.name for span in parts}
        chats = {span.name for span in parts if span.name.startswith("chat ")}
        assert {"chat lanewise-fast", "chat behind-deep"} <= chats
        assert all(
            own.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
            for span in parts
        )
        assert abs(own.start_time_unix_nano / 1e9 - time.time()) < 300
        attributes = {each.key: each.value for each in own.attributes}
        assert attributes["lanewise.route"].string_value == "parallel"
        assert attributes["lanewise.outcome"].string_value == "ok"
        assert {span.trace_id.hex() for span in collector.spans} == {TRACE}
        assert next_one.span_id != own.span_id


async def test_a_socket_says_it_as_codex_does(tmp_path: Path, redis_url: str) -> None:
    with collecting() as collector, started(tmp_path / "one", collector, redis_url, "") as gateway:
        async with SocketClient.open(gateway) as client:
            told = {"ws_request_header_traceparent": f"00-{TRACE}-{SPAN}-01"}
            await client.turn("Hi.", max_output_tokens=16, client_metadata=told)
        await asyncio.to_thread(collector.with_tasks, 1)


def test_a_collector_that_is_away_harms_nobody(tmp_path: Path, redis_url: str) -> None:
    path = tmp_path / "lanewise.toml"
    url = "http://127.0.0.1:9/v1/traces"
    path.write_text(f'[tracing]\nendpoint = "{url}"\nsample = 1\ntimeout_s = 2\n')
    gateway = GatewayProcess(tmp_path, "--config", str(path), "--redis", redis_url, environ=QUICK)
    try:
        gateway.wait_until_ready()
        with OpenAI(base_url=gateway.base_url, api_key=DEVELOPMENT_KEY) as client:
            for _ in range(3):
                assert client.responses.create(model="lanewise-fast", input="Hi.").output_text
    finally:
        assert gateway.stop() == 0, gateway.log
