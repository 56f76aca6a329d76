"""Tests the proxies' example configurations, started before a gateway: sockets and streams."""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_network
from pathlib import Path

import httpx
import pytest
from openai import OpenAI

from gateway.transport.client_address import forwarded_address
from tests.e2e.gateway_process import DEVELOPMENT_KEY, ROOT, GatewayProcess
from tests.e2e.socket_client import SocketClient, text_of
from tests.ports import free_port

PROXIES = ROOT / "deploy" / "proxies"
UP_TIMEOUT_S = 60.0  # bounds a hang


class Proxied:
    """Says where a proxy listens, as clients of a gateway want it."""

    trusting = None

    def __init__(self, port: int) -> None:
        self.base_url = f"http://127.0.0.1:{port}/v1"
        self.socket_url = f"ws://127.0.0.1:{port}/v1/responses"


def command(name: str, folder: Path, path: Path) -> list[str]:
    """Says how it is started in the foreground; the test is skipped where it is not there."""
    search = os.pathsep.join(
        (str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin", "/sbin")
    )
    program = shutil.which(name, path=search)
    if program is None:
        pytest.skip(f"no {name} on this machine")
    if name == "haproxy":
        return [program, "-db", "-f", str(path)]
    if name == "nginx":
        own = f"daemon off; pid {folder / 'pid'}; error_log {folder / 'errors'};"
        return [program, "-p", str(folder), "-c", str(path), "-g", own]
    return [program, "-c", str(path), "--use-dynamic-base-id", "--log-level", "warn"]


EXAMPLES = ["haproxy.cfg", "nginx.conf", "envoy.yaml"]


@pytest.fixture(params=EXAMPLES)
def proxy(
    request: pytest.FixtureRequest, tmp_path: Path, gateway: GatewayProcess
) -> Iterator[Proxied]:
    """Gives a proxy before the gateway."""
    with proxied(request.param, tmp_path, gateway.port) as proxy:
        yield proxy


@contextlib.contextmanager
def proxied(example: str, tmp_path: Path, gateway_port: int) -> Iterator[Proxied]:
    """Gives the example with ports of this machine: one gateway lives, two do not."""
    port = free_port()
    ports = {"8000": port, "8081": free_port(), "8082": gateway_port, "8083": free_port()}

    def own(found: "re.Match[str]") -> str:
        return found[1] + str(ports[found[2]])

    text = (PROXIES / example).read_text()
    text = re.sub(r"(127\.0\.0\.1(?::|, port_value: ))(80\d\d)", own, text)
    path = tmp_path / example
    path.write_text(text)
    begun = command(example.partition(".")[0], tmp_path, path)  # it skips where there is none
    log = (tmp_path / "log").open("wb")
    process = subprocess.Popen(begun, stdout=log, stderr=log, cwd=tmp_path)
    try:
        deadline = time.monotonic() + UP_TIMEOUT_S
        while True:
            assert process.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield Proxied(port)
    finally:
        process.terminate()
        process.wait()
        log.close()


def _ready(proxy: Proxied) -> OpenAI:
    """Returns a client, once the proxy knows which gateway lives."""
    client = OpenAI(base_url=proxy.base_url, api_key=DEVELOPMENT_KEY, max_retries=0)
    deadline = time.monotonic() + UP_TIMEOUT_S
    while True:
        try:
            client.models.list()
            return client
        except Exception:
            assert time.monotonic() < deadline
            time.sleep(0.1)


async def test_turns_and_streams_pass_and_dead_gateways_are_gone_around(proxy: Proxied) -> None:
    with _ready(proxy) as client:
        for _ in range(3):  # two of three gateways are dead
            client.models.list()
        events = list(
            client.responses.create(
                model="lanewise-fast", input="Hi.", max_output_tokens=16, stream=True
            )
        )
    assert len(events) > 4, "a stream, and not all at once"
    assert events[-1].type in ("response.completed", "response.incomplete")
    async with SocketClient.open(proxy) as connection:  # type: ignore[arg-type]
        first = await connection.turn("My name is Ada.", max_output_tokens=16)
        second = await connection.turn(
            "And?", previous_response_id=first["id"], max_output_tokens=16
        )
    assert text_of(first)
    assert second["previous_response_id"] == first["id"]


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_client_cannot_choose_its_address(example: str, tmp_path: Path) -> None:
    seen: list[Message] = []

    class Gateway(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/v1/models":
                seen.append(self.headers)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Gateway)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    forged = {"forwarded": "for=203.0.113.7", "x-forwarded-for": "203.0.113.8"}
    try:
        with proxied(example, tmp_path, server.server_port) as proxy:
            deadline = time.monotonic() + UP_TIMEOUT_S
            while not seen:
                assert time.monotonic() < deadline
                with contextlib.suppress(httpx.TransportError):
                    httpx.get(f"{proxy.base_url}/models", headers=forged)
    finally:
        server.shutdown()
        server.server_close()
    headers = [(name.lower().encode(), value.encode()) for name, value in seen[0].items()]
    trusted = [ip_network("10.0.0.0/8")]
    address = forwarded_address(headers, trusted)  # Envoy says this machine's for a loopback one
    assert address is not None
    assert not address.startswith("203.0.113.")
