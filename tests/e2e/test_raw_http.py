"""Tests HTTP/1.1 as no library here writes it: bytes go in, and all that comes is read."""

import json
import socket
from typing import Any

import pytest

from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess

PATIENCE_S = 60.0  # bounds a hang
BODY = json.dumps({"model": "lanewise-fast", "input": "Say hello.", "store": False}).encode()
# As Java's HttpClient sends it, unless it is told to speak HTTP/1.1.
H2C = (
    "Connection: Upgrade, HTTP2-Settings",
    "HTTP2-Settings: AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA",
    "Upgrade: h2c",
)
SOCKET = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version: 13",
)
CLOSE = "Connection: close"
POST = "POST /v1/responses HTTP/1.1"


def request(line: str, *headers: str, body: bytes | None = None, host: bool = True) -> bytes:
    head = [line, f"Authorization: Bearer {DEVELOPMENT_KEY}", *headers]
    if host:
        head.append("Host: gateway")
    if body is not None:
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*head, "", ""]).encode() + (body or b"")


def post(*headers: str) -> bytes:
    return request(POST, *headers, body=BODY)


def answers(gateway: GatewayProcess, *pieces: bytes) -> list[tuple[int, dict[str, str], bytes]]:
    """Yields status, headers and body of each response until the gateway closes."""
    arrived = b""
    with socket.create_connection(("127.0.0.1", gateway.port), PATIENCE_S) as connection:
        for piece in pieces:
            connection.sendall(piece)
        while more := connection.recv(65_536):
            arrived += more
    found = []
    while arrived:
        head, _, arrived = arrived.partition(b"\r\n\r\n")
        line, *fields = head.decode().split("\r\n")
        headers = dict(field.lower().split(": ", 1) for field in fields)
        length = int(headers.get("content-length", len(arrived)))
        found.append((int(line.split()[1]), headers, arrived[:length]))
        arrived = arrived[length:]
    return found


def error_of(answer: tuple[int, dict[str, str], bytes]) -> dict[str, Any]:
    """Returns the error of an answer, in the shape that all errors have."""
    assert answer[1]["content-type"] == "application/json"
    error: dict[str, Any] = json.loads(answer[2])["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def test_an_upgrade_to_h2c_is_ignored(gateway: GatewayProcess) -> None:
    """Each of several requests in one go is answered so, with a body and without."""
    sent = post(*H2C) + request("GET /v1/models HTTP/1.1", *H2C) + post(*H2C) + post(CLOSE)
    found = answers(gateway, sent)
    assert [status for status, _, _ in found] == [200] * 4
    made = [json.loads(body) for _, _, body in found]
    assert [each["object"] for each in made] == ["response", "list", "response", "response"]


def test_an_ignored_upgrade_may_arrive_in_pieces(gateway: GatewayProcess) -> None:
    sent = post(*H2C) + post(CLOSE)
    chunked = request(POST, *H2C, "Transfer-Encoding: chunked")
    chunked += b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
    pieces = [bytes([byte]) for byte in chunked + sent]
    assert [status for status, _, _ in answers(gateway, *pieces)] == [200] * 3


def test_many_offers_in_one_go_are_ignored(gateway: GatewayProcess) -> None:
    sent = request("GET /healthz HTTP/1.1", *H2C) * 200 + request("GET /healthz HTTP/1.1", CLOSE)
    assert [status for status, _, _ in answers(gateway, sent)] == [200] * 201


@pytest.mark.parametrize("offer", ["h2c, websocket", "TLS/1.0", "foo/2, bar", "websocket2", ""])
def test_any_other_upgrade_is_ignored(gateway: GatewayProcess, offer: str) -> None:
    found = answers(gateway, post(f"Upgrade: {offer}", "Connection: upgrade, close"))
    assert [status for status, _, _ in found] == [200]


def test_a_tunnel_is_refused_and_the_connection_ends(gateway: GatewayProcess) -> None:
    found = answers(gateway, request("CONNECT /v1/responses HTTP/1.1") + post())
    assert [status for status, _, _ in found] == [405]


def test_a_socket_where_there_is_none_is_refused(gateway: GatewayProcess) -> None:
    (answer,) = answers(gateway, request("GET /v1/nothing HTTP/1.1", *SOCKET))
    assert answer[0] == 404
    assert "/v1/responses" in error_of(answer)["message"]


def test_a_post_cannot_become_a_socket(gateway: GatewayProcess) -> None:
    (answer,) = answers(gateway, post(*SOCKET))
    assert answer[0] in (400, 405)


@pytest.mark.parametrize("offer", [(), SOCKET])
def test_a_host_is_needed_since_http_1_1(gateway: GatewayProcess, offer: tuple[str, ...]) -> None:
    (answer,) = answers(gateway, request("GET /v1/responses HTTP/1.1", *offer, host=False))
    error = error_of(answer)
    assert (answer[0], error["param"]) == (400, "Host")
    (older,) = answers(gateway, request("GET /v1/models HTTP/1.0", host=False))
    assert older[0] == 200


def test_an_idempotency_key_comes_once(gateway: GatewayProcess) -> None:
    (answer,) = answers(gateway, post("Idempotency-Key: a", "idempotency-key: a"))
    error = error_of(answer)
    assert (answer[0], error["param"]) == (400, "Idempotency-Key")
    assert "at most one" in error["message"]


@pytest.mark.parametrize("num_pieces", [1, 4])
@pytest.mark.parametrize(("num_more", "status"), [(0, 200), (1, 431)])
def test_a_head_may_hold_64_kib(
    gateway: GatewayProcess, num_more: int, status: int, num_pieces: int
) -> None:
    line = "GET /v1/models HTTP/1.1"
    spare = (64 << 10) - len(request(line, CLOSE, "X-A: "))
    sent = request(line, CLOSE, "X-A: " + "a" * (spare + num_more))
    size = -(-len(sent) // num_pieces)
    (answer,) = answers(gateway, *(sent[at : at + size] for at in range(0, len(sent), size)))
    assert answer[0] == status
    if status == 431:
        assert "64 KiB together" in error_of(answer)["message"]


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", "Invalid method"),
        (request("GET /v1/models HTTP/9.9"), "Invalid HTTP version"),
        (request("GET /v1/models HTTP/1.1", "X A: b"), "Invalid header token"),
        (request("GET http://[::/ HTTP/1.1"), "Its target is no path"),
        (request(POST, "Transfer-Encoding: chunked") + b"zz\r\n", "chunk size"),
        (request("GET /v1/responses HTTP/1.0", *SOCKET), "A WebSocket needs HTTP/1.1"),
    ],
)
def test_what_is_no_http_is_refused_as_all_else(
    gateway: GatewayProcess, sent: bytes, says: str
) -> None:
    (answer,) = answers(gateway, sent)
    error = error_of(answer)
    assert (answer[0], error["code"]) == (400, "invalid_value")
    assert says in error["message"]


def test_no_refusal_stands_in_another_answer(gateway: GatewayProcess) -> None:
    """What follows an unfinished request is no HTTP: the connection ends, without a word."""
    slow = json.dumps({"model": "lanewise-deep", "input": "Say hello.", "stream": True}).encode()
    sent = request(POST, body=slow) + b"\x16\x03\x01\x02"
    assert answers(gateway, sent) == []


def test_a_stream_in_http_1_0_lasts_until_the_connection_closes(gateway: GatewayProcess) -> None:
    body = json.dumps({"model": "lanewise-fast", "input": "x", "stream": True}).encode()
    for keep in ("Keep-Alive: 5", "Connection: keep-alive"):
        sent = request("POST /v1/responses HTTP/1.0", keep, body=body)
        ((status, headers, events),) = answers(gateway, sent)
        assert (status, headers["connection"]) == (200, "close")
        assert "transfer-encoding" not in headers
        assert events.startswith(b"event: response.created\ndata: {")
        assert b"event: response.completed\n" in events
        lines = [line for line in events.decode().split("\n") if line]
        assert all(line.startswith(("event: ", "data: ", ":")) for line in lines)
