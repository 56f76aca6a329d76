"""Tests decoding: every bad frame is answered, in words that help, on its own stream."""

import json
import random
from typing import Any

import msgspec
import pytest

from gateway.wire.errors import ProtocolError
from gateway.wire.events import (
    CLIENT_EVENT_TYPES,
    NULL,
    BadFrameError,
    CreateBody,
    ResponseCancel,
    ResponseCreate,
    ResponseInject,
    ResponseProcessed,
    ResponseSteer,
    decode,
    decode_event,
    stream_id_of,
)


def create(**fields: Any) -> str:
    return json.dumps({"type": "response.create", "model": "m", "input": "hi"} | fields)


# No Python nests as deeply: 3.11 takes a thousand, 3.13 ten times that, 3.14 what its stack holds.
DEEP = "[" * 1_000_000 + "]" * 1_000_000

# frame, code, param, stream_id, what the message must hold
BAD_FRAMES: list[tuple[str, str, str | None, str | None, tuple[str, ...]]] = [
    (create(temperature=2.1), "invalid_value", "temperature", None, ("<= 2.0", "got 2.1")),
    ("", "invalid_json", None, None, ("one JSON object",)),
    ("hello", "invalid_json", None, None, ("one JSON object",)),
    ('{"type":"response.create"', "invalid_json", None, None, ("truncated",)),
    (create() + " x", "invalid_json", None, None, ("trailing",)),
    ("\ud800", "invalid_json", None, None, ("one JSON object",)),
    ('{"type":"response.create","model":"\\q"}', "invalid_json", None, None, ("escape",)),
    *(
        (
            f'{{"type":"response.create","model":"{text}"}}',
            "invalid_json",
            None,
            None,
            (f"{lone} is a lone surrogate", f"at byte {byte};"),
        )
        for text, lone, byte in (
            ("\\ud800", "\\ud800", 35),
            ("\\ud83d\\ude00 \\udc00", "\\udc00", 48),
            ("\\\\ud800 \\uDBFFx", "\\uDBFF", 43),
        )
    ),
    # Wrong in type before it is wrong as JSON: the typed decoder stops at the first.
    ('{"type":"response.nope", x', "invalid_json", None, None, ("malformed",)),
    ('{"type":"response.create","model":5, garbage', "invalid_json", None, None, ("malformed",)),
    (
        f'{{"type":"response.create","model":5,"x":{DEEP}}}',
        "invalid_json",
        None,
        None,
        ("nested too deeply",),
    ),
    (
        f'{{"type":"response.steer","previous_response_id":"r","input":{DEEP}}}',
        "invalid_json",
        None,
        None,
        ("nested too deeply",),
    ),
    ("[]", "invalid_type", None, None, ("one JSON object per message", "an array")),
    ("null", "invalid_type", None, None, ("one JSON object per message", "null")),
    ("5", "invalid_type", None, None, ("a number",)),
    ("true", "invalid_type", None, None, ("a boolean",)),
    ('"response.create"', "invalid_type", None, None, ("a string",)),
    ("{}", "missing_required_parameter", "type", None, ("'type'", "response.create")),
    ('{"stream_id":"s"}', "missing_required_parameter", "type", "s", ("'type'",)),
    ('{"type":null}', "missing_required_parameter", "type", None, ("'type'",)),
    ('{"type":5}', "invalid_type", "type", None, ("a number", "response.create")),
    ('{"type":{},"stream_id":"s"}', "invalid_type", "type", "s", ("an object",)),
    (
        '{"type":"response.append","stream_id":"a.b"}',
        "unknown_event_type",
        "type",
        "a.b",
        ("response.append", *CLIENT_EVENT_TYPES),
    ),
    (
        '{"type":"response.create","stream_id":"s"}',
        "missing_required_parameter",
        "model",
        "s",
        ("'model'",),
    ),
    (create(model=5, stream_id="s"), "invalid_type", "model", "s", ("`str`", "`int`")),
    (create(model=""), "invalid_value", "model", None, (">= 1",)),
    (create(model="m" * 257), "invalid_value", "model", None, ("<= 256",)),
    (create(input=5), "invalid_type", "input", None, ("`str | array | null`", "`int`")),
    (create(tools={}), "invalid_type", "tools", None, ("array", "object")),
    (create(store="yes"), "invalid_type", "store", None, ("`bool | null`", "`str`")),
    (create(temperature=2.5), "invalid_value", "temperature", None, ("<= 2.0",)),
    (create(top_p=-1), "invalid_value", "top_p", None, (">= 0",)),
    (create(max_output_tokens=0), "invalid_value", "max_output_tokens", None, (">= 1",)),
    (create(max_output_tokens=1.5), "invalid_type", "max_output_tokens", None, ("`float`",)),
    (create(top_logprobs=21), "invalid_value", "top_logprobs", None, ("<= 20",)),
    (
        create(reasoning={"effort": "ultra"}),
        "invalid_value",
        "reasoning.effort",
        None,
        ("'none'", "ultra"),
    ),
    (create(reasoning="high"), "invalid_type", "reasoning", None, ("object", "`str`")),
    (
        create(text={"verbosity": "loud"}),
        "invalid_value",
        "text.verbosity",
        None,
        ("'low'", "loud"),
    ),
    (create(service_tier="gold"), "invalid_value", "service_tier", None, ("'flex'", "gold")),
    (
        create(metadata={"b": "", "a": 1}),
        "invalid_type",
        "metadata.a",
        None,
        ("'metadata.a'", "`str`", "`int`"),
    ),
    (
        create(metadata={"b": "", "a": "x" * 513}),
        "invalid_value",
        "metadata.a",
        None,
        ("'metadata.a'", "<= 512", "got 513 characters"),
    ),
    (
        create(metadata={"b": "", "x" * 65: ""}),
        "invalid_value",
        "metadata",
        None,
        ("'metadata'", "a key", "got 65 characters: 'xxx"),
    ),
    (
        create(metadata={str(n): "" for n in range(17)}),
        "invalid_value",
        "metadata",
        None,
        ("<= 16",),
    ),
    (create(safety_identifier="x" * 129), "invalid_value", "safety_identifier", None, ("<= 128",)),
    (create(model=5, stream_id=""), "invalid_stream_id", "stream_id", None, ("1 to 256",)),
    (create(model=5, stream_id="a b"), "invalid_stream_id", "stream_id", None, ("'a b'",)),
    (create(model=5, stream_id=None), "invalid_stream_id", "stream_id", None, ("got null.",)),
    ('{"type":"response.cancel","response_id":1}', "invalid_type", "response_id", None, ()),
    ('{"type":"response.inject","response_id":1}', "invalid_type", "response_id", None, ()),
    (
        '{"type":"response.steer","previous_response_id":"r","input":"x","stream_id":"s"}',
        "invalid_value",
        "stream_id",
        "s",
        ("stream_id",),
    ),
]


@pytest.mark.parametrize(("frame", "code", "param", "stream_id", "words"), BAD_FRAMES)
def test_bad_frames(
    frame: str, code: str, param: str | None, stream_id: str | None, words: tuple[str, ...]
) -> None:
    with pytest.raises(BadFrameError) as caught:
        decode_event(frame)
    bad = caught.value
    assert (bad.error.code, bad.error.param, bad.stream_id) == (code, param, stream_id)
    assert bad.error.message[0].isupper()
    assert bad.error.message.endswith(".")
    for word in words:
        assert word in bad.error.message


def test_events_are_decoded() -> None:
    steer = '{"type":"response.steer","previous_response_id":"r","input":[1]}'
    rows: list[tuple[str, object]] = [
        (steer, ResponseSteer("r", [1])),
        ('{"type":"response.steer"}', ResponseSteer()),
        ('{"type":"response.cancel","response_id":"r"}', ResponseCancel("r")),
        ('{"type":"response.cancel","stream_id":"s"}', ResponseCancel(stream_id="s")),
        ('{"type":"response.cancel"}', ResponseCancel()),
        ('{"type":"response.inject","response_id":"r","x":1}', ResponseInject("r")),
        ('{"type":"response.processed","response_id":"r"}', ResponseProcessed()),
    ]
    for frame, event in rows:
        assert decode_event(frame) == event


def test_a_create_takes_what_clients_send() -> None:
    frame = create(
        stream=True,
        stream_id="s",
        generate=False,
        client_metadata={"any": [1, {"thing": None}]},
        reasoning={"effort": "low", "context": "all_turns"},
        include=["reasoning.encrypted_content"],
        temperature=1,
        tools=None,
        tool_choice=None,
        text={"format": None},
    )
    event = decode_event(frame)
    assert isinstance(event, ResponseCreate)
    assert (event.model, event.input, event.stream_id) == ("m", "hi", "s")
    assert event.generate is False
    assert event.tool_choice == NULL
    assert event.text is not None
    assert event.text.format == NULL
    assert event.reasoning is not None
    assert event.reasoning.effort == "low"


def test_null_means_the_default_for_every_optional_field() -> None:
    names = [
        field.encode_name
        for field in msgspec.structs.fields(ResponseCreate)
        if field.encode_name not in ("model", "stream_id")
    ]
    plain = decode_event('{"type":"response.create","model":"m"}')
    nulls = json.dumps({"type": "response.create", "model": "m"} | dict.fromkeys(names))
    assert decode_event(nulls) == plain


# body, code, param
BAD_BODIES: list[tuple[bytes, str, str | None]] = [
    (b"", "invalid_json", None),
    (b"\xff", "invalid_json", None),
    (b'{"model":"\xff"}', "invalid_json", None),
    (b'{"model":"m","input":' + DEEP.encode() + b"}", "invalid_json", None),
    (b"[]", "invalid_type", None),
    (b"{}", "missing_required_parameter", "model"),
    (b'{"model":"m","metadata":[]}', "invalid_type", "metadata"),
]


@pytest.mark.parametrize(("body", "code", "param"), BAD_BODIES)
def test_bad_bodies(body: bytes, code: str, param: str | None) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode(body, CreateBody)
    assert (caught.value.code, caught.value.param) == (code, param)


def test_a_body_ignores_what_belongs_to_the_socket() -> None:
    body = decode(b'{"type":"anything","stream_id":5,"model":"m","input":"x"}', CreateBody)
    assert (body.model, body.input) == ("m", "x")


GOOD_STREAM_IDS = ["a", "A-z_0.9", "x" * 256, "-", "."]
BAD_STREAM_IDS: list[object] = ["", "x" * 257, "a b", "ü", "a/b", "a\n", None, 5, True, [], {}]


@pytest.mark.parametrize("value", GOOD_STREAM_IDS)
def test_good_stream_ids(value: str) -> None:
    assert stream_id_of(value) == value


@pytest.mark.parametrize("value", BAD_STREAM_IDS)
def test_bad_stream_ids(value: object) -> None:
    with pytest.raises(ProtocolError) as caught:
        stream_id_of(value)
    assert caught.value.code == "invalid_stream_id"
    assert caught.value.param == "stream_id"
    assert len(caught.value.message) < 300


def test_no_stream_id_is_the_default_stream() -> None:
    assert stream_id_of(msgspec.UNSET) is None


def test_no_damage_to_a_frame_gets_past_the_decoder() -> None:
    """Whatever happens to a frame, it becomes an event or a `BadFrameError`, and nothing else."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    whole = create(
        tools=[{"type": "function", "name": "f", "parameters": {"a": [1, 2]}}],
        metadata={"route": "fast"},
        reasoning={"effort": "low"},
        stream_id="s",
    )
    for _ in range(3000):
        characters = list(whole)
        for _ in range(chance.randrange(1, 4)):
            place = chance.randrange(len(characters))
            characters[place : place + chance.randrange(3)] = chance.choice('{}[]",:\\0en \u00fc')
        try:
            event = decode_event("".join(characters))
        except BadFrameError as bad:
            json.loads(bad.error.event(bad.stream_id))
        else:
            assert isinstance(event, ResponseCreate)
