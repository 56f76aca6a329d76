"""The direct way to the busiest requests answers as Litestar's routes for them do."""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess

HEADERS = {"authorization": f"Bearer {DEVELOPMENT_KEY}"}
# A slash at the end is Litestar's to ignore, so such a request takes the way through it.
PATHS = ("/v1/responses", "/v1/chat/completions", "/v1/messages")
CHANGING = re.compile(r"date|(x-)?request-id|openai-processing-ms|.*ratelimit.*|content-length")
ASK: dict[str, Any] = {"model": "lanewise-fast", "input": "Say hello."}
CHAT: dict[str, Any] = {
    "model": "lanewise-fast",
    "messages": [{"role": "user", "content": "Say hello."}],
}
MESSAGE: dict[str, Any] = CHAT | {"max_tokens": 64}


@pytest.fixture
def http(gateway: GatewayProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.url, timeout=60) as http:
        yield http


def seen(answer: httpx.Response) -> tuple[int, dict[str, str], Any]:
    """Returns of an answer what is the same each time."""
    headers = {name: value for name, value in answer.headers.items() if not CHANGING.match(name)}
    names = [name for name in answer.headers if CHANGING.match(name) and name != "content-length"]
    headers["changing"] = ", ".join(sorted(names))
    if "event-stream" in headers.get("content-type", ""):
        kinds = re.findall(r'^event: .*$|"object":"[a-z.]*chunk"', answer.text, re.MULTILINE)
        assert kinds
        return answer.status_code, headers, sorted(set(kinds))
    body = answer.json()
    assert body
    if body.get("error"):
        return answer.status_code, headers, body | {"request_id": None}
    return answer.status_code, headers, sorted(body)


REQUESTS: list[tuple[str, bytes, dict[str, str]]] = [
    (PATHS[0], json.dumps(ASK).encode(), HEADERS),
    (PATHS[0], json.dumps(ASK | {"stream": True, "store": False}).encode(), HEADERS),
    (PATHS[0], json.dumps(ASK | {"background": True}).encode(), HEADERS),
    (PATHS[0], json.dumps(ASK | {"background": True, "stream": True}).encode(), HEADERS),
    (PATHS[0], json.dumps(ASK | {"model": "gpt-0"}).encode(), HEADERS),
    (PATHS[0], json.dumps(ASK | {"model": "gpt-0", "stream": True}).encode(), HEADERS),
    (PATHS[0], json.dumps(ASK).encode(), {}),
    (PATHS[0], json.dumps(ASK).encode(), {"authorization": "Bearer nope"}),
    (PATHS[0], b"", HEADERS),
    (PATHS[0], b"{", HEADERS),
    (PATHS[0], b"[" * 100_000, HEADERS),
    (PATHS[0], b'{"model":"auto","input":' + b'{"a":' * 50_000, HEADERS),
    (PATHS[0], json.dumps(ASK | {"input": "x" * (17 << 20)}).encode(), HEADERS),
    (PATHS[1], json.dumps(CHAT).encode(), HEADERS),
    (PATHS[1], json.dumps(CHAT | {"stream": True}).encode(), HEADERS),
    (PATHS[1], b"{}", HEADERS),
    (PATHS[1], json.dumps(CHAT).encode(), {"api-key": DEVELOPMENT_KEY}),
    (PATHS[2], json.dumps(MESSAGE).encode(), HEADERS),
    (PATHS[2], json.dumps(MESSAGE | {"stream": True}).encode(), HEADERS),
    (PATHS[2], b"{}", HEADERS),
    (PATHS[2], b"[" * 100_000, HEADERS),
    (PATHS[2], json.dumps(MESSAGE).encode(), {"x-api-key": "nope"}),
]


@pytest.mark.parametrize(("path", "content", "headers"), REQUESTS)
def test_both_ways_answer_alike(
    http: httpx.Client, path: str, content: bytes, headers: dict[str, str]
) -> None:
    direct = http.post(path, content=content, headers=headers)
    through = http.post(f"{path}/", content=content, headers=headers)
    ours, theirs = seen(direct), seen(through)
    if isinstance(theirs[2], dict):
        theirs[2]["error"]["message"] = theirs[2]["error"]["message"].replace(f"{path}/", path)
    assert ours == theirs


def test_a_body_of_unknown_length_is_taken_too(http: httpx.Client) -> None:
    content = json.dumps(ASK).encode()
    answer = http.post(PATHS[0], content=iter((content[:9], content[9:])), headers=HEADERS)
    assert answer.json()["status"] == "completed"
