"""Embeddings and legacy completions go to the server that has the model, as its own clients ask."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import (
    APIStatusError,
    APITimeoutError,
    AuthenticationError,
    BadRequestError,
    NotFoundError,
    OpenAI,
    PermissionDeniedError,
    RateLimitError,
)

from tests.e2e.admin_api import ask
from tests.e2e.gateway_process import (
    CONFIG,
    DEVELOPMENT_KEY,
    FAST_ONLY_KEY,
    SMALL_KEY,
    GatewayProcess,
    served_cleanly,
)
from tests.e2e.relayed_server import KEY, WORDS, RelayedServer, relayed_server

RELAY = """
[[relays]]
path = "{path}"
model = "{model}"
upstream_model = "theirs"
base_url = "http://127.0.0.1:{port}/v1"
key_env = "RELAY_KEY"
{more}
"""
BLOCKED_KEY = "sk-blocked-tenant"
BLOCKED = f"""
[[tenants]]
id = "blocked"
keys = ["{BLOCKED_KEY}"]
limits.fast = {{ requests_per_min = 0, tokens_per_min = 1000, max_concurrent = 1 }}
"""
REPORTED = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


@pytest.fixture(scope="module")
def server() -> Iterator[RelayedServer]:
    with relayed_server() as server:
        yield server


@pytest.fixture(scope="module")
def relaying(
    server: RelayedServer, tmp_path_factory: pytest.TempPathFactory, redis_url: str
) -> Iterator[GatewayProcess]:
    folder: Path = tmp_path_factory.mktemp("relays")
    port = server.server_address[1]
    relays = (
        RELAY.format(path="embeddings", model="embed", port=port, more=""),
        RELAY.format(path="completions", model="complete", port=port, more=""),
        RELAY.format(path="embeddings", model="deep-embed", port=port, more='group = "deep"'),
        RELAY.format(path="embeddings", model="org/embed", port=port, more=""),
    )
    config = folder / "relays.toml"
    price = '[[prices]]\nmodel = "embed"\ninput = 2.0\noutput = 0\n'
    config.write_text(CONFIG + BLOCKED + price + "".join(relays))
    with served_cleanly(config, redis_url, environ={"RELAY_KEY": KEY}) as process:
        yield process


@pytest.fixture
def asked(relaying: GatewayProcess, server: RelayedServer) -> Iterator[OpenAI]:
    server.status, server.usage, server.breaks_off = 200, REPORTED, False
    server.said, server.param, server.odd, server.indent = None, "input", None, None
    server.bodies.clear()
    with client_of(relaying) as client:
        yield client


def client_of(gateway: GatewayProcess, key: str = DEVELOPMENT_KEY) -> OpenAI:
    return OpenAI(base_url=gateway.base_url, api_key=key, max_retries=0)


def test_embeddings_are_passed_on_and_charged_as_reported(
    relaying: GatewayProcess, asked: OpenAI, server: RelayedServer
) -> None:
    before = asked.get("/usage", cast_to=dict[str, Any])["today"]
    made = asked.embeddings.create(model="embed", input="a text", encoding_format="float")
    assert made.data[0].embedding == [0.5, -0.25]
    assert (made.model, server.bodies[0]["model"]) == ("embed", "theirs")
    after = asked.get("/usage", cast_to=dict[str, Any])["today"]
    assert after["tasks"] == before.get("tasks", 0) + 1
    assert after["input_tokens"] == before.get("input_tokens", 0) + 7
    assert after["cost_usd"] == pytest.approx(before.get("cost_usd", 0) + 7 * 2e-6)
    assert {"embed", "complete"} <= {model.id for model in asked.models.list()}


@pytest.mark.parametrize("name", ["org/embed", "org%2Fembed"])
@pytest.mark.parametrize("headers", [{}, {"anthropic-version": "2023-06-01"}])
def test_a_model_with_a_slash_in_its_name_is_found(
    relaying: GatewayProcess, name: str, headers: dict[str, str]
) -> None:
    url = f"{relaying.base_url}/models/{name}"
    headers = headers | {"authorization": f"Bearer {DEVELOPMENT_KEY}"}
    found = httpx.get(url, headers=headers)
    assert (found.status_code, found.json()["id"]) == (200, "org/embed"), found.text
    assert httpx.head(url, headers=headers).status_code == 200
    assert httpx.post(url, headers=headers).headers["allow"] == "GET, HEAD"
    missing = httpx.get(f"{url}/x", headers=headers)
    assert (missing.status_code, "org/embed/x" in missing.text) == (404, True)


def test_completions_are_passed_on_whole_and_as_events(
    asked: OpenAI, server: RelayedServer
) -> None:
    whole = asked.completions.create(model="complete", prompt="Count.", max_tokens=9)
    assert whole.choices[0].text == "".join(WORDS)
    stream = asked.completions.create(model="complete", prompt="Count.", stream=True)
    chunks = list(stream)
    assert [chunk.choices[0].text for chunk in chunks] == list(WORDS)  # no event of the usage
    assert {chunk.model for chunk in chunks} == {"complete"}
    told = asked.completions.create(
        model="complete", prompt="Count.", stream=True, stream_options={"include_usage": True}
    )
    last = list(told)[-1]
    assert last.usage is not None
    assert last.usage.completion_tokens == 3


def test_what_is_charged_is_bounded_by_the_request(asked: OpenAI, server: RelayedServer) -> None:
    server.usage = {"prompt_tokens": 10**12, "completion_tokens": 10**12, "total_tokens": 10**12}
    before = asked.get("/usage", cast_to=dict[str, Any])["today"]
    asked.completions.create(model="complete", prompt="Count.", max_tokens=5, n=2)
    after = asked.get("/usage", cast_to=dict[str, Any])["today"]
    assert after["output_tokens"] - before.get("output_tokens", 0) == 10
    assert 0 < after["input_tokens"] - before.get("input_tokens", 0) < 200


def test_a_completion_without_a_prompt_is_charged_and_bounded(asked: OpenAI) -> None:
    before = asked.get("/usage", cast_to=dict[str, Any])["today"]
    asked.post("/completions", body={"model": "complete", "max_tokens": 9}, cast_to=object)
    after = asked.get("/usage", cast_to=dict[str, Any])["today"]
    output_tokens = REPORTED["completion_tokens"]
    assert after["output_tokens"] == before.get("output_tokens", 0) + output_tokens
    body = {"model": "complete", "max_tokens": 1_000_000}
    with pytest.raises(BadRequestError, match="expected at most"):
        asked.post("/completions", body=body, cast_to=object)


@pytest.mark.parametrize(
    ("status", "kind"), [(400, 400), (401, 500), (429, 429), (500, 500), (503, 503)]
)
def test_a_servers_errors_are_told_without_its_key(
    asked: OpenAI, server: RelayedServer, status: int, kind: int
) -> None:
    server.status = status
    for stream in (False, True):
        with pytest.raises(APIStatusError) as failed:
            asked.completions.create(model="complete", prompt="Count.", stream=stream)
        assert failed.value.status_code == kind
        assert KEY not in failed.value.message
        assert status != 429 or "retry-after" in failed.value.response.headers


def test_an_event_of_another_shape_is_passed_on(
    relaying: GatewayProcess, asked: OpenAI, server: RelayedServer
) -> None:
    server.odd = {"choices": {"0": "?"}, "model": "theirs"}
    body = {"model": "complete", "prompt": "Count.", "stream": True}
    headers = {"authorization": f"Bearer {DEVELOPMENT_KEY}"}
    told = httpx.post(f"{relaying.base_url}/completions", json=body, headers=headers).text
    assert '"choices":{"0":"?"}' in told.replace(" ", "")
    assert WORDS[-1] in told
    assert told.endswith("data: [DONE]\n\n")


def test_a_stream_that_breaks_off_ends_with_an_error(asked: OpenAI, server: RelayedServer) -> None:
    server.breaks_off = True
    with pytest.raises(Exception, match="broke off"):
        list(asked.completions.create(model="complete", prompt="Count.", stream=True))


def test_an_answer_in_place_of_events_is_one_event(asked: OpenAI, server: RelayedServer) -> None:
    choices = [{"index": 0, "text": "Whole.", "finish_reason": "stop"}]
    server.said = {"model": "theirs", "choices": choices, "usage": REPORTED}
    chunks = list(asked.completions.create(model="complete", prompt="Count.", stream=True))
    assert [(chunk.model, chunk.choices[0].text) for chunk in chunks] == [("complete", "Whole.")]


@pytest.mark.parametrize("is_whole", [False, True])
def test_what_a_server_lays_out_in_lines_is_an_event_of_one(
    asked: OpenAI, server: RelayedServer, is_whole: bool
) -> None:
    server.indent = 1
    if is_whole:
        server.said = {"choices": [{"index": 0, "text": "".join(WORDS)}], "usage": REPORTED}
    chunks = list(asked.completions.create(model="complete", prompt="Count.", stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == "".join(WORDS)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("kind", "status"), [("invalid_request_error", 400), ("x", 500)])
def test_an_error_that_came_as_an_answer_is_one(
    asked: OpenAI, server: RelayedServer, stream: bool, kind: str, status: int
) -> None:
    server.said = {"error": {"message": "no such thing", "type": kind}}
    before = asked.get("/usage", cast_to=dict[str, Any])["today"]
    with pytest.raises(APIStatusError, match="no such thing") as failed:
        asked.completions.create(model="complete", prompt="Count.", stream=stream)
    assert failed.value.status_code == status
    after = asked.get("/usage", cast_to=dict[str, Any])["today"]
    is_charged = after["output_tokens"] > before.get("output_tokens", 0)
    assert is_charged == (status == 500)  # then nobody knows what was generated


def test_an_error_names_the_field_as_the_client_does(asked: OpenAI, server: RelayedServer) -> None:
    server.status, server.param = 400, "max_tokens"
    with pytest.raises(BadRequestError) as failed:
        asked.completions.create(model="complete", prompt="Count.", max_tokens=7)
    assert failed.value.param == "max_tokens"


@pytest.mark.parametrize("stream", [False, True])
def test_one_idempotency_key_is_answered_once(
    asked: OpenAI, server: RelayedServer, stream: bool
) -> None:
    headers = {"Idempotency-Key": f"relays-{stream}"}
    url = f"{asked.base_url}completions"
    body = {"model": "complete", "prompt": "Count.", "stream": stream}
    headers["authorization"] = f"Bearer {DEVELOPMENT_KEY}"
    first, again = (httpx.post(url, json=body, headers=headers) for _ in range(2))
    assert (first.status_code, again.content) == (200, first.content)
    assert again.headers.get("idempotent-replayed") == "true"
    assert len(server.bodies) == 1


def test_a_key_that_is_revoked_meanwhile_is_told(
    relaying: GatewayProcess, asked: OpenAI, server: RelayedServer
) -> None:
    ask(relaying, "POST", "/admin/tenants", {"id": "acme", "tier": "enterprise"})
    _, made = ask(relaying, "POST", "/admin/keys", {"tenant": "acme"})
    server.may_answer.clear()
    try:
        with client_of(relaying, made["key"]) as client, ThreadPoolExecutor() as pool:
            embedding = pool.submit(client.embeddings.create, model="embed", input="x")
            while not server.bodies:
                time.sleep(0.01)
            ask(relaying, "POST", f"/admin/keys/{made['record']['id']}/revoke", b"{}")
            with pytest.raises(AuthenticationError, match="revoked"):
                embedding.result()
    finally:
        server.may_answer.set()


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_before_the_answer_holds_nothing(
    relaying: GatewayProcess, asked: OpenAI, server: RelayedServer, stream: bool
) -> None:
    def places() -> int:
        pools = asked.get("/usage", cast_to=dict[str, Any])["pools"]
        places = [pool for pool in pools if pool["unit"] == "concurrent"]
        return sum(pool["limit"] - pool["remaining"] for pool in places)

    server.may_answer.clear()
    try:
        with client_of(relaying) as leaving, ThreadPoolExecutor() as pool:
            asking = pool.submit(
                leaving.completions.create,
                model="complete",
                prompt="Count.",
                stream=stream,
                timeout=0.5,
            )
            while not places():
                time.sleep(0.01)
            with pytest.raises(APITimeoutError):
                asking.result()
        while places():  # although the server has not answered yet
            time.sleep(0.01)
    finally:
        server.may_answer.set()


def test_what_cannot_be_passed_on_says_why(relaying: GatewayProcess, asked: OpenAI) -> None:
    with pytest.raises(NotFoundError, match="Models for embeddings: embed, deep-embed, org/embed"):
        asked.embeddings.create(model="complete", input="x")
    with pytest.raises(BadRequestError, match="max_tokens"):
        asked.completions.create(model="complete", prompt=["x"] * 5, max_tokens=32_000)
    with client_of(relaying, FAST_ONLY_KEY) as client, pytest.raises(PermissionDeniedError):
        client.embeddings.create(model="deep-embed", input="x")
    with client_of(relaying, SMALL_KEY) as client:
        asks = [client.embeddings.with_raw_response] * 10
        with pytest.raises(RateLimitError) as refused:
            [each.create(model="embed", input="x") for each in asks]
    headers = refused.value.response.headers
    assert float(headers["retry-after"]) >= 1
    assert f'"fast-requests";r=0;t={headers["retry-after"]}' in headers["ratelimit"]
    assert refused.value.body["violated-policies"] == ["fast-requests"]  # type: ignore[index]
    assert "Please try again in" in refused.value.message


def test_a_limit_of_zero_asks_for_no_retry(relaying: GatewayProcess) -> None:
    with client_of(relaying, BLOCKED_KEY) as client, pytest.raises(RateLimitError) as refused:
        client.embeddings.create(model="embed", input="x")
    headers = refused.value.response.headers
    assert (headers.get("retry-after"), headers["x-should-retry"]) == (None, "false")
    assert "An admin can raise it" in refused.value.message


def test_an_image_is_not_fetched_from_where_clients_may_not_point(
    asked: OpenAI, server: RelayedServer
) -> None:
    def body(url: str) -> dict[str, Any]:
        part = {"type": "image_url", "image_url": {"url": url}}
        return {"model": "embed", "messages": [{"role": "user", "content": [part]}]}

    for url in ("file:///etc/passwd", "http://169.254.169.254/", "https://localhost/a.png"):
        with pytest.raises(BadRequestError) as refused:
            asked.post("/embeddings", body=body(url), cast_to=object)
        assert refused.value.code == "invalid_image_url"
        assert refused.value.param == "messages[0].content[0].image_url.url"
    assert not server.bodies, "the server is not asked"
    asked.post("/embeddings", body=body("https://example.com/a.png"), cast_to=object)
    assert server.bodies == [body("https://example.com/a.png") | {"model": "theirs"}]
