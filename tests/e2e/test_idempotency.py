"""A request with an `Idempotency-Key` is answered and charged once, whoever asks how often."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.gateway_process import (
    CONFIG,
    DEVELOPMENT_KEY,
    FAST_ONLY_KEY,
    SMALL_KEY,
    GatewayProcess,
)

RESPONSES, CHAT, MESSAGES = "/v1/responses", "/v1/chat/completions", "/v1/messages"
MESSAGE: dict[str, Any] = {"messages": [{"role": "user", "content": "Say hello."}]}
BODIES: dict[str, dict[str, Any]] = {
    RESPONSES: {"model": "lanewise-fast", "input": "Say hello.", "store": False},
    CHAT: {"model": "lanewise-fast", **MESSAGE},
    MESSAGES: {"model": "lanewise-fast", "max_tokens": 64, **MESSAGE},
}
LONG = {"model": "lanewise-deep", "input": "Say hello.", "stream": True, "ignore_eos": True}
SLOW = LONG | {"max_output_tokens": 300}  # long enough to be asked again while it runs


@pytest.fixture
async def http(gateway: GatewayProcess) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"authorization": f"Bearer {DEVELOPMENT_KEY}"}
    async with httpx.AsyncClient(base_url=gateway.url, headers=headers, timeout=120) as http:
        yield http


def new_key() -> dict[str, str]:
    return {"idempotency-key": secrets.token_hex(8)}


def is_replayed(answer: httpx.Response) -> bool:
    return answer.headers.get("idempotent-replayed") == "true"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
async def test_asked_again_it_answers_the_same_and_charges_nothing(
    gateway: GatewayProcess, http: httpx.AsyncClient, path: str, stream: bool
) -> None:
    body, key = BODIES[path] | {"stream": stream}, new_key()
    first = await http.post(path, json=body, headers=key)
    assert (first.status_code, is_replayed(first)) == (200, False)
    charged = gateway.metrics().total("lanewise_requests_total")
    again = await http.post(path, json=body, headers=key)
    assert (again.status_code, again.content, is_replayed(again)) == (200, first.content, True)
    assert again.headers["content-type"] == first.headers["content-type"]
    assert not any("ratelimit" in name for name in again.headers)
    assert gateway.metrics().total("lanewise_requests_total") == charged

    # Chunked, it goes through the framework, which knows the key too.

    async def pieces() -> AsyncIterator[bytes]:
        yield again.request.content

    chunked = await http.post(
        path, content=pieces(), headers=key | {"content-type": "application/json"}
    )
    assert (chunked.content, is_replayed(chunked)) == (first.content, True)


async def test_a_key_belongs_to_one_request_of_one_tenant(http: httpx.AsyncClient) -> None:
    key = new_key()
    first = await http.post(RESPONSES, json=BODIES[RESPONSES], headers=key)
    other = await http.post(RESPONSES, json=BODIES[RESPONSES] | {"input": "Hi."}, headers=key)
    error = other.json()["error"]
    assert (other.status_code, error["code"]) == (422, "idempotency_key_reused")
    assert error["param"] == "Idempotency-Key"
    elsewhere = await http.post(MESSAGES, json=BODIES[MESSAGES], headers=key)
    assert (elsewhere.status_code, elsewhere.json()["type"]) == (422, "error")
    theirs = {"authorization": f"Bearer {FAST_ONLY_KEY}"} | key
    answer = await http.post(RESPONSES, json=BODIES[RESPONSES], headers=theirs)
    assert (answer.status_code, is_replayed(answer)) == (200, False)
    assert answer.json()["id"] != first.json()["id"]


@pytest.mark.parametrize("given", ["", "x" * 256])
async def test_a_key_that_is_none_is_refused(http: httpx.AsyncClient, given: str) -> None:
    headers = {"idempotency-key": given}
    answer = await http.post(RESPONSES, json=BODIES[RESPONSES], headers=headers)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "Idempotency-Key")


async def test_asked_twice_at_once_it_runs_once(http: httpx.AsyncClient) -> None:
    key = new_key()
    asking = [http.post(RESPONSES, json=SLOW, headers=key) for _ in range(4)]
    answers = await asyncio.gather(*asking)
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert sorted(map(is_replayed, answers)) == [False, True, True, True]


async def test_it_goes_on_when_its_client_leaves(http: httpx.AsyncClient) -> None:
    key = new_key()
    async with http.stream("POST", RESPONSES, json=SLOW, headers=key) as stream:
        async for line in stream.aiter_lines():
            if line.startswith("event: response.output_text.delta"):
                break
    again = await http.post(RESPONSES, json=SLOW, headers=key)
    assert is_replayed(again)
    assert "event: response.incomplete" in again.text  # by its limit


async def test_what_was_refused_is_not_kept(http: httpx.AsyncClient) -> None:
    key = new_key() | {"authorization": f"Bearer {SMALL_KEY}"}
    while (await http.post(RESPONSES, json=BODIES[RESPONSES], headers=key | new_key())).is_success:
        pass
    refused = await http.post(RESPONSES, json=BODIES[RESPONSES], headers=key)
    assert refused.status_code == 429
    again = await http.post(RESPONSES, json=BODIES[RESPONSES], headers=key)
    assert (again.status_code, is_replayed(again)) == (429, False)
    key = new_key()
    wrong = BODIES[RESPONSES] | {"model": "gpt-0"}
    assert (await http.post(RESPONSES, json=wrong, headers=key)).status_code == 404
    right = await http.post(RESPONSES, json=BODIES[RESPONSES], headers=key)
    assert (right.status_code, is_replayed(right)) == (200, False)


async def test_a_background_response_is_begun_once_whatever_comes_of_it(
    http: httpx.AsyncClient,
) -> None:
    """Its id tells; of one that is streamed the events are the answer."""
    body = LONG | {"max_output_tokens": 16_000, "background": True, "stream": False}
    key = new_key()
    first = await http.post(RESPONSES, json=body, headers=key)
    made = first.json()
    assert made["status"] == "queued"
    await http.post(f"{RESPONSES}/{made['id']}/cancel")
    again = await http.post(RESPONSES, json=body, headers=key)
    assert (again.content, is_replayed(again)) == (first.content, True)
    assert (await http.get(f"{RESPONSES}/{made['id']}")).json()["status"] == "cancelled"
    other = await http.post(RESPONSES, json=body, headers=new_key())
    assert other.json()["id"] != made["id"]
    await http.post(f"{RESPONSES}/{other.json()['id']}/cancel")


async def test_another_gateway_gives_the_same_answer(
    http: httpx.AsyncClient, redis_url: str, tmp_path: Path
) -> None:
    config = tmp_path / "lanewise.toml"
    config.write_text(CONFIG)
    other, key = GatewayProcess(tmp_path, "--config", str(config), "--redis", redis_url), new_key()
    try:
        first = await http.post(CHAT, json=BODIES[CHAT], headers=key)
        other.wait_until_ready()
        again = await http.post(f"{other.url}{CHAT}", json=BODIES[CHAT], headers=key)
        assert (again.content, is_replayed(again)) == (first.content, True)
    finally:
        assert other.stop() == 0
