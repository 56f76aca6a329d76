"""What makes no sense is refused by its name, and blamed on nobody else."""

import json
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.admin_api import ask
from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess, served, wait_until_at_rest

BEARER = {"authorization": f"Bearer {DEVELOPMENT_KEY}"}

# What an admin may ask that no admin means; all of them are the asker's fault.
ADMIN_NONSENSE: list[tuple[str, str, dict[str, Any] | None, int]] = [
    ("POST", "/admin/explain", {"prompt": "x", "reasoning_effort": "enormous"}, 400),
    ("POST", "/admin/explain", {"prompt": "x", "service_tier": ""}, 400),
    ("POST", "/admin/explain", {"prompt": "x", "model": ""}, 400),
    ("POST", "/admin/explain", {"prompt": "x", "at": 1e300}, 400),
    ("POST", "/admin/explain", {"prompt": "x", "at": -1}, 400),
    ("POST", "/admin/explain", {"prompt": "x", "version": 10**30}, 400),
    ("POST", "/admin/explain", {"prompt": "x", "metadata": {"a" * 65: "b"}}, 400),
    ("GET", "/admin/audit?limit=0", None, 400),
    ("GET", "/admin/audit?limit=-1", None, 400),
    ("GET", "/admin/policies/audit?limit=0", None, 400),
    ("GET", "/admin/decisions?limit=-1", None, 400),
    ("GET", f"/admin/policies/{10**30}", None, 400),
    ("GET", "/admin/policies/-1", None, 400),
    ("POST", "/admin/policies/-1/activate", {}, 400),
    ("POST", f"/admin/policies/{10**30}/activate", {}, 400),
    ("POST", "/admin/policies/77/activate", {}, 404),
    ("POST", "/admin/policies/shadow", {"version": -1}, 400),
]


@pytest.mark.parametrize(("method", "path", "body", "status"), ADMIN_NONSENSE)
def test_an_admin_is_told_what_is_wrong(
    gateway: GatewayProcess, method: str, path: str, body: dict[str, Any] | None, status: int
) -> None:
    told, answer = ask(gateway, method, path, body)
    assert told == status, answer
    assert "Redis" not in answer["error"]["message"]
    assert ask(gateway, "GET", "/admin/policies")[1]["in_force"]["version"] == 0


# What of it is wrong, which `param` names as it does to tenants.
KEY: dict[str, Any] = {"tenant": "dev"}
ADMIN_FIELDS: list[tuple[str, Any, str, str | None]] = [
    ("/admin/keys", {"tenant": 5}, "invalid_type", "tenant"),
    ("/admin/keys", {}, "missing_required_parameter", "tenant"),
    ("/admin/keys", KEY | {"expires_in_s": 0}, "invalid_value", "expires_in_s"),
    ("/admin/keys", KEY | {"expiry": 0}, "invalid_value", "expiry"),
    ("/admin/keys", KEY | {"limits": {"slow": {}}}, "invalid_value", "limits"),
    (
        "/admin/keys",
        KEY | {"limits": {"fast": {"requests_per_min": -1}}},
        "invalid_value",
        "limits.fast.requests_per_min",
    ),
    ("/admin/keys", [], "invalid_type", None),
    ("/admin/policies", {"document": 5}, "invalid_type", "document"),
    ("/admin/policies", {"documents": ""}, "invalid_value", "documents"),
    ("/admin/policies/shadow", {"version": -1}, "invalid_value", "version"),
    (
        "/admin/explain",
        {"prompt": "x", "reasoning_effort": "y"},
        "invalid_value",
        "reasoning_effort",
    ),
    ("/admin/tenants", {"id": "new"}, "missing_required_parameter", "tier"),
    ("/admin/tenants", {"id": "new", "tier": "x"}, "invalid_value", "tier"),
    ("/admin/tenants", {"id": "N", "tier": "x"}, "invalid_value", "id"),
]


@pytest.mark.parametrize(("path", "body", "code", "param"), ADMIN_FIELDS)
def test_an_admin_is_told_which_field_is_wrong(
    gateway: GatewayProcess, path: str, body: Any, code: str, param: str | None
) -> None:
    status, answer = ask(gateway, "POST", path, json.dumps(body).encode())
    error = answer["error"]
    assert (status, error["code"], error["param"]) == (400, code, param), error
    assert f"'{param}'" in error["message"] or param in (None, "tier", "id")


def test_an_admin_is_told_which_parameter_of_a_query_is_wrong(gateway: GatewayProcess) -> None:
    _, answer = ask(gateway, "GET", "/admin/audit?limit=x")
    error = answer["error"]
    assert (error["code"], error["param"]) == ("invalid_type", "limit")
    assert "Invalid 'limit': Expected `int`, got `str`." in error["message"]


OUT_OF_BOUNDS: list[tuple[str, str, Any, str]] = [
    ("GET", "/admin/audit?limit=0", None, "'limit': Expected `int` >= 1, got 0."),
    ("GET", "/admin/audit?limit=-7", None, "'limit': Expected `int` >= 1, got -7."),
    ("GET", "/admin/audit?limit=1001", None, "'limit': Expected `int` <= 1000, got 1001."),
    ("GET", "/admin/policies/-1", None, "'version': Expected `int` >= 0, got -1."),
    (
        *("POST", "/admin/keys", {"tenant": "dev", "expires_in_s": 0}),
        "'expires_in_s': Expected `int` >= 1, got 0.",
    ),
    (
        *("POST", "/admin/keys", {"tenant": "dev", "limits": {"fast": {"requests_per_min": -3}}}),
        "'limits.fast.requests_per_min': Expected `int` >= 0, got -3.",
    ),
]


@pytest.mark.parametrize(("method", "path", "body", "told"), OUT_OF_BOUNDS)
def test_an_admin_is_told_what_came(
    gateway: GatewayProcess, method: str, path: str, body: Any, told: str
) -> None:
    _, answer = ask(gateway, method, path, None if body is None else json.dumps(body).encode())
    assert f"Invalid {told}" in answer["error"]["message"]


def test_only_responses_are_read_as_responses(gateway: GatewayProcess) -> None:
    with httpx.Client(base_url=gateway.base_url, headers=BEARER) as client:
        body = {"model": "lanewise-fast", "input": "x", "max_output_tokens": 16}
        made = client.post("/responses", json=body).json()["id"]
        assert client.post(f"/responses/{made}/feedback", json={"success": True}).is_success
        for beside in (f"{made}:feedback", f"{made}:runs", f"{made}:cancel", f"{made}%00", "é"):
            refused = [
                client.get(f"/responses/{beside}"),
                client.get(f"/responses/{beside}/input_items"),
                client.post(f"/responses/{beside}/cancel"),
                client.delete(f"/responses/{beside}"),
                client.post("/responses", json={**body, "previous_response_id": beside}),
            ]
            codes = [answer.json()["error"]["code"] for answer in refused]
            assert codes == [*["response_not_found"] * 4, "previous_response_not_found"], beside
        assert client.delete(f"/responses/{made}").is_success


def test_a_body_of_an_admin_that_is_not_utf_8_is_refused(gateway: GatewayProcess) -> None:
    status, answer = ask(gateway, "POST", "/admin/explain", b'{"prompt":"\xff"}')
    assert (status, answer["error"]["code"]) == (400, "invalid_json")


def test_half_a_character_is_found_in_the_body_of_an_admin(gateway: GatewayProcess) -> None:
    status, answer = ask(gateway, "POST", "/admin/explain", b'{"prompt":"a\\ud83d b"}')
    assert (status, answer["error"]["code"]) == (400, "invalid_json")
    assert (
        "\\ud83d is a lone surrogate, half of a character, at byte 12" in answer["error"]["message"]
    )
    status, answer = ask(gateway, "POST", "/admin/explain", b'{"prompt":')
    assert (status, answer["error"]["code"]) == (400, "invalid_json")
    assert "truncated" in answer["error"]["message"]


@pytest.mark.parametrize("host", ["gateway: 13", "[::", "a:b", "a:99999999", "", "\xff", "a b"])
def test_a_host_that_is_none_is_refused(gateway: GatewayProcess, host: str) -> None:
    for path in ("/v1/models", "/v1/responses", "/admin/health", "/nothing", "/metrics"):
        head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=30) as connection:
            connection.sendall(head.encode("latin-1"))
            assert int(connection.recv(99).split()[1]) < 500, path


@pytest.mark.parametrize("more", ["", "Sec-WebSocket-Protocol: x\r\n"])
def test_an_upgrade_needs_http_1_1(gateway: GatewayProcess, more: str) -> None:
    head = (
        "GET /v1/responses HTTP/1.0\r\nHost: g\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        f"Authorization: Bearer {DEVELOPMENT_KEY}\r\n{more}\r\n"
    )
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=30) as connection:
        connection.sendall(head.encode())
        assert connection.recv(99).startswith(b"HTTP/1.1 400 ")


def test_a_policys_version_may_have_any_letters(tmp_path: Path) -> None:
    """It stands in a header of every answer."""
    policy = tmp_path / "policy.toml"
    policy.write_text('version = "v✓ 50%"')
    config = tmp_path / "lanewise.toml"
    config.write_text(f"policy_path = '{policy}'")
    with served(tmp_path, "--config", str(config)) as process:
        body = {"model": "lanewise-fast", "input": "x", "max_output_tokens": 16}
        answer = httpx.post(f"{process.base_url}/responses", json=body, headers=BEARER)
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-lanewise-policy"] == "v%E2%9C%93 50%"
        assert answer.json()["routing"]["policy_version"] == "v✓ 50%"


def test_a_client_that_leaves_its_pipeline_is_not_written_to(gateway: GatewayProcess) -> None:
    body = b'{"model":"lanewise-fast","input":"x","max_output_tokens":64}'
    posted = (
        b"POST /v1/responses HTTP/1.1\r\nhost: x\r\nauthorization: Bearer "
        + DEVELOPMENT_KEY.encode()
        + b"\r\ncontent-length: %d\r\n\r\n" % len(body)
        + body
    )
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", gateway.port), 60) as left:
            left.sendall(posted * 3)
    wait_until_at_rest(gateway)
    assert "Traceback" not in gateway.log


def test_an_upgrade_to_letters_beyond_ascii_is_refused(gateway: GatewayProcess) -> None:
    head = (
        b"GET /v1/responses HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: w\xc3bsocket\r\n"
        b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", gateway.port), 60) as client:
        client.sendall(head)
        assert client.recv(65_536).startswith(b"HTTP/1.1 4")
    assert "Traceback" not in gateway.log
