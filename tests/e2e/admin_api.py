"""The admin API as the tests ask it: plain HTTP, JSON in and out."""

import json
import urllib.error
import urllib.request
from typing import Any

from tests.e2e.gateway_process import GatewayProcess

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
    """One request; its status and its decoded answer."""
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
