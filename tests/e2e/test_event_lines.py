"""Server-sent events survive clients that take more characters than LF and CR for a line's end."""

import json
import secrets
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess, served_cleanly

ECHO = """
[[backends]]
kind = "gpu"
name = "echo"
options = { script = "echo" }
"""
# All that `str.splitlines` takes for a line's end, among text that looks like it in bytes.
SAID = (
    "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1dh\x1ei\rj\r\nk\nl\\\u2028m“n”…o\u2014p\u0385q é日本😀"
)
MESSAGES: dict[str, Any] = {"messages": [{"role": "user", "content": SAID}]}
BODIES: dict[str, dict[str, Any]] = {
    "responses": {"input": SAID},
    "chat/completions": MESSAGES,
    "messages": {"max_tokens": 500, **MESSAGES},
}


@pytest.fixture(scope="module")
def echoing(tmp_path_factory: pytest.TempPathFactory, redis_url: str) -> Iterator[GatewayProcess]:
    config = tmp_path_factory.mktemp("echo") / "lanewise.toml"
    config.write_text(ECHO)
    with served_cleanly(config, redis_url) as process:
        yield process


@pytest.mark.parametrize("is_kept", [False, True])  # it is written another way then
@pytest.mark.parametrize("path", BODIES)
def test_no_client_takes_text_for_the_end_of_a_line(
    echoing: GatewayProcess, path: str, is_kept: bool
) -> None:
    body = {"model": "auto", "stream": True, **BODIES[path]}
    headers = {"authorization": f"Bearer {DEVELOPMENT_KEY}"}
    if is_kept:
        headers["idempotency-key"] = secrets.token_hex(8)
    url = f"{echoing.base_url}/{path}"
    with httpx.stream("POST", url, json=body, headers=headers, timeout=60) as answer:
        lines = [line for line in answer.iter_lines() if line]  # as `str.splitlines` does
    fields = {line.partition(":")[0] for line in lines}
    assert fields <= {"event", "data"}, lines
    texts = [line.removeprefix("data: ") for line in lines if line.startswith("data: {")]
    assert _said(map(json.loads, texts)) == SAID


def _said(events: Iterator[dict[str, Any]]) -> str:
    said: list[str] = []
    for event in events:
        delta = event.get("delta", "")
        if event.get("choices"):
            delta = event["choices"][0]["delta"].get("content") or ""
        elif isinstance(delta, dict):
            delta = delta.get("text", "")
        said.append(delta)
    return "".join(said)
