"""Asks the admin API as the tests do: plain HTTP, JSON in and out."""

import json
import urllib.error
import urllib.request
from typing import Any

from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess

ADMIN_KEY = "sk-lanewise-admin-dev"


def ask(
    gateway: GatewayProcess,
    method: str,
    path: str,
    body: bytes | dict[str, Any] | None = None,
    *,
    key: str | None = ADMIN_KEY,
    content_type: str = "application/json",
    host: str | None = None,
) -> tuple[int, Any]:
    """Asks once; returns its status and its decoded answer."""
    content = json.dumps(body).encode() if isinstance(body, dict) else body
    headers = {"content-type": content_type}
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    if host is not None:
        headers["host"] = host
    request = urllib.request.Request(gateway.url + path, content, headers, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def run_task(
    gateway: GatewayProcess, model: str = "lanewise-fast", key: str = DEVELOPMENT_KEY
) -> str:
    """Runs a small task, of the development tenant by default; returns its response's id."""
    body = json.dumps({"model": model, "input": "Say hi."}).encode()
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    request = urllib.request.Request(f"{gateway.base_url}/responses", body, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        response: dict[str, Any] = json.load(answer)
        return str(response["id"])
