"""Tests the admin API of a real gateway: who gets in, what it shows, and its schema."""

import urllib.request
from urllib.parse import urlsplit

import httpx
import jsonschema
import pytest

from dashboards.alerts.table import ALERTS
from gateway.config.development import DEVELOPMENT_ADMIN_KEY
from tests.e2e.admin_api import ask
from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess

REFUSED = [(None, None), (DEVELOPMENT_KEY, None), ("sk-lanewise-admin-dev", "rebound.example")]


@pytest.mark.parametrize(("key", "host"), REFUSED)
def test_only_admin_keys_open_it(
    gateway: GatewayProcess, key: str | None, host: str | None
) -> None:
    status, body = ask(gateway, "GET", "/admin/health", key=key, host=host)
    assert (status, body["error"]["code"]) == (401, "invalid_api_key")


def test_admin_keys_run_no_tasks(gateway: GatewayProcess) -> None:
    status, _ = ask(gateway, "POST", "/v1/responses", {"model": "auto", "input": "Hi."})
    assert status == 401


def test_health_backends_and_pools(gateway: GatewayProcess) -> None:
    status, health = ask(gateway, "GET", "/admin/health")
    assert status == 200
    assert health["pools_reachable"] is True
    _, backends = ask(gateway, "GET", "/admin/backends")
    assert {(backend["name"], backend["group"]) for backend in backends} == {
        ("wafer", "fast"),
        ("gpu", "deep"),
    }
    _, pools = ask(gateway, "GET", "/admin/pools/fast-only")
    assert {pool["group"] for pool in pools} == {"fast"}
    status, body = ask(gateway, "GET", "/admin/pools/nobody")
    assert status == 404
    assert "fast-only" in body["error"]["message"]


@pytest.mark.parametrize("content", [None, b""])
def test_a_body_that_is_missing_is_called_so(
    gateway: GatewayProcess, content: bytes | None
) -> None:
    for path, needed in (("policies/check", " with 'document'"), ("keys", " with 'tenant'")):
        status, body = ask(gateway, "POST", f"/admin/{path}", content)
        assert (status, body["error"]["code"]) == (400, "invalid_json")
        assert f"Expected a JSON object{needed}: nothing was sent." in body["error"]["message"]


def test_a_parameter_of_the_query_that_is_missing_is_named(gateway: GatewayProcess) -> None:
    status, body = ask(gateway, "GET", "/admin/budgets?run=nightly-42")
    error = body["error"]
    assert (status, error["code"]) == (400, "missing_required_parameter")
    assert error["param"] == "tenant"
    assert "Missing required parameter: 'tenant'." in error["message"]


UNREAD = [
    ("usage?tennant=acme", "'tennant'; did you mean 'tenant'? This route takes by, first_day, "),
    ("usage?days=7", "'days'. This route takes by, first_day, last_day, tenant."),
    ("keys?tenant=dev&limit=3", "'limit'. This route takes tenant."),
    ("pools/dev?tenant_id=acme", "'tenant_id'. This route takes key."),
    ("health?verbose=1", "'verbose'. This route takes none."),
]


@pytest.mark.parametrize(("path", "said"), UNREAD)
def test_a_slip_in_a_query_answers_no_other_question(
    gateway: GatewayProcess, path: str, said: str
) -> None:
    status, body = ask(gateway, "GET", f"/admin/{path}")
    assert (status, body["error"]["code"]) == (400, "invalid_value")
    assert f"Unknown query parameter {said}" in body["error"]["message"]


def test_what_is_not_served_says_what_of_the_admin_api_is(gateway: GatewayProcess) -> None:
    for path in ("/admin", "/admin/tenents"):
        status, body = ask(gateway, "GET", path)
        assert status == 404
        assert "/admin/tenants, /admin/tiers" in body["error"]["message"]
        assert "/v1/" not in body["error"]["message"]


@pytest.mark.parametrize("path", ["/admin/policies", "/admin/policies/check", "/admin/explain"])
def test_json_nested_without_end_is_the_senders_fault(gateway: GatewayProcess, path: str) -> None:
    headers = {"authorization": f"Bearer {DEVELOPMENT_ADMIN_KEY}"}
    for content in ("[" * 200_000, '{"document":' * 50_000):
        answer = httpx.post(gateway.url + path, content=content, headers=headers)
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["code"] in ("invalid_json", "invalid_value")


def test_the_schema_describes_it(gateway: GatewayProcess) -> None:
    _, schema = ask(gateway, "GET", "/schema/openapi.json", key=None)
    assert schema["components"]["securitySchemes"]["AdminKey"]["scheme"] == "bearer"
    for path, operations in schema["paths"].items():
        if path.startswith("/admin"):
            for operation in operations.values():
                assert operation["security"] == [{"AdminKey": []}], path
    assert "/admin/health" in schema["paths"]


def test_the_schema_describes_errors_as_they_are_sent(gateway: GatewayProcess) -> None:
    _, schema = ask(gateway, "GET", "/schema/openapi.json", key=None)
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            errors = {k: v for k, v in operation["responses"].items() if k >= "400"}
            if path == "/readyz":  # a probe's answer, and no error
                errors.pop("503")
            assert "default" in errors, path
            for told in errors.values():
                content = told["content"]["application/json"]
                name = "AnthropicError" if path.startswith("/v1/messages") else "Error"
                assert content == {"schema": {"$ref": f"#/components/schemas/{name}"}}, path
    described = schema["components"]["schemas"]["Error"]
    for method, path, body in (
        ("POST", "/admin/keys", {"tenant": 5}),
        ("GET", "/admin/pools/nobody", None),
        ("POST", "/v1/responses", {}),
    ):
        status, refused = ask(gateway, method, path, body)
        assert status >= 400
        jsonschema.validate(refused, described)


def test_the_runbook_of_an_alert_is_served(gateway: GatewayProcess) -> None:
    """Its `runbook_url` leads there by default, without a key."""
    for alert in ALERTS:
        path = urlsplit(alert.default_runbook_url).path
        with urllib.request.urlopen(gateway.url + path) as answer:
            assert answer.headers["content-type"].startswith("text/plain")
            assert alert.name in answer.read().decode()
    with urllib.request.urlopen(f"{gateway.url}/runbooks") as answer:
        assert len(answer.read().splitlines()) == len(ALERTS)
    assert ask(gateway, "GET", "/runbooks/none", key=None)[0] == 404
