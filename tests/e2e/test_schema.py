"""The OpenAPI document describes what a real gateway takes and answers, and its page is its own."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import jsonschema
import pytest

from tests.e2e.admin_api import ADMIN_KEY, run_task
from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess

TIMEOUT_S = 60.0
TOOL = {"type": "function", "name": "read_file", "parameters": {"type": "object"}}
CHAT = {"model": "auto", "messages": [{"role": "user", "content": "Hi."}]}
SAID = [{"role": "user", "content": "Hi."}]
# method, path, body; {id} is a stored response's
ASKED: list[tuple[str, str, Any]] = [
    ("post", "/v1/responses", {"model": "auto", "input": "Hi."}),
    ("post", "/v1/responses", {"model": "auto", "input": [{"role": "user", "content": "Hi."}]}),
    ("post", "/v1/responses", {"model": "auto", "input": "Hi.", "background": True}),
    ("post", "/v1/responses", {"model": "nobody", "input": "Hi."}),
    ("get", "/v1/responses/{response_id}", None),
    ("get", "/v1/responses/{response_id}/input_items", None),
    ("post", "/v1/responses/{response_id}/feedback", {"success": True}),
    ("post", "/v1/responses/{response_id}/cancel", {}),
    ("delete", "/v1/responses/{response_id}", None),
    ("get", "/v1/responses/{response_id}", None),
    ("post", "/v1/responses/input_tokens", {"model": "auto", "input": "Hi."}),
    ("post", "/v1/responses/compact", {"model": "auto", "input": "Hi. " * 40}),
    ("post", "/v1/chat/completions", CHAT),
    ("post", "/v1/messages", {"model": "auto", "max_tokens": 64, "messages": SAID}),
    ("post", "/v1/messages", {"model": "auto", "messages": SAID}),
    ("post", "/v1/messages/count_tokens", {"model": "auto", "messages": SAID}),
    ("post", "/v1/route", {"id": "a", "text": "Rename x to y."}),
    ("post", "/v1/route", {"id": "a"}),
    ("post", "/v1/socket_tickets", {}),
    ("get", "/v1/models", None),
    ("get", "/v1/models/{model}", None),
    ("get", "/v1/usage", None),
    ("get", "/healthz", None),
    ("get", "/readyz", None),
    *(
        ("get", f"/admin/{name}", None)
        for name in ("me", "health", "backends", "audit", "decisions", "tenants", "tiers", "keys")
    ),
]
STREAMED = [
    {"model": "lanewise-fast", "input": "Rename x to y."},
    {"model": "lanewise-deep", "input": "Prove it.", "reasoning": {"summary": "auto"}},
    {"model": "lanewise-deep", "input": "Read a.py.", "tools": [TOOL], "tool_choice": "required"},
    {"model": "auto", "input": "Rename x.", "metadata": {"strategy": "hedge"}},
]


@pytest.fixture(scope="module")
def document(gateway: GatewayProcess) -> dict[str, Any]:
    with urllib.request.urlopen(f"{gateway.admin_url}/schema/openapi.json") as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def test_the_length_of_a_page_is_bounded_in_words_of_the_schema(document: dict[str, Any]) -> None:
    listing = document["paths"]["/v1/responses/{response_id}/input_items"]["get"]
    (limit,) = (each for each in listing["parameters"] if each["name"] == "limit")
    assert limit["schema"] == {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}


def sent(
    gateway: GatewayProcess, method: str, path: str, body: Any, *, key: str
) -> tuple[int, str, bytes]:
    """Sends a request; returns status, media type and body of what is answered."""
    base = gateway.admin_url if path.startswith("/admin") else gateway.url
    content = None if body is None else json.dumps(body).encode()
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    request = urllib.request.Request(base + path, content, headers, method=method.upper())
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        answer = error
    with closing(answer):
        media_type = answer.headers["content-type"].partition(";")[0]
        return answer.status, media_type, answer.read()


def check(document: dict[str, Any], value: Any, schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator({**schema, "components": document["components"]}).validate(
        value
    )


def schema_of(
    document: dict[str, Any], method: str, path: str, status: int, media_type: str
) -> dict[str, Any]:
    responses = document["paths"][path][method]["responses"]
    described = responses.get(str(status), responses["default"])
    assert str(status) in responses or status >= 400, f"{status} is not described"
    found: dict[str, Any] = described["content"][media_type]["schema"]
    return found


def test_clients_can_be_generated_from_it(document: dict[str, Any]) -> None:
    """Generators such as openapi-python-client stumble over what is checked here."""
    names = list(document["components"]["schemas"])
    classes = [name.replace("_", "").lower() for name in names]
    assert len(set(classes)) == len(names), "two schemas would be one class"
    assert [name for name in names if name.startswith("_")] == []
    assert "Response" not in names, "the generator has a type of this name"

    def arrays_without_items(part: Any) -> Iterator[Any]:
        if isinstance(part, dict):
            if part.get("type") == "array" and not {"items", "prefixItems"} & part.keys():
                yield part
            for each in part.values():
                yield from arrays_without_items(each)
        elif isinstance(part, list):
            for each in part:
                yield from arrays_without_items(each)

    assert list(arrays_without_items(document)) == []


@pytest.mark.parametrize(("method", "path", "body"), ASKED)
def test_answers_are_as_described(
    gateway: GatewayProcess, document: dict[str, Any], method: str, path: str, body: Any
) -> None:
    key = ADMIN_KEY if path.startswith("/admin") else DEVELOPMENT_KEY
    filled = path.format(response_id=run_task(gateway), model="auto") if "{" in path else path
    operation = document["paths"][path][method]
    if isinstance(body, dict) and body and "requestBody" in operation:
        takes = operation["requestBody"]["content"].values()
        schema = next(iter(takes))["schema"]
        if body != {"id": "a"}:
            check(document, body, schema)
    status, media_type, content = sent(gateway, method, filled, body, key=key)
    assert status < 500
    schema = schema_of(document, method, path, status, media_type)
    for line in content.splitlines() if media_type.endswith("ndjson") else [content]:
        check(document, json.loads(line), schema)


def test_what_a_tenant_used_is_described_whole(
    gateway: GatewayProcess, document: dict[str, Any]
) -> None:
    _, _, content = sent(gateway, "get", "/v1/usage", None, key=DEVELOPMENT_KEY)
    said = json.loads(content)["today"].keys()
    assert said == document["components"]["schemas"]["UsedToday"]["properties"].keys()


@pytest.mark.parametrize("body", STREAMED, ids=lambda body: str(body["input"]))
def test_events_are_as_described(
    gateway: GatewayProcess, document: dict[str, Any], body: dict[str, Any]
) -> None:
    asked = body | {"stream": True, "max_output_tokens": 400}
    status, media_type, content = sent(gateway, "post", "/v1/responses", asked, key=DEVELOPMENT_KEY)
    assert (status, media_type) == (200, "text/event-stream")
    schema = schema_of(document, "post", "/v1/responses", status, media_type)
    schemas = document["components"]["schemas"]
    names = [each["$ref"].rpartition("/")[2] for each in schema["anyOf"]]
    by_type = {schemas[name]["properties"]["type"]["enum"][0]: schemas[name] for name in names}
    events = list(told(content))
    assert len(events) > 3
    for event in events:
        check(document, event, by_type[event["type"]])


def told(content: bytes) -> Iterator[dict[str, Any]]:
    for line in content.splitlines():
        if line.startswith(b"data: {"):
            yield json.loads(line[6:])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", CHAT | {"stream": True}),
        (
            "/v1/messages",
            {"model": "auto", "max_tokens": 64, "messages": SAID, "stream": True},
        ),
    ],
)
def test_chunks_are_as_described(
    gateway: GatewayProcess, document: dict[str, Any], path: str, body: dict[str, Any]
) -> None:
    status, media_type, content = sent(gateway, "post", path, body, key=DEVELOPMENT_KEY)
    schema = schema_of(document, "post", path, status, media_type)
    chunks = list(told(content))
    assert chunks
    for chunk in chunks:
        check(document, chunk, schema)


def test_what_is_live_is_as_described(gateway: GatewayProcess, document: dict[str, Any]) -> None:
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    request = urllib.request.Request(f"{gateway.admin_url}/admin/events", headers=headers)
    with closing(urllib.request.urlopen(request, timeout=TIMEOUT_S)) as answer:
        line = next(line for line in answer if line.startswith(b"data: "))
    schema = schema_of(document, "get", "/admin/events", 200, "text/event-stream")
    check(document, json.loads(line[6:]), schema)


def test_every_operation_says_what_it_takes_and_gives(document: dict[str, Any]) -> None:
    """It says that well enough to generate a client."""
    ids = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            ids.append(operation["operationId"])
            given = [status for status in operation["responses"] if status.startswith("2")]
            if (path, method) == ("/v1/responses", "get"):
                assert not given, "without an upgrade it only refuses"
                continue
            for status in given:
                answer = operation["responses"][status]
                assert all(each["schema"] for each in answer["content"].values()), path
            assert given, path
            bare = path.endswith(
                ("/cancel", "/socket_tickets", "/revoke", "/reset", "/restore", "/drain", "/resume")
            )
            assert ("requestBody" in operation) == (
                method in ("post", "put", "patch") and not bare
            ), path
            assert operation.get("security") or not path.startswith(("/v1", "/admin")), path
    assert len(ids) == len(set(ids))


def test_the_page_is_its_own(gateway: GatewayProcess) -> None:
    with urllib.request.urlopen(f"{gateway.admin_url}/schema") as answer:
        page = answer.read().decode()
    assert "/v1/responses" in page
    assert not any(word in page for word in ("<script", "src=", "@import", "<link"))
    assert "default-src 'none'" in page
