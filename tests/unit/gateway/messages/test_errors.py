"""Tests errors, limits and models as Anthropic writes them."""

import anthropic
import httpx
import pytest

from backends.contract import BackendInfo
from gateway.http.model_list import model_list
from gateway.messages.errors import error_body, error_headers, in_messages_terms, status_of
from gateway.messages.models import meant_model, model_entries, model_page
from gateway.messages.ratelimit import anthropic_limits
from gateway.wire.errors import ERRORS, ProtocolError
from router.policy.policy import DEFAULT_POLICY

# code, status, type, whether the SDKs and Claude Code try again
STATUSES = [
    ("invalid_value", 400, "invalid_request_error", False),
    ("invalid_api_key", 401, "authentication_error", False),
    ("insufficient_permissions", 403, "permission_error", False),
    ("model_not_found", 404, "not_found_error", False),
    ("not_found", 404, "not_found_error", False),
    ("conflict", 409, "conflict_error", True),
    ("message_too_large", 413, "request_too_large", False),
    ("rate_limit_exceeded", 429, "rate_limit_error", True),
    ("server_error", 500, "api_error", True),
    ("server_draining", 503, "api_error", True),
    ("server_is_overloaded", 529, "overloaded_error", True),
]


@pytest.mark.parametrize(("code", "status", "kind", "is_retried"), STATUSES)
def test_statuses_and_types(code: str, status: int, kind: str, is_retried: bool) -> None:
    error = ProtocolError(code, "So it is.", retry_after_us=1_500_000)
    assert status_of(error) == status
    assert error_body(error, "req_1") == {
        "type": "error",
        "error": {"type": kind, "message": "So it is."},
        "request_id": "req_1",
    }
    headers = error_headers(error, "req_1")
    assert (headers["request-id"], headers["retry-after"]) == ("req_1", "2")
    assert ("x-should-retry" in headers) != is_retried


def test_the_sdk_has_a_class_for_every_error() -> None:
    client = anthropic.Anthropic(api_key="k")
    for code in ERRORS:
        error = ProtocolError(code, "So it is.")
        answer = httpx.Response(status_of(error), request=httpx.Request("POST", "http://x"))
        body = error_body(error, "req_1")
        made = client._make_status_error("x", body=body, response=answer)
        assert isinstance(made, anthropic.APIStatusError)
        assert made.type == body["error"]["type"]


TOO_LONG = [
    (
        "The prompt has 140000 tokens, but the context window of route 'fast' is at most 131072 "
        "tokens. Shorten it, or ask for another model.",
        "prompt is too long: 140000 tokens > 131072 maximum",
    ),
    (
        "'input' has at least 140000 tokens; the largest window here has 131072. Send less.",
        "prompt is too long: 140000 tokens > 131072 maximum",
    ),
    (
        "This model's maximum context length is 8192 tokens. However, your messages resulted in "
        "9000 tokens.",
        "prompt is too long: 9000 tokens > 8192 maximum",
    ),
    ("It does not fit.", "prompt is too long: It does not fit."),
]


@pytest.mark.parametrize(("message", "words"), TOO_LONG)
def test_a_prompt_that_is_too_long_in_the_words_that_clients_know(message: str, words: str) -> None:
    error = ProtocolError("context_length_exceeded", message)
    assert error_body(error)["error"] == {"type": "invalid_request_error", "message": words}


def test_a_field_has_its_own_name_amid_a_sentence_too() -> None:
    message = "Expected at most 10000 parts in 'input[1].content', got 10001."
    error = ProtocolError("invalid_value", message, param="input[1].content")
    told = in_messages_terms(error, ["messages.0", "messages.4"])
    expected = "Expected at most 10000 parts in 'messages.4.content', got 10001."
    assert told.message == f"messages.4.content: {expected}"


def test_limits_are_those_of_the_pools() -> None:
    headers = {
        "x-ratelimit-limit-requests": "600",
        "x-ratelimit-remaining-requests": "599",
        "x-ratelimit-reset-requests": "12ms",
        "x-ratelimit-limit-tokens": "2000",
        "x-ratelimit-remaining-tokens": "1900",
        "x-ratelimit-reset-tokens": "1h2m0.5s",
    }
    found = anthropic_limits(headers, 1_700_000_000)
    assert len(found) == 12
    assert found["anthropic-ratelimit-requests-limit"] == "600"
    assert found["anthropic-ratelimit-requests-reset"] == "2023-11-14T22:13:21Z"
    for kind in ("tokens", "input-tokens", "output-tokens"):
        assert found[f"anthropic-ratelimit-{kind}-remaining"] == "1900"
        assert found[f"anthropic-ratelimit-{kind}-reset"] == "2023-11-14T23:15:21Z"
    assert anthropic_limits({}, 1_700_000_000) == {}


KNOWN = {"auto", "lanewise-fast", "careful", "claude-opus-5-5"}
MEANT = [
    ("auto", "auto"),
    ("lanewise-fast", "lanewise-fast"),
    ("claude-lanewise-fast", "lanewise-fast"),
    ("claude-lanewise-auto", "auto"),
    ("claude-lanewise-careful", "careful"),
    ("claude-careful", "careful"),
    ("claude-opus-5-5", "claude-opus-5-5"),  # an alias of the policy
    ("claude-sonnet-5-5[1m]", "auto"),
    ("anthropic/claude-4", "auto"),
    ("gpt-9", "gpt-9"),
]


@pytest.mark.parametrize(("name", "model"), MEANT)
def test_which_model_is_meant(name: str, model: str) -> None:
    assert meant_model(name, KNOWN) == model


def test_models_are_listed_in_pages() -> None:
    infos = [
        BackendInfo(
            name=name,
            model=f"lanewise-{name}",
            group="fast",
            window_tokens=window,
            max_output_tokens=99,
        )
        for name, window in (("fast", 1_000), ("deep", 2_000))
    ]
    listed = model_list(infos, DEFAULT_POLICY, 1_700_000_000, ["embed"])
    *entries, relayed = model_entries(listed, 99)
    assert relayed["id"] == "embed"  # and not as "claude-...", which Claude Code would list
    for entry in entries:
        anthropic.types.ModelInfo.model_validate(entry)
    ids = [entry["id"] for entry in entries]
    assert ids == ["auto", "claude-lanewise-auto"] + [
        name
        for group in ("fast", "deep")
        for name in (f"lanewise-{group}", f"claude-lanewise-{group}")
    ]
    assert [entry["max_input_tokens"] for entry in entries[2::2]] == [1_000, 2_000]
    first = model_page(entries, 4, None, None)
    assert (first["has_more"], first["last_id"]) == (True, ids[3])
    rest = model_page(entries, 4, ids[3], None)
    assert ([e["id"] for e in rest["data"]], rest["has_more"]) == (ids[4:], False)
    before = model_page(entries, 2, None, ids[4])
    assert ([e["id"] for e in before["data"]], before["has_more"]) == (ids[2:4], True)
    assert model_page([], 4, None, None)["first_id"] is None
    for unknown in ({"after_id": "gone", "before_id": None}, {"after_id": ids[3], "before_id": ""}):
        with pytest.raises(ProtocolError, match=r"no model '(gone)?' is listed") as caught:
            model_page(entries, 4, **unknown)
        assert caught.value.kind.status == 400
    for limit in (0, -1, 1_001):
        with pytest.raises(ProtocolError, match=f"'limit': expected 1 to 1000, got {limit}") as bad:
            model_page(entries, limit, None, None)
        assert (bad.value.code, bad.value.param) == ("invalid_value", "limit")
