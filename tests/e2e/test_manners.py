"""Tests what HTTP asks of any server: browsers' questions, HEAD, packed bodies, unknown paths."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import brotli  # type: ignore[import-untyped]
import httpx
import pytest
import zstandard

from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess

HEADERS = {"authorization": f"Bearer {DEVELOPMENT_KEY}"}
PAGE = "https://app.test"
BODY = json.dumps({"model": "lanewise-fast", "input": "Say hello."}).encode()


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory, redis_url: str) -> Iterator[httpx.Client]:
    folder: Path = tmp_path_factory.mktemp("manners")
    config = folder / "lanewise.toml"
    config.write_text(f"[server]\nallowed_origins = ['{PAGE}']\nmax_message_bytes = 100000\n")
    gateway = GatewayProcess(folder, "--config", str(config), "--redis", redis_url)
    try:
        gateway.wait_until_ready()
        with httpx.Client(base_url=gateway.url, headers=HEADERS, timeout=60) as http:
            yield http
    finally:
        assert gateway.stop() == 0


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
def test_a_page_of_an_allowed_origin_may_ask_and_read(http: httpx.Client, path: str) -> None:
    asks = {
        "origin": PAGE,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,x-stainless-os",
    }
    answer = http.options(path, headers=asks)
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert "POST" in answer.headers["access-control-allow-methods"].split(", ")
    assert answer.headers["access-control-allow-headers"].endswith("x-stainless-os")
    assert "POST" in answer.headers["allow"].split(", ")
    answer = http.post(path, headers={"origin": PAGE}, content=b"{}")
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (400, PAGE)
    assert "x-request-id" in answer.headers["access-control-expose-headers"]


@pytest.mark.parametrize(
    ("path", "content", "status"),
    [
        ("/v1/responses", BODY, 200),
        ("/v1/messages", b"{}", 400),
        ("/v1/models", b"", 405),
    ],
)
def test_a_page_can_read_every_header_that_is_for_clients(
    http: httpx.Client, path: str, content: bytes, status: int
) -> None:
    answer = http.post(path, headers={"origin": PAGE}, content=content)
    assert answer.status_code == status
    exposed = set(answer.headers["access-control-expose-headers"].split(", "))
    # Those that browsers show to any page, or keep for themselves.
    others = {"content-type", "content-length", "date", "server", "vary", "connection"}
    others |= {name for name in answer.headers if name.startswith("access-control-")}
    assert set(answer.headers) - others <= exposed
    assert {"x-lanewise-budget-warning", "x-should-retry", "x-codex-turn-state"} <= exposed
    assert "anthropic-ratelimit-input-tokens-reset" in exposed


def test_a_page_of_another_origin_may_not_read(http: httpx.Client) -> None:
    for method in ("GET", "OPTIONS"):
        answer = http.request(method, "/v1/models", headers={"origin": "https://evil.test"})
        assert "access-control-allow-origin" not in answer.headers
        assert answer.headers["vary"] == "Origin"


@pytest.mark.parametrize(
    "path",
    [
        "/healthz",
        "/health",
        "/v1/models",
        "/v1/models/lanewise-fast",
        "/console/",
        "/schema/openapi.json",
    ],
)
def test_head_is_get_without_its_body(http: httpx.Client, path: str) -> None:
    head, got = http.head(path), http.get(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == got.headers["content-length"]


def test_head_at_the_root_leads_to_the_console(http: httpx.Client) -> None:
    head = http.head("/")
    assert (head.status_code, head.headers["location"], head.content) == (307, "/console/", b"")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/", "GET, HEAD"),
        ("POST", "/console/", "GET, HEAD"),
        ("POST", "/schema", "GET, HEAD"),
        ("POST", "/console/main.css", "GET, HEAD"),
        ("DELETE", "/v1/responses/", "GET, HEAD, POST"),
    ],
)
def test_a_405_allows_what_is_served_there(
    http: httpx.Client, method: str, path: str, allowed: str
) -> None:
    answer = http.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


def test_no_page_is_told_that_it_may_ask_as_an_admin(http: httpx.Client) -> None:
    asks = {"origin": PAGE, "access-control-request-method": "GET"}
    answer = http.options("/admin/tenants", headers=asks)
    assert "access-control-allow-methods" not in answer.headers


def raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


PACKED: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("deflate", zlib.compress),
    ("deflate", raw_deflate),
    ("zstd", zstandard.compress),
    ("br", brotli.compress),
    ("GZIP", gzip.compress),
]


@pytest.mark.parametrize(("coding", "pack"), PACKED)
def test_a_packed_body_is_unpacked_within_the_bound(
    http: httpx.Client, coding: str, pack: Callable[[bytes], bytes]
) -> None:
    headers = {"content-encoding": coding}
    answer = http.post("/v1/responses", headers=headers, content=pack(BODY))
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"] == "completed"
    answer = http.post("/v1/responses/input_tokens", headers=headers, content=pack(BODY))
    assert answer.json()["input_tokens"] > 0
    bomb = http.post("/v1/responses", headers=headers, content=pack(b" " * (64 << 20)))
    assert (bomb.status_code, bomb.json()["error"]["code"]) == (413, "message_too_large")
    cut = http.post("/v1/responses", headers=headers, content=pack(BODY)[:-9])
    assert cut.status_code == 400


def test_other_codings_are_refused_and_the_key_comes_first(http: httpx.Client) -> None:
    answer = http.post("/v1/responses", headers={"content-encoding": "compress"}, content=BODY)
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "unsupported_encoding")
    assert {"gzip", "deflate"} <= set(answer.headers["accept-encoding"].split(", "))
    headers = {"content-encoding": "gzip", "authorization": "Bearer nope"}
    answer = http.post("/v1/responses", headers=headers, content=b"no gzip at all")
    assert answer.status_code == 401


@pytest.mark.parametrize("body", [b"no gzip at all", gzip.compress(b"{", mtime=0)])
def test_what_is_wrong_with_a_packed_body_is_told_in_the_clients_protocol(
    http: httpx.Client, body: bytes
) -> None:
    answer = http.post("/v1/messages", headers={"content-encoding": "gzip"}, content=body)
    told = answer.json()
    assert (answer.status_code, told["type"]) == (400, "error")
    assert told["error"]["type"] == "invalid_request_error"
    assert answer.headers["request-id"] == told["request_id"]


@pytest.mark.parametrize(
    "path", ["embeddings", "completions", "conversations", "files", "images/x"]
)
def test_what_is_not_served_says_what_is(http: httpx.Client, path: str) -> None:
    answer = http.post(f"/v1/{path}", json={})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (404, "not_found")
    assert f"POST /v1/{path} is not served here" in error["message"]
    assert "POST /v1/chat/completions" in error["message"]
