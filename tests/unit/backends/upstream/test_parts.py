"""Tests the small parts of upstreams: SSE, stop sequences, errors, health, options."""

import json
import random

import pytest

from backends.net.sse import MAX_EVENT_BYTES, EventParser, EventTooLongError
from backends.stop_sequences import StopFinder
from backends.upstream.answer.errors import WireError, event_failure, http_failure
from backends.upstream.health import Health
from backends.upstream.options import check_options, http_url, socket_url
from tests.unit.backends.upstream.upstream_requests import make_options

SECOND = 1_000_000

STREAM = (
    b": hello\n\nevent: a\ndata: one\n\ndata:two\r\n\r\n"
    b"id: 3\nretry: 9\ndata: th\ndata: ree\n\n\ndata: [DONE]\n\ndata: unfinished"
)


def test_events_come_whole_wherever_the_stream_is_cut() -> None:
    expected = [b"one", b"two", b"th\nree", b"[DONE]"]
    assert EventParser().feed(STREAM) == expected
    for seed in range(50):
        chance, parser = random.Random(seed), EventParser()
        found: list[bytes] = []
        rest = STREAM
        while rest:
            size = chance.randint(1, 9)
            found += parser.feed(rest[:size])
            rest = rest[size:]
        assert found == expected, f"seed {seed}"


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_lines_end_in_any_of_the_three_ways(end: bytes, mark: bytes) -> None:
    stream = mark + (b"data: zero\n\n" + STREAM).replace(b"\r\n", b"\n").replace(b"\n", end)
    for size in range(1, 9):
        parser = EventParser()
        found = [
            event
            for start in range(0, len(stream), size)
            for event in parser.feed(stream[start : start + size])
        ]
        assert found == [b"zero", b"one", b"two", b"th\nree", b"[DONE]"], size


@pytest.mark.parametrize("size", [1, 2, 99])
def test_an_object_behind_a_byte_order_mark_is_one(size: int) -> None:
    parser, sent = EventParser(), b'\xef\xbb\xbf\r\n{"a":\r\n\r\n1}'
    for start in range(0, len(sent), size):
        assert parser.feed(sent[start : start + size]) == []
    assert json.loads(parser.whole) == {"a": 1}


def test_plain_events_are_found_as_line_by_line() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    parts = [b"event: a\n", b"event:b\r\n", b"data: one\n", b"data:two\n", b"data: \n", b"data\n"]
    parts += [b"data: three\r\n", b": hello\n", b"\n", b"\n", b"\n", b"\r\n", b"id: data: x\n"]
    plain = b"event: a\ndata: one\n\n"
    num_events = 0
    for _ in range(2_000):
        quick, slow = EventParser(), EventParser()
        for _ in range(3):
            mixed = b"".join(chance.choices(parts, k=chance.randrange(8)))
            chunk = plain * chance.randrange(3) + mixed
            expected = slow.feed_lines(chunk) if chunk else []
            assert quick.feed(chunk) == expected, chunk
            num_events += len(expected)
    assert num_events > 2_000


@pytest.mark.parametrize("begin", [b"{", b"\n {"])
def test_an_object_in_place_of_events_comes_whole(begin: bytes) -> None:
    parser, rest = EventParser(1_000), b'\n"a":\n\ndata: 1\n\n}'
    assert [parser.feed(part) for part in (begin, rest)] == [[], []]
    assert json.loads(parser.whole.replace(b"data: ", b"")) == {"a": 1}
    with pytest.raises(EventTooLongError):
        parser.feed(b"x" * 2_000)
    stream = EventParser()
    assert [stream.feed(part) for part in (b"data: one\n\n", begin + rest)] == [[b"one"], [b"1"]]
    assert stream.whole == b""


def test_an_event_is_bounded() -> None:
    parser, line = EventParser(), b"data: " + b"x" * (1 << 20) + b"\n"
    for _ in range(MAX_EVENT_BYTES >> 20):
        assert parser.feed(line) == []
    with pytest.raises(EventTooLongError):
        parser.feed(line)


def test_comments_between_events_may_be_as_many_as_the_events() -> None:
    parser = EventParser(max_event_bytes=4_096)
    for _ in range(1_000):
        assert parser.feed(b": still working\n\n") == []
        assert parser.feed(b"data: 1\n\n") == [b"1"]


@pytest.mark.parametrize("junk", [b": " + b"x" * 1_000 + b"\n\n", b"\n", b"id: 7\n", b"x" * 1_000])
def test_what_is_no_event_is_bounded(junk: bytes) -> None:
    parser = EventParser(max_event_bytes=4_096)

    def flood() -> None:
        for _ in range(8_193):
            assert parser.feed(junk) == []

    with pytest.raises(EventTooLongError):
        flood()


@pytest.mark.parametrize(
    ("stops", "texts", "shown", "found"),
    [
        ((), ["ab"], "ab", None),
        (("END",), ["a", "b"], "ab", None),
        (("END",), ["aEND", "b"], "a", "END"),
        (("END",), ["aE", "N", "Db"], "a", "END"),
        (("END",), ["aE", "N", "x"], "aENx", None),
        (("END",), ["EEEN", "D"], "EE", "END"),
        (("\n\n", "b"), ["a\n", "\nb"], "a", "\n\n"),
        (("ate", "l"), ["a late"], "a ", "l"),
    ],
)
def test_stop_sequences(
    stops: tuple[str, ...], texts: list[str], shown: str, found: str | None
) -> None:
    finder = StopFinder(stops)
    said = "".join(finder.feed(text) for text in texts)
    assert finder.found == found
    assert said + ("" if found else finder.rest()) == shown


def in_words(words: str) -> bytes:
    return json.dumps({"error": {"message": words}}).encode()


BAD_KEY = in_words("API key not valid.")  # Gemini's, with a 400


# Status, body, headers -> code, retryable, blame, seconds to wait.
KNOWN = b'{"error":{"message":"bad","code":"invalid_value"}}'
UNKNOWN = b'{"error":{"message":"x","code":"made_up"}}'
TOO_LONG = b'{"error":{"message":"maximum context length is 8"}}'
QUOTA = b'{"error":{"code":"insufficient_quota"}}'
QUOTING = b'{"error":{"message":"key sk-1234"}}'
IN_WORDS = b'{"error":{"message":"Limit reached. Please try again in 1.5s."}}'
DATE, DATE_7 = "Fri, 20 Nov 2026 10:00:00 GMT", "Fri, 20 Nov 2026 10:00:07 GMT"
REFUSED = (302, 401, 403, 404, 407, 412, 421, 451)
LIMITED = ("rate_limit_exceeded", True, "limit")
BOTH = {"retry-after-ms": "50", "retry-after": "1"}
ERRORS: list[tuple[int, bytes, dict[str, str], str, bool, str, float | None]] = [
    (400, KNOWN, {}, "invalid_value", False, "request", None),
    (400, UNKNOWN, {}, "invalid_prompt", False, "request", None),
    (400, TOO_LONG, {}, "context_length_exceeded", False, "request", None),
    (422, b'{"detail":"bad"}', {}, "invalid_prompt", False, "request", None),
    (302, b"", {}, "server_error", True, "upstream", None),
    (401, QUOTING, {}, "server_error", True, "upstream", None),
    (403, b"", {}, "server_error", True, "upstream", None),
    (404, b"not here", {}, "server_error", True, "upstream", None),
    (429, b"", {"retry-after": "7"}, "rate_limit_exceeded", True, "limit", 7.0),
    (429, b"", BOTH, "rate_limit_exceeded", True, "limit", 0.05),
    (429, b"", {"retry-after": "Fri, 20 Nov"}, "rate_limit_exceeded", True, "limit", None),
    (429, b"", {"retry-after": DATE_7}, *LIMITED, None),
    (429, b"", {"retry-after": DATE_7, "date": DATE}, *LIMITED, 7.0),
    (429, b"", {"retry-after": DATE, "date": DATE_7}, *LIMITED, 0.0),
    (429, b"", {"retry-after": "20 Nov 2026 10:00:00", "date": DATE}, *LIMITED, None),
    (429, in_words("retry in 1m12.5s."), {}, *LIMITED, 72.5),
    (429, in_words("Try again in 2h3m"), {}, *LIMITED, 7_380.0),
    (429, in_words("retry after 6 seconds"), {}, *LIMITED, 6.0),
    (429, in_words("try again in 20 milliseconds"), {}, *LIMITED, 0.02),
    (429, in_words("try again in 5 days"), {}, *LIMITED, None),
    (429, in_words(f"try again in {'9' * 400}h"), {}, *LIMITED, None),
    (429, in_words(f"try again in {'9' * 5_000}m1s"), {}, *LIMITED, None),
    (429, IN_WORDS, {}, "rate_limit_exceeded", True, "limit", 1.5),
    (429, IN_WORDS, {"retry-after": "7"}, "rate_limit_exceeded", True, "limit", 7.0),
    (429, QUOTA, {}, "server_error", True, "upstream", None),
    (400, BAD_KEY, {}, "server_error", True, "upstream", None),
    (407, b"", {}, "server_error", True, "upstream", None),
    (412, in_words("Account suspended"), {}, "server_error", True, "upstream", None),
    (421, b"", {}, "server_error", True, "upstream", None),
    (451, b"", {}, "server_error", True, "upstream", None),
    (424, in_words("generation failed"), {}, "server_error", True, "upstream", None),
    (498, b"", {}, "server_is_overloaded", True, "upstream", None),
    (529, b"", {}, "server_is_overloaded", True, "upstream", None),
    (500, b"<html>", {}, "server_error", True, "upstream", None),
    (503, b'{"error":"busy"}', {}, "server_is_overloaded", True, "upstream", None),
]


@pytest.mark.parametrize(
    ("status", "body", "headers", "code", "retryable", "blame", "wait_s"), ERRORS
)
def test_errors(
    status: int,
    body: bytes,
    headers: dict[str, str],
    code: str,
    retryable: bool,
    blame: str,
    wait_s: float | None,
) -> None:
    failure = http_failure("up", status, body, headers)
    assert (failure.error.code, failure.error.retryable) == (code, retryable)
    assert failure.blame == blame
    assert failure.error.retry_after_us == (None if wait_s is None else int(wait_s * SECOND))
    assert failure.unused
    assert failure.refused is (status in REFUSED or body in (QUOTA, BAD_KEY))
    assert "sk-1234" not in str(failure), "upstreams quote keys"


def test_an_operator_reads_why_a_server_refuses_us_and_a_client_does_not() -> None:
    missing = http_failure("up", 404, in_words("model `x` not found"), {})
    assert "model `x`" in missing.told
    assert "model `x`" not in missing.error.message
    assert "sk-1234" not in http_failure("up", 401, QUOTING, {}).told


@pytest.mark.parametrize(
    ("code", "ours"),
    [
        ("invalid_image_url", "invalid_image_url"),
        ("invalid_base64_image", "invalid_image"),
        ("image_file_too_large", "image_too_large"),
        ("image_content_policy_violation", "invalid_prompt"),
    ],
)
def test_a_failed_response_may_be_the_requests_fault(code: str, ours: str) -> None:
    failure = event_failure("up", WireError("no", code))
    assert (failure.error.code, failure.error.retryable) == (ours, False)
    assert failure.blame == "request", "the upstream's health has nothing to do with it"


@pytest.mark.parametrize(
    ("type_", "code", "ours"),
    [
        ("overloaded_error", None, "server_is_overloaded"),  # Anthropic
        ("rate_limit_error", None, "rate_limit_exceeded"),
        (None, "429", "rate_limit_exceeded"),  # Azure
        (None, "503", "server_is_overloaded"),
        (None, "1300", "server_error"),
    ],
)
def test_errors_amid_a_stream(type_: str | None, code: str | None, ours: str) -> None:
    assert event_failure("up", WireError("no", code, type_)).error.code == ours


@pytest.mark.parametrize(
    ("param", "ours"),
    [
        ("input[0].content", "input[0].content"),
        ("tools", "tools"),
        ("messages[3].content", "input"),
        ("max_completion_tokens", "max_output_tokens"),
        ("response_format.type", "text.format"),
        ("", None),
        ("x" * 999, "x" * 200),
    ],
)
def test_the_field_that_an_upstream_found_wrong_is_carried(param: str, ours: str | None) -> None:
    error = {"message": "bad", "code": "invalid_value", "param": param}
    body = json.dumps({"error": error}).encode()
    assert http_failure("up", 400, body, {}).error.param == ours
    told = event_failure("up", WireError("bad", "invalid_value", param=param))
    assert (told.error.code, told.error.param) == ("invalid_value", ours)
    assert http_failure("up", 500, body, {}).error.param is None, "that is not the request's fault"


def test_a_key_that_an_event_refuses_is_not_the_clients_fault() -> None:
    quoting = WireError(
        "Incorrect API key provided: sk-secret.", "invalid_api_key", "invalid_request_error"
    )
    failure = event_failure("up", quoting)
    assert (failure.blame, failure.refused, failure.error.retryable) == ("upstream", True, True)
    assert "sk-secret" not in failure.error.message


def test_an_upstream_is_unhealthy_until_it_answers() -> None:
    health = Health(make_options(max_num_seqs=100))
    assert not health.healthy(0)
    health.on_probe(True, 0)
    assert health.room(0) == 100, "a first answer needs no slow start"
    assert health.out_us(0) == 0
    health.on_probe(False, SECOND)
    assert health.room(SECOND) == 0
    assert health.out_us(SECOND) == make_options().probe_interval_s * SECOND, "the next probe's"
    health.on_probe(True, 2 * SECOND)
    assert health.room(2 * SECOND) == 10
    assert health.room(17 * SECOND) == 50
    assert health.room(32 * SECOND) == 100


def test_failures_in_a_row_eject_for_longer_each_time() -> None:
    health = Health(make_options(probe_path=None, eject_after=2, slow_start_s=0))
    health.on_failure(0)
    health.on_success(0)
    health.on_failure(0)
    assert health.healthy(0), "not in a row"
    health.on_failure(0)
    assert not health.healthy(30 * SECOND - 1)
    assert health.out_for(30 * SECOND - 1) == "failures"
    assert health.healthy(30 * SECOND)
    assert health.out_for(30 * SECOND) == ""
    assert [health.out_us(at) for at in (10 * SECOND, 30 * SECOND)] == [20 * SECOND, 0]
    health.on_failure(40 * SECOND)
    health.on_failure(40 * SECOND)
    assert not health.healthy(100 * SECOND - 1)
    assert health.healthy(100 * SECOND)
    health.on_success(100 * SECOND)
    health.on_failure(110 * SECOND)
    health.on_failure(110 * SECOND)
    assert health.healthy(140 * SECOND), "a success makes the next ejection the first again"


def test_what_fails_together_ejects_once() -> None:
    """A server that goes away breaks all of its streams, and their next attempts, at once."""
    health = Health(make_options(probe_path=None, eject_after=5))
    for at in range(64):
        health.on_failure(at)
    assert health.healthy(31 * SECOND)
    for at in range(5):
        health.on_failure(31 * SECOND + at)
    assert not health.healthy(90 * SECOND), "it failed again, so for longer"


def test_what_was_ejected_starts_slowly() -> None:
    health = Health(make_options(probe_path=None, eject_after=1, max_num_seqs=10))
    health.on_failure(0)
    assert health.room(30 * SECOND) == 1
    assert health.room(45 * SECOND) == 5
    assert health.room(60 * SECOND) == 10


def test_a_server_that_asks_for_a_pause_gets_it() -> None:
    health = Health(make_options(probe_path=None))
    health.on_limit(0, None)
    assert not health.healthy(SECOND - 1), "it does not say for how long, but that it is limited"
    assert health.healthy(SECOND)
    health.on_limit(0, 5 * SECOND)
    assert not health.healthy(5 * SECOND - 1)
    reasons = [health.out_for(at) for at in (0, 5 * SECOND - 1, 5 * SECOND)]
    assert reasons == ["limit", "limit", ""], "it did not fail"
    assert health.room(5 * SECOND) == 64, "it was not down, so nothing needs to start slowly"
    health.on_limit(10 * SECOND, 10**15)
    assert health.healthy(10 * SECOND + 300 * SECOND), "but no pause is for ever"


def test_a_server_that_is_down_is_not_only_limited() -> None:
    health = Health(make_options(eject_after=1))
    health.on_limit(0, 40 * SECOND)
    assert health.out_for(0) == "", "its first probe did not come back yet"
    health.on_probe(True, 0)
    assert health.out_for(0) == "limit"
    health.on_failure(SECOND)
    assert health.out_for(2 * SECOND) == "failures"
    assert health.out_for(35 * SECOND) == "limit", "its ejection is over, and its pause is not"
    health.on_probe(False, 36 * SECOND)
    assert health.out_for(36 * SECOND) == ""


def test_how_it_stands_at_once_is_what_each_method_says() -> None:
    chance = random.Random(5)
    health = Health(make_options(eject_after=1, max_num_seqs=10))
    for now_us in range(0, 400 * SECOND, SECOND):
        happens = chance.randrange(20)
        if happens == 0:
            health.on_failure(now_us)
        elif happens == 1:
            health.on_limit(now_us, 5 * SECOND)
        elif happens < 4:
            health.on_probe(happens == 2, now_us)
        elif happens < 10:
            health.on_success(now_us)
        state = health.steady or health.state(now_us)
        assert state.healthy == health.healthy(now_us)
        assert state.room == health.room(now_us)
        assert state.out_for == health.out_for(now_us)
        assert state.out_us == health.out_us(now_us)


def test_retries_are_a_fifth_of_requests() -> None:
    health = Health(make_options(probe_path=None))
    assert sum(health.take_retry() for _ in range(100)) == 10
    for _ in range(100):
        health.on_request()
    assert sum(health.take_retry() for _ in range(100)) == 10, "no more than it may save up"
    for _ in range(6):
        health.on_request()
    assert [health.take_retry(), health.take_retry()] == [True, False]


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"protocol": "chat", "chains": True}, "chains"),
        ({"base_url": "ftp://example.test"}, "base_url"),
        ({"base_url": "example.test/v1"}, "base_url"),
        ({"base_url": "http://example..test/v1"}, "base_url: its host or its port"),
        ({"base_url": "http://example.test:99999/v1"}, "base_url: its host or its port"),
        ({"base_url": "https://user:secret@example.test/v1"}, "credentials"),
        ({"base_url": "https://example.test/v1?x=1"}, "query"),
        ({"base_url": "http://169.254.169.254/v1"}, "link-local"),
        ({"base_url": "http://[fe80::1]/v1"}, "link-local"),
        ({"max_streams_per_socket": 4}, "cancel_event"),
        ({"custom_tools": "native"}, "custom_tools"),
    ],
)
def test_options_that_cannot_be(fields: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        check_options(make_options(**fields))


def test_addresses() -> None:
    for base_url in ("https://example.test/v1", "wss://example.test/v1/"):
        options = make_options(base_url=base_url)
        assert http_url(options, "/models") == "https://example.test/v1/models"
        assert socket_url(options) == "wss://example.test/v1/responses"
    assert socket_url(make_options(base_url="http://h:1/v1")) == "ws://h:1/v1/responses"
