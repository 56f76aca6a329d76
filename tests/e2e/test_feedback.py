"""Tests feedback on responses, as a client gives it, and what an admin sees of it."""

import re
from typing import Any

import httpx
import pytest
from openai import OpenAI

from tests.e2e.admin_api import ask
from tests.e2e.gateway_process import DEVELOPMENT_KEY, FAST_ONLY_KEY, GatewayProcess

HEADERS = {"authorization": f"Bearer {DEVELOPMENT_KEY}"}


def say(gateway: GatewayProcess, response_id: str, **feedback: Any) -> tuple[int, dict[str, Any]]:
    answer = httpx.post(
        f"{gateway.url}/v1/responses/{response_id}/feedback", json=feedback, headers=HEADERS
    )
    return answer.status_code, answer.json()


def num_feedback(gateway: GatewayProcess) -> float:
    text = httpx.get(f"{gateway.url}/metrics").text
    (value,) = re.findall(r'learning_outcomes_total\{source="feedback"\} (\S+)', text)
    return float(value)


def test_feedback_counts_once_and_shows(gateway: GatewayProcess, client: OpenAI) -> None:
    response = client.responses.create(model="lanewise-fast", input="What is a mutex?")
    before = num_feedback(gateway)
    expected = {"id": response.id, "object": "response.feedback", "success": True, "rating": 0.9}
    for _ in range(2):
        status, body = say(gateway, response.id, success=True, rating=0.9)
        assert (status, body | expected) == (200, body)
    assert num_feedback(gateway) == before + 1
    status, body = say(gateway, response.id, success=False)
    assert (status, body["error"]["code"]) == (409, "conflict")
    assert num_feedback(gateway) == before + 1
    status, view = ask(gateway, "GET", "/admin/learning/dev")
    assert status == 200
    assert view["outcomes"]["fast"] > 0
    assert view["trust"] == 0
    status, views = ask(gateway, "GET", "/admin/learning")
    assert "dev" in {view["tenant"] for view in views}


def test_both_engines_may_be_judged_where_both_answered(
    gateway: GatewayProcess, client: OpenAI
) -> None:
    both = client.responses.create(
        model="auto", input="What is a semaphore?", metadata={"strategy": "breadth"}
    )
    assert say(gateway, both.id, success=True, fast_success=False)[0] == 200
    one = client.responses.create(model="lanewise-fast", input="What is a latch?")
    status, body = say(gateway, one.id, success=True, fast_success=False)
    assert (status, body["error"]["param"]) == (400, "fast_success")


def test_unstored_responses_take_feedback_too(gateway: GatewayProcess, client: OpenAI) -> None:
    response = client.responses.create(model="lanewise-fast", input="What is a fence?", store=False)
    assert say(gateway, response.id, success=False)[0] == 200


def test_a_deleted_response_is_forgotten(gateway: GatewayProcess, client: OpenAI) -> None:
    response = client.responses.create(model="lanewise-fast", input="What is a spinlock?")
    client.responses.delete(response.id)
    assert say(gateway, response.id, success=True)[0] == 404


BAD = (
    ({}, 400, "missing_required_parameter"),
    ({"success": 1}, 400, "invalid_type"),
    ({"success": True, "rating": 2}, 400, "invalid_value"),
    ({"success": True, "stars": 5}, 400, "invalid_value"),
    ({"success": True, "rating": 0.5, "x": "y" * 5_000}, 413, "message_too_large"),
)


@pytest.mark.parametrize(("feedback", "status", "code"), BAD)
def test_bad_feedback_is_refused(
    gateway: GatewayProcess, feedback: dict[str, Any], status: int, code: str
) -> None:
    found, body = say(gateway, "resp_nothing", **feedback)
    assert (found, body["error"]["code"]) == (status, code)


def test_nobody_judges_anothers_response(gateway: GatewayProcess, client: OpenAI) -> None:
    response = client.responses.create(model="lanewise-fast", input="What is a barrier?")
    url = f"{gateway.url}/v1/responses/{response.id}/feedback"
    other = httpx.post(
        url, json={"success": True}, headers={"authorization": f"Bearer {FAST_ONLY_KEY}"}
    )
    assert other.status_code == 404
    assert say(gateway, "resp_nothing", success=True)[0] == 404


def test_an_admin_resets_and_restores(gateway: GatewayProcess, client: OpenAI) -> None:
    response = client.responses.create(model="lanewise-fast", input="What is a queue?")
    say(gateway, response.id, success=True)
    _, before = ask(gateway, "GET", "/admin/learning/dev")
    status, view = ask(gateway, "POST", "/admin/learning/dev/reset", {})
    assert (status, view["outcomes"]) == (200, {"fast": 0, "deep": 0})
    status, view = ask(gateway, "POST", "/admin/learning/dev/restore", {})
    assert status == 200
    assert 0 < view["outcomes"]["fast"] <= before["outcomes"]["fast"]
    status, body = ask(gateway, "POST", "/admin/learning/dev/restore", {})
    assert (status, body["error"]["code"]) == (409, "conflict")
    assert ask(gateway, "GET", "/admin/learning/nobody")[0] == 404
