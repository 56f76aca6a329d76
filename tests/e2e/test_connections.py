"""Tests silent, slow and numerous connections: they are cut, and nobody else notices."""

import contextlib
import resource
import socket
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.e2e.gateway_process import CONFIG, DEVELOPMENT_KEY, NARROW_KEY, GatewayProcess, served

# As in production, but for seconds: a test waits for the cut, and no time decides it.
SHORT = """
[server]
trusted_proxies = ["127.0.0.2/32"]
[connections]
max_per_key = 4
max_per_address = 8
without_key_s = 2.0
handshake_s = 1.0
head_s = 1.0
body_s = 1.0
body_bytes_per_s = 1000000
"""
PATIENCE_S = 40.0  # until a connection that is to be cut is cut; bounds a hang
MAX_DESCRIPTORS = 160


@pytest.fixture(scope="module")
def bounded(folder: Path, redis_url: str) -> Iterator[GatewayProcess]:
    path = folder / "connections.toml"
    path.write_text(SHORT + CONFIG)
    with served(folder, "--config", str(path), "--redis", redis_url) as process:
        yield process
        assert "Traceback" not in process.log


def connected(
    gateway: GatewayProcess, sent: bytes = b"", source: str = "127.0.0.1"
) -> socket.socket:
    made = socket.create_connection(
        ("127.0.0.1", gateway.port), PATIENCE_S, source_address=(source, 0)
    )
    made.sendall(sent)
    return made


def all_of(connection: socket.socket) -> bytes:
    """Returns what comes until the other side closes; fails if it never does."""
    arrived = b""
    with contextlib.suppress(ConnectionResetError), connection:
        while piece := connection.recv(65_536):
            arrived += piece
    return arrived


def until(connection: socket.socket, wanted: bytes) -> bytes:
    """Returns what comes until it ends so."""
    arrived = b""
    while not arrived.endswith(wanted):
        piece = connection.recv(65_536)
        assert piece, arrived
        arrived += piece
    return arrived


HEALTHY = b'{"status":"ok"}'
POST = (
    b"POST /v1/responses HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %s\r\n"
    b"content-length: 1000\r\n\r\n{" % DEVELOPMENT_KEY.encode()
)
GET = b"GET /healthz HTTP/1.1\r\nhost: x\r\n%s\r\n"
MODELS = GET.replace(b"/healthz", b"/v1/models") % (
    b"authorization: Bearer %s\r\n" % DEVELOPMENT_KEY.encode()
)


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"", "no_key"),
        (b"GET / HTTP/1.1\r\nhost: x\r\n", "head"),
        (GET.replace(b"%s", b"upgrade: websocket\r\n"), "no_key"),
        (POST, "body"),
        (POST.replace(DEVELOPMENT_KEY.encode(), b"wrong"), None),
    ],
    ids=["silent", "half a head", "an upgrade without a key", "half a body", "a wrong key"],
)
def test_what_is_silent_is_cut(bounded: GatewayProcess, sent: bytes, why: str | None) -> None:
    all_of(connected(bounded, sent))
    if why is not None:
        name = "lanewise_connections_cut_total"
        assert bounded.metrics().total(name) > 0


def test_a_connection_without_a_key_ends_between_two_requests(bounded: GatewayProcess) -> None:
    arrived = all_of(connected(bounded, GET % b""))
    assert arrived.endswith(HEALTHY)


def test_the_oldest_silent_connection_of_an_address_gives_way(bounded: GatewayProcess) -> None:
    silent = [connected(bounded) for _ in range(20)]
    with urllib.request.urlopen(f"{bounded.url}/healthz", timeout=PATIENCE_S) as answer:
        assert answer.status == 200
    for each in silent:
        assert all_of(each) == b""
    assert bounded.metrics().total("lanewise_connections_cut_total", reason="address") >= 12


def test_a_key_has_so_many_connections(bounded: GatewayProcess) -> None:
    kept = [connected(bounded, MODELS) for _ in range(4)]
    for each in kept:
        assert until(each, b"}]}").startswith(b"HTTP/1.1 200")
    with connected(bounded, MODELS) as refused:
        arrived = until(refused, b"}}")
    assert arrived.startswith(b"HTTP/1.1 429")
    assert b"This key has 4 connections open" in arrived
    assert b"retry-after: 1" in arrived
    theirs = MODELS.replace(DEVELOPMENT_KEY.encode(), NARROW_KEY.encode())
    with connected(bounded, theirs) as another:
        assert until(another, b"}]}").startswith(b"HTTP/1.1 200"), "another tenant's first key"
    for each in kept:
        each.close()


@pytest.mark.parametrize(
    ("proxy", "header"),
    [
        (b"PROXY TCP4 203.0.113.7 10.0.0.1 80 443\r\n", b""),
        (b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + bytes(12), b""),
        (b"", b"forwarded: for=203.0.113.8\r\n"),
        (b"", b"x-forwarded-for: 203.0.113.9\r\n"),
    ],
    ids=["version 1", "version 2", "Forwarded", "X-Forwarded-For"],
)
def test_a_trusted_proxy_names_the_address(
    bounded: GatewayProcess, proxy: bytes, header: bytes
) -> None:
    before = bounded.metrics().total("lanewise_connections_cut_total", reason="address")
    request = proxy + GET % header
    made = []
    for _ in range(10):
        made.append(connected(bounded, request, source="127.0.0.2"))
        until(made[-1], HEALTHY)
    after = bounded.metrics().total("lanewise_connections_cut_total", reason="address")
    assert after == before + 2  # the ninth and the tenth took the place of two that waited
    for each in made:
        each.close()


def test_what_anybody_else_says_of_addresses_is_ignored(bounded: GatewayProcess) -> None:
    arrived = all_of(connected(bounded, b"PROXY TCP4 203.0.113.7 10.0.0.1 80 443\r\n" + GET % b""))
    assert arrived.startswith(b"HTTP/1.1 400")
    before = bounded.metrics().total("lanewise_connections_cut_total", reason="address")
    for number in range(9):
        with connected(bounded, GET % b"x-forwarded-for: 203.0.113.%d\r\n" % number) as each:
            until(each, HEALTHY)
    after = bounded.metrics().total("lanewise_connections_cut_total", reason="address")
    assert after == before


def test_a_head_is_bounded(bounded: GatewayProcess) -> None:
    with connected(bounded, b"GET / HTTP/1.1\r\nhost: x\r\ncookie: ") as made:
        with contextlib.suppress(OSError):  # it closes while we send
            for _ in range(64):
                made.sendall(b"x" * 65_536)
        with contextlib.suppress(ConnectionResetError):
            assert made.recv(65_536).startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize("name", [b"Host", b"authorization"])
@pytest.mark.parametrize("upgrade", [b"", b"upgrade: websocket\r\nconnection: upgrade\r\n"])
def test_who_asks_is_said_once(bounded: GatewayProcess, name: bytes, upgrade: bytes) -> None:
    twice = name + b": Bearer " + DEVELOPMENT_KEY.encode() + b"\r\n"
    arrived = all_of(connected(bounded, GET % (upgrade + twice + twice)))
    assert arrived.startswith(b"HTTP/1.1 400")
    assert b"at most one Authorization" in arrived


def test_with_few_descriptors_health_is_answered(folder: Path, redis_url: str) -> None:
    """The limit is the process's own: a command sets it before it becomes the gateway."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard > MAX_DESCRIPTORS
    process = GatewayProcess(folder, "--redis", redis_url)
    resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE, (MAX_DESCRIPTORS,) * 2)
    silent: list[socket.socket] = []
    try:
        process.wait_until_ready()
        with connected(process, MODELS) as known:
            assert until(known, b"}]}").startswith(b"HTTP/1.1 200")
            silent += [connected(process) for _ in range(MAX_DESCRIPTORS + 20)]
            with urllib.request.urlopen(f"{process.url}/healthz", timeout=PATIENCE_S) as answer:
                assert answer.status == 200
            known.sendall(MODELS)
            assert until(known, b"}]}").startswith(b"HTTP/1.1 200")
        assert process.metrics().total("lanewise_connections_cut_total", reason="descriptors")
        assert process.log.count("few file descriptors are left") == 1
    finally:
        for each in silent:
            each.close()
        process.stop()


def test_a_handshake_that_does_not_come_is_cut(folder: Path, redis_url: str) -> None:
    authority = trustme.CA()
    cert = authority.issue_cert("127.0.0.1")
    cert.cert_chain_pems[0].write_to_path(str(folder / "cut.pem"))
    cert.private_key_pem.write_to_path(str(folder / "cut.key"))
    path = folder / "handshakes.toml"
    tls = f'tls_cert_path = "{folder}/cut.pem"\ntls_key_path = "{folder}/cut.key"\n'
    path.write_text(SHORT.replace("[server]\n", "[server]\n" + tls))
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with served(folder, "--config", str(path), "--redis", redis_url, trusting=trusting) as process:
        for begin in (b"", b"\x16\x03\x01\x02\x00\x01"):
            all_of(connected(process, begin))
        line = b"PROXY TCP4 203.0.113.7 1.1.1.1 80 443\r\n"
        with (
            connected(process, line, "127.0.0.2") as raw,
            trusting.wrap_socket(raw, server_hostname="127.0.0.1") as wrapped,
        ):
            wrapped.sendall(GET % b"")
            assert b"200 OK" in wrapped.recv(65_536)
        cut = process.metrics().total("lanewise_connections_cut_total", reason="handshake")
        assert cut == 2
        assert "Traceback" not in process.log
