"""Tests errors on the wire: statuses, retry headers, and the protocol's words for bad input."""

import json
from typing import Literal

import msgspec
import pytest

from backends.upstream.answer.errors import CLIENT_CODES
from gateway.wire.errors import ERRORS, ProtocolError, from_validation
from tests.e2e.events import check_event


class _Inner(msgspec.Struct):
    name: str
    sizes: list[int] = []
    color: Literal["red", "blue"] | None = None


class _Outer(msgspec.Struct):
    inner: _Inner | None = None
    inners: list[_Inner] = []


# document, prefix, code, param, what the message must hold
COMPLAINTS: list[tuple[str, str, str, str | None, str]] = [
    ("[]", "", "invalid_type", None, "Invalid request body: Expected `object`, got `array`."),
    ("[]", "input[3]", "invalid_type", "input[3]", "Invalid 'input[3]':"),
    ('{"inner":5}', "", "invalid_type", "inner", "`object | null`, got `int`"),
    ('{"inner":{}}', "", "missing_required_parameter", "inner.name", "parameter: 'inner.name'."),
    ('{"inner":{}}', "x", "missing_required_parameter", "x.inner.name", "'x.inner.name'"),
    ('{"inners":[{"name":"a"},{}]}', "", "missing_required_parameter", "inners[1].name", ""),
    (
        '{"inner":{"name":"a","color":"pink"}}',
        "",
        "invalid_value",
        "inner.color",
        "Invalid 'inner.color': expected 'blue', 'red', got 'pink'.",
    ),
    ('{"inners":[{"name":"a","color":""}]}', "", "invalid_value", "inners[0].color", "got ''."),
    ('{"inner":{"name":"a","sizes":[1,"b"]}}', "x", "invalid_type", "x.inner.sizes[1]", "`int`"),
]


@pytest.mark.parametrize(("document", "prefix", "code", "param", "words"), COMPLAINTS)
def test_complaints_name_the_field(
    document: str, prefix: str, code: str, param: str | None, words: str
) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(document, type=_Outer)
    error = from_validation(caught.value, _Outer, prefix)
    assert (error.code, error.param) == (code, param)
    assert words in error.message


# retry_after_us, retry-after, retry-after-ms
WAITS = [
    (0, "1", "1"),
    (1, "1", "1"),
    (999, "1", "1"),
    (1_001, "1", "2"),
    (1_000_000, "1", "1000"),
    (1_000_001, "2", "1001"),
    (59_000_001, "60", "59001"),
    (3_600_000_000, "3600", "3600000"),
]


@pytest.mark.parametrize(("wait_us", "seconds", "milliseconds"), WAITS)
def test_waits_are_rounded_up(wait_us: int, seconds: str, milliseconds: str) -> None:
    error = ProtocolError("rate_limit_exceeded", "Wait.", retry_after_us=wait_us)
    assert error.headers == {"retry-after": seconds, "retry-after-ms": milliseconds}


@pytest.mark.parametrize("code", ERRORS)
def test_every_code_makes_a_valid_event_and_body(code: str) -> None:
    error = ProtocolError(code, "Expected this, got that.", param="p", retry_after_us=1)
    event = json.loads(error.event("s"))
    check_event(event)
    assert event["status"] == ERRORS[code].socket_status
    assert event["stream_id"] == "s"
    assert event["error"]["headers"]["retry-after"] == "1"
    assert error.body() == {
        "error": {
            "message": "Expected this, got that.",
            "type": ERRORS[code].type,
            "param": "p",
            "code": code,
        }
    }


def test_an_error_of_the_connection_names_no_stream() -> None:
    event = json.loads(ProtocolError("invalid_json", "No.").event(None))
    assert "stream_id" not in event
    assert "headers" not in event["error"]
    assert event["error"]["param"] is None


def test_an_unknown_code_counts_as_a_server_error() -> None:
    error = ProtocolError("upstream_burnt", "It burnt.")
    assert error.kind == ERRORS["server_error"]
    assert error.body()["error"]["code"] == "upstream_burnt"
    assert str(error) == "upstream_burnt: It burnt."


def test_headers_are_the_errors_own() -> None:
    given = {"x-ratelimit-limit-requests": "1"}
    error = ProtocolError("rate_limit_exceeded", "Wait.", retry_after_us=1, headers=given)
    assert given == {"x-ratelimit-limit-requests": "1"}
    assert set(error.headers) == {"x-ratelimit-limit-requests", "retry-after", "retry-after-ms"}


@pytest.mark.parametrize("code", sorted(CLIENT_CODES))
def test_what_an_upstream_finds_wrong_with_a_request_is_no_fault_of_ours(code: str) -> None:
    error = ProtocolError(code, "no")
    # SDKs repeat what is a 500, and never a 400.
    assert (error.kind.status, error.kind.socket_status) == (400, 400)
    assert error.body()["error"]["type"] == "invalid_request_error"
