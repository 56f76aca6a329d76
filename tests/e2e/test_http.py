"""Tests HTTP by hand: statuses, bodies and headers that no SDK would let through."""

import gzip
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.events import check_event, check_response, check_response_object
from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess

HEADERS = {"authorization": f"Bearer {DEVELOPMENT_KEY}"}


@pytest.fixture
def http(gateway: GatewayProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.url, headers=HEADERS, timeout=60) as http:
        yield http


def body_of(answer: httpx.Response) -> dict[str, Any]:
    body: dict[str, Any] = answer.json()
    return body


def create(**body: Any) -> bytes:
    return json.dumps({"model": "lanewise-fast", "input": "x", **body}).encode()


@pytest.mark.parametrize(
    ("method", "path", "content", "status", "code"),
    [
        ("GET", "/v1/responses", b"", 426, "upgrade_required"),
        ("PUT", "/v1/responses", b"", 405, "method_not_allowed"),
        ("GET", "/v1/nothing", b"", 404, "not_found"),
        ("GET", "/nothing", b"", 404, "not_found"),
        ("POST", "/v1/responses", b"", 400, "invalid_json"),
        ("POST", "/v1/responses", b"{", 400, "invalid_json"),
        ("POST", "/v1/responses", b"\xff\xfe", 400, "invalid_json"),
        ("POST", "/v1/responses", b"[" * 100_000, 400, "invalid_type"),
        ("POST", "/v1/responses", b"[]", 400, "invalid_type"),
        ("POST", "/v1/responses", b"{}", 400, "missing_required_parameter"),
        ("POST", "/v1/responses", create(model="gpt-0"), 404, "model_not_found"),
        ("POST", "/v1/responses", create(model="gpt-0", stream=True), 404, "model_not_found"),
        ("POST", "/v1/responses", create(temperature=9), 400, "invalid_value"),
        ("POST", "/v1/responses", create(input="x" * (17 << 20)), 413, "message_too_large"),
        ("POST", "/v1/chat/completions", b"{}", 400, "missing_required_parameter"),
        (
            "POST",
            "/v1/chat/completions",
            b'{"model":"auto","messages":[]}',
            400,
            "invalid_value",
        ),
        ("GET", "/v1/responses/resp_nothing", b"", 404, "response_not_found"),
        ("DELETE", "/v1/responses/resp_nothing", b"", 404, "response_not_found"),
        ("POST", "/v1/responses/resp_nothing/cancel", b"", 404, "response_not_found"),
        ("GET", "/v1/responses/resp_nothing/input_items", b"", 404, "response_not_found"),
        ("GET", "/v1/responses/resp_nothing/input_items?order=ASC", b"", 400, "invalid_value"),
        ("GET", "/v1/responses/resp_nothing/input_items?limit=0", b"", 400, "invalid_value"),
        ("GET", "/v1/models/gpt-0", b"", 404, "model_not_found"),
    ],
)
def test_errors_have_the_protocols_form(
    http: httpx.Client, method: str, path: str, content: bytes, status: int, code: str
) -> None:
    answer = http.request(method, path, content=content)
    assert answer.status_code == status, answer.text
    error = body_of(answer)["error"]
    assert error["code"] == code
    assert set(error) == {"message", "type", "param", "code"}
    assert len(error["message"]) > 15
    assert answer.headers["x-request-id"]


@pytest.mark.parametrize("limit", ["0", "-1", "101", "9" * 4_000])
def test_a_page_of_no_possible_length_says_what_is(http: httpx.Client, limit: str) -> None:
    made = body_of(http.post("/v1/responses", content=create(max_output_tokens=16)))
    path = f"/v1/responses/{made['id']}/input_items"
    assert len(body_of(http.get(path, params={"limit": 100}))["data"]) == 1
    answer = http.get(path, params={"limit": limit})
    assert answer.status_code == 400, answer.text
    error = body_of(answer)["error"]
    assert (error["code"], error["param"]) == ("invalid_value", "limit")
    assert f"expected 1 to 100, got {limit[:64]}." in error["message"]


def test_tokens_are_counted_without_a_model(http: httpx.Client) -> None:
    path = "/v1/responses/input_tokens"
    named = http.post(path, content=create(input="Count me."))
    for body in ({"input": "Count me."}, {"input": "Count me.", "model": None}):
        unnamed = http.post(path, json=body)
        assert unnamed.status_code == 200, unnamed.text
        assert body_of(unnamed) == body_of(named)


@pytest.mark.parametrize("content", [b"x" * (17 << 20), b"[" + b"[]," * 200_000 + b"[]]"])
@pytest.mark.parametrize(
    ("path", "can_continue"),
    [
        ("/v1/responses", True),
        ("/v1/responses/input_tokens", True),
        ("/v1/chat/completions", False),
        ("/v1/messages", False),
        ("/v1/messages/count_tokens", False),
    ],
)
def test_a_large_body_is_told_to_continue_where_the_api_can(
    http: httpx.Client, path: str, can_continue: bool, content: bytes
) -> None:
    for headers in ({}, {"content-encoding": "gzip"}):
        sent = gzip.compress(content, 1) if headers else content
        answer = http.post(path, content=sent, headers=headers)
        assert answer.status_code == 413, answer.text
        assert ("previous_response_id" in answer.text) is can_continue
        assert "Send less" in answer.text


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/responses", "GET, HEAD, POST"),
        ("/v1/responses/input_tokens", "POST"),
        ("/v1/responses/resp_x", "DELETE, GET, HEAD"),
        ("/v1/chat/completions", "POST"),
    ],
)
def test_a_method_that_is_not_served_says_which_are(
    http: httpx.Client, path: str, allowed: str
) -> None:
    answer = http.put(path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert f"PUT is not served at {path}, but {allowed} is." in body_of(answer)["error"]["message"]


def test_an_empty_body_is_called_so(http: httpx.Client) -> None:
    answer = http.post("/v1/responses", content=b"")
    assert "nothing was sent" in body_of(answer)["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/models", "/v1/responses/resp_x"])
def test_no_key_no_answer(gateway: GatewayProcess, path: str) -> None:
    for headers in ({}, {"authorization": "Bearer nope"}, {"authorization": "Basic eDp5"}):
        answer = httpx.get(gateway.url + path, headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert body_of(answer)["error"]["code"] == "invalid_api_key"


def test_a_response_as_json(http: httpx.Client) -> None:
    answer = http.post("/v1/responses", content=create())
    assert answer.headers["content-type"] == "application/json"
    check_response_object(body_of(answer))


def test_events_of_a_stream_are_named_after_their_type(http: httpx.Client) -> None:
    with http.stream("POST", "/v1/responses", content=create(stream=True)) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        text = answer.read().decode()
    events = []
    for block in text.split("\n\n"):
        if block and not block.startswith(":"):
            name, data = block.split("\n")
            event = json.loads(data.removeprefix("data: "))
            assert name == f"event: {event['type']}"
            check_event(event)
            events.append(event)
    check_response(events)


def test_a_background_response_is_followed_and_resumed(http: httpx.Client) -> None:
    body = create(input="Write a guide of 300 tokens.", background=True, stream=True)
    with http.stream("POST", "/v1/responses", content=body) as answer:
        first = next(line for line in answer.iter_lines() if line.startswith("data: "))
    response_id = json.loads(first.removeprefix("data: "))["response"]["id"]
    followed = http.get(
        f"/v1/responses/{response_id}", params={"stream": True, "starting_after": 1}
    )
    numbers = [
        json.loads(line.removeprefix("data: "))["sequence_number"]
        for line in followed.text.splitlines()
        if line.startswith("data: ")
    ]
    assert numbers == list(range(2, 2 + len(numbers)))
    stored = body_of(http.get(f"/v1/responses/{response_id}"))
    assert stored["status"] == "completed"
    check_response_object(stored)


def test_models_for_the_sdks_and_for_codex(http: httpx.Client) -> None:
    listed = body_of(http.get("/v1/models", params={"client_version": "0.169.0"}))
    ids = [model["id"] for model in listed["data"]]
    assert {"auto", "lanewise-fast", "lanewise-deep"} <= set(ids)
    assert [entry["slug"] for entry in listed["models"]] == ids
    for entry in listed["models"]:
        assert entry["context_window"] > 0


def test_health_needs_no_key(gateway: GatewayProcess) -> None:
    for path in ("/healthz", "/readyz", "/metrics"):
        assert httpx.get(gateway.url + path).status_code == 200
