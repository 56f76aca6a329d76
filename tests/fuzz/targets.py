"""Lists what is fuzzed: functions of bytes, each with seeds, that may raise nothing.

What the function under test raises by its contract is caught here; all else is a finding.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from backends.contract import GenerateRequest
from backends.net.sse import EventParser, EventTooLongError
from backends.upstream.answer.chat_chunks import decode_chunk
from backends.upstream.answer.chat_reader import ChatReader
from backends.upstream.answer.reader import Reader, decoded
from backends.upstream.answer.responses_events import decode_sse_event
from backends.upstream.answer.responses_reader import ResponsesReader
from gateway.session.session import Session
from gateway.wire import events
from router.classify.task import Tenant
from router.policy.policy import DEFAULT_POLICY, PolicyError, parse_policy
from tests.hostile import admin, bodies
from tests.hostile.kinds import as_frame

MAX_SEED_BYTES = 4_096
MAX_TOKENS = 10_000
_REQUEST = GenerateRequest(
    id="resp_fuzz", model="m", items=(), num_prompt_tokens=7, prefix=(), max_output_tokens=64
)
_TENANT = Tenant(id="fuzzer", tier="free", limits={})


class FuzzTarget(NamedTuple):
    """Is a function that takes any bytes, and inputs to begin with."""

    title: str
    run: Callable[[bytes], None]
    seeds: Sequence[bytes]


def _frame(data: bytes) -> None:
    """Takes a text frame as a connection does, twice: a session has a state."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return  # closed with 1007 before it is decoded
    sent: list[bytes] = []
    session = Session(_TENANT, sent.append, lambda writer: None, lambda: "id", MAX_TOKENS)
    for _ in range(2):
        try:
            event = events.decode_event(text)
        except events.BadFrameError as bad:
            session.reject(bad)
            continue
        session.receive(event, len(data), 0)
    for frame in sent:
        assert json.loads(frame)["type"] in (
            *("error", "response.steer.failed", "response.inject.failed"),
        )


def _stream(data: bytes) -> None:
    """Reads an upstream's answer in both protocols, cut as the first byte says."""
    size = max(1, data[0]) if data else 1
    pieces = [data[at : at + size] for at in range(1, len(data), size)]
    whole, lines = EventParser(), EventParser()
    messages: list[bytes] = []
    try:
        for piece in pieces:
            found = whole.feed(piece)
            assert found == lines.feed_lines(piece)
            messages += found
    except EventTooLongError:
        return
    kinds: tuple[tuple[Callable[[bytes], Any], Callable[..., Reader]], ...] = (
        (decode_chunk, ChatReader),
        (decode_sse_event, ResponsesReader),
    )
    for decode, make in kinds:
        reader = make("fuzzed", _REQUEST, frozenset({"f"}))
        for message in messages:
            read, failure = decoded(decode, [message], "fuzzed")
            deltas = reader.read(read, 0)
            assert all(delta.index >= 0 for delta in deltas)
            if failure or reader.finish or reader.failure:
                break
        reader.ended(0)
        usage = reader.usage()
        assert usage.num_output_tokens >= 0


def _policy(data: bytes) -> None:
    """Reads a policy's document; one that is read is written, and read as the same."""
    try:
        policy = parse_policy(data, "fuzzed")
    except PolicyError as error:
        str(error).encode()  # what a log or an answer does with it
        return
    policy.for_tenant("fuzzer")
    again = msgspec.json.decode(msgspec.json.encode(policy), type=type(policy))
    assert again == policy


def _short(texts: Sequence[str]) -> list[bytes]:
    encoded = [text.encode("utf-8", "replace") for text in texts]
    return [text for text in encoded if len(text) <= MAX_SEED_BYTES]


def _sse(*documents: Any) -> bytes:
    return b"\x40" + b"".join(b"data: %b\n\n" % json.dumps(each).encode() for each in documents)


_ITEM = {"id": "i", "type": "function_call", "call_id": "c", "name": "f", "arguments": ""}
_CALL = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{"}}
_USAGE = {"input_tokens": 1, "output_tokens": 2, "output_tokens_details": {"reasoning_tokens": 1}}
_ENDED = {"id": "r", "status": "completed", "usage": _USAGE, "output": [_ITEM]}
_STREAMS = (
    _sse({"choices": [{"delta": {"role": "assistant", "content": "Hi"}, "finish_reason": None}]}),
    _sse(
        {"choices": [{"delta": {"tool_calls": [_CALL], "reasoning_content": "hm"}}]},
        {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
        {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}},
    )
    + b"data: [DONE]\n\n",
    _sse(
        {"type": "response.created", "response": {"id": "r"}},
        {"type": "response.output_item.added", "output_index": 0, "item": _ITEM},
        {"type": "response.function_call_arguments.delta", "item_id": "i", "delta": "{}"},
        {"type": "response.output_item.done", "output_index": 0, "item": _ITEM},
        {"type": "response.completed", "response": _ENDED},
    ),
    _sse({"type": "error", "code": "rate_limit_exceeded", "message": "Try again in 1s."}),
    _sse({"type": "response.failed", "response": {"error": {"code": "x", "message": "y"}}}),
    b"\x03event: a\r\ndata: {}\r\ndata:\r\n\r\n: ping\n\nretry: 1\n\n",
)
_POLICIES = (
    msgspec.json.encode(DEFAULT_POLICY),
    b'version = "a"\n[[rules]]\nname = "b"\nwhen = { labels = ["deep"] }\nroute = "fast"\n',
    b'[aliases.x]\nroute = "deep"\nfallback = ["fast"]\n[tenants.acme]\nstrategy = "hedge"\n',
    *_short(list(admin.DOCUMENTS.values())),
)

TARGETS: dict[str, FuzzTarget] = {
    "frames": FuzzTarget(
        "the decoder of clients' frames, and the session behind it",
        _frame,
        _short([*bodies.FRAMES.values(), *map(as_frame, bodies.BODIES.values())]),
    ),
    "upstreams": FuzzTarget("the decoders of upstreams' streams", _stream, _STREAMS),
    "policies": FuzzTarget("the parser of policies", _policy, _POLICIES),
}
