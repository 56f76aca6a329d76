"""Tests one response: the order of its events, and identities that hold for any output."""

import json
import random
from typing import Any

import msgspec
import pytest

from backends.contract import (
    ContextItem,
    CustomToolCall,
    Delta,
    DeltaKind,
    FunctionCall,
    Item,
    Message,
    Reasoning,
    TextPart,
    Usage,
)
from gateway.wire.items import parse_input
from gateway.wire.response import Ending, ResponseStream
from gateway.wire.response_json import ResponseError
from gateway.wire.routing import RoutedRejoin
from tests.e2e.events import Event, check_event, check_response
from tests.unit.gateway.doubles import ROUTING, Transcript, call, parsed_create, text

TEXT, REASONING, FUNCTION, CUSTOM = DeltaKind
USAGE = Usage(7, 3, 5, 2)
DONE = Ending(status="completed", usage=USAGE)
LENGTH = Ending(status="incomplete", reason="max_output_tokens", usage=USAGE)
STEERED = Ending(status="incomplete", reason="steered", usage=USAGE)
CANCELLED = Ending(status="incomplete", reason="cancelled", usage=USAGE)
FAILED = Ending(status="failed", error=ResponseError("server_error", "it broke"), usage=USAGE)


def write(
    deltas: list[tuple[Delta, str | None]],
    ending: Ending,
    *,
    stream_id: str | None = None,
    **fields: Any,
) -> tuple[list[Event], ResponseStream]:
    """Writes a whole response, each delta flushed at once, and checks it by SDK and protocol."""
    heard = Transcript()
    stream = ResponseStream(parsed_create(**fields), heard.emit, stream_id=stream_id)
    stream.open(100, "wafer-model", ROUTING)
    for delta, phase in deltas:
        stream.push(delta, phase)
    finish(stream, ending)
    check(heard.events, stream_id)
    return heard.events, stream


def finish(stream: ResponseStream, ending: Ending) -> None:
    stream.close_items(ending)
    assert stream.finish(ending, 101, ROUTING) == stream.body
    stream.send_terminal()


def check(events: list[Event], stream_id: str | None) -> None:
    for event in events:
        check_event(event)
        assert event.get("stream_id", None) == stream_id
        assert ("stream_id" in event) == (stream_id is not None)
    check_response(events)


def kinds(events: list[Event]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


BEGIN = ["created", "in_progress"]

ORDERS: list[tuple[str, list[tuple[Delta, str | None]], list[str]]] = [
    ("nothing", [], []),
    (
        "text",
        [(text("Hel"), None), (text("lo"), None)],
        [
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
        ],
    ),
    (
        "reasoning, then a call",
        [
            (Delta(0, REASONING, "Hm", 1, 0), None),
            (call("{", 1), None),
            (call("}", 1), None),
        ],
        [
            "output_item.added",
            "reasoning_summary_part.added",
            "reasoning_summary_text.delta",
            "reasoning_summary_text.done",
            "reasoning_summary_part.done",
            "output_item.done",
            "output_item.added",
            "function_call_arguments.delta",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "output_item.done",
        ],
    ),
    (
        "reasoning kept to itself",
        [(Delta(0, REASONING, "", 4, 0), None), (Delta(0, REASONING, "", 4, 0), None)],
        ["output_item.added", "output_item.done"],
    ),
    (
        "a custom call",
        [(Delta(3, CUSTOM, "ls", 1, 0, "call_9", "shell"), None)],
        [
            "output_item.added",
            "custom_tool_call_input.delta",
            "custom_tool_call_input.done",
            "output_item.done",
        ],
    ),
    (
        "a call without arguments",
        [(call(""), None)],
        ["output_item.added", "function_call_arguments.done", "output_item.done"],
    ),
]


@pytest.mark.parametrize(("_", "deltas", "middle"), ORDERS)
def test_the_order_of_events(
    _: str, deltas: list[tuple[Delta, str | None]], middle: list[str]
) -> None:
    events, _stream = write(deltas, DONE)
    assert kinds(events) == [*BEGIN, *middle, "completed"]


# ending, terminal, status, incomplete_details, the last item's status
ENDINGS: list[tuple[Ending, str, str, dict[str, str] | None, str]] = [
    (DONE, "completed", "completed", None, "completed"),
    (LENGTH, "incomplete", "incomplete", {"reason": "max_output_tokens"}, "incomplete"),
    (STEERED, "incomplete", "incomplete", {"reason": "steered"}, "completed"),
    (CANCELLED, "incomplete", "incomplete", {"reason": "cancelled"}, "incomplete"),
    (FAILED, "failed", "failed", None, "incomplete"),
]


@pytest.mark.parametrize(("ending", "terminal", "status", "details", "item_status"), ENDINGS)
def test_endings(
    ending: Ending,
    terminal: str,
    status: str,
    details: dict[str, str] | None,
    item_status: str,
) -> None:
    events, _ = write([(text("One."), None), (text("Two", 1), None)], ending, stream_id="s")
    assert kinds(events)[-1] == terminal
    response = events[-1]["response"]
    assert response["status"] == status
    assert response["incomplete_details"] == details
    assert response["error"] == (msgspec.to_builtins(ending.error) if ending.error else None)
    assert [item["status"] for item in response["output"]] == ["completed", item_status]
    assert response["usage"]["total_tokens"] == 12


@pytest.mark.parametrize("kind", [FUNCTION, CUSTOM])
def test_an_open_call_of_a_failed_response_is_never_done(kind: DeltaKind) -> None:
    """A client runs what is done, and asks again, however much of the call was sent."""
    whole = Delta(0, kind, '{"cmd": "make"}', 1, 0, "call_0", "shell")
    cut = Delta(1, kind, '{"cmd": "rm -rf build"}', 1, 0, "call_1", "shell")
    events, stream = write([(whole, None), (cut, None)], FAILED)
    (done,) = [event["item"] for event in events if event["type"].endswith("output_item.done")]
    assert done["call_id"] == "call_0"
    assert events[-1]["response"]["output"] == [done]
    assert [item.call_id for item in stream.output if isinstance(item, FunctionCall)] == (
        ["call_0"] if kind is FUNCTION else []
    )
    for ending in (DONE, LENGTH, CANCELLED):
        events, _ = write([(whole, None), (cut, None)], ending)
        assert len(events[-1]["response"]["output"]) == 2


@pytest.mark.parametrize("kind", [FUNCTION, CUSTOM])
def test_an_open_call_of_a_response_that_was_cut_is_never_completed(kind: DeltaKind) -> None:
    whole = Delta(0, kind, "{}", 1, 0, "call_0", "shell")
    cut = Delta(1, kind, '{"cmd": "ma', 1, 0, "call_1", "shell")
    for ending in (LENGTH, CANCELLED, STEERED):
        events, stream = write([(whole, None), (cut, None)], ending)
        shown = events[-1]["response"]["output"]
        assert [item["status"] for item in shown] == ["completed", "incomplete"]
        calls = [i for i in stream.output if isinstance(i, FunctionCall | CustomToolCall)]
        assert [item.is_cut for item in calls] == [False, True]


def test_a_cancelled_background_response_is_cancelled() -> None:
    heard = Transcript()
    stream = ResponseStream(parsed_create(background=True), heard.emit)
    stream.open(100, "m", ROUTING)
    stream.push(text("Half"))
    finish(stream, Ending(status="cancelled", usage=USAGE))
    assert heard.types[-1] == "response.incomplete"
    assert heard.events[-1]["response"]["status"] == "cancelled"
    assert heard.events[-1]["response"]["output"][0]["status"] == "incomplete"


def test_phases_are_those_an_item_began_with() -> None:
    deltas = [(text("Soon."), "commentary"), (text("Late."), "final_answer"), (text("X", 1), None)]
    events, stream = write([*deltas, (text("It is.", 2), "final_answer")], DONE)
    output = events[-1]["response"]["output"]
    assert [item.get("phase") for item in output] == [None, None, "final_answer"]
    assert [item["type"] for item in output] == ["reasoning", "message", "message"]
    assert output[0]["summary"] == [{"type": "summary_text", "text": "Soon.Late."}]
    kept = [item.phase for item in stream.output if isinstance(item, Message)]
    assert kept == [None, "final_answer"], "the next turn does not read what was said beside"


def test_commentary_comes_as_messages_where_that_is_asked_for() -> None:
    said = [(text("Soon."), "commentary"), (text("It is.", 1), "final_answer")]
    events, stream = write([*said], DONE, metadata={"commentary": "messages"})
    output = events[-1]["response"]["output"]
    assert [item["phase"] for item in output] == ["commentary", "final_answer"]
    assert [item.id for item in stream.output] == [output[1]["id"]]
    sent_back = parse_input([msgspec.Raw(json.dumps(item).encode()) for item in output])
    read = [entry.item for entry in sent_back.items if isinstance(entry, ContextItem)]
    assert read == [*stream.output], "nor does it where a client sends all of it again"


def test_json_is_the_only_message_even_where_commentary_comes_as_messages() -> None:
    fields: Any = {
        "metadata": {"commentary": "messages"},
        "text": {"format": {"type": "json_object"}},
    }
    said = [(text("{"), "commentary"), (text("{}", 1), "final_answer")]
    events, _ = write([*said], DONE, **fields)
    types = [item["type"] for item in events[-1]["response"]["output"]]
    assert types == ["reasoning", "message"]


def test_calls_show_their_namespace() -> None:
    nested = [{"type": "function", "name": "look"}]
    tools = [{"type": "namespace", "name": "n", "description": "d", "tools": nested}]
    events, stream = write([(call("{}"), None)], DONE, tools=tools)
    (item,) = events[-1]["response"]["output"]
    assert item["namespace"] == "n"
    (kept,) = stream.output
    assert isinstance(kept, FunctionCall)
    assert kept.namespace == "n", "the next turn's prompt is what the client would replay"


def test_the_response_echoes_the_request() -> None:
    tools = [{"type": "function", "name": "f", "x-own": {"a": [1]}}, {"type": "web_search"}]
    sent: dict[str, Any] = {
        "instructions": "Be nice.",
        "max_output_tokens": 9,
        "metadata": {"route": "fast"},
        "parallel_tool_calls": False,
        "previous_response_id": "resp_0",
        "prompt_cache_key": "k",
        "reasoning": {"effort": "low", "summary": "auto"},
        "safety_identifier": "u",
        "store": False,
        "temperature": 0.5,
        "text": {"format": {"type": "json_object"}, "verbosity": "low"},
        "tool_choice": {"type": "function", "name": "f"},
        "tools": tools,
        "top_logprobs": 0,
        "top_p": 0.1,
        "truncation": "auto",
        "user": "me",
    }
    heard = Transcript()
    stream = ResponseStream(parsed_create(**sent), heard.emit)
    stream.open(100, "wafer-model", ROUTING)
    response = heard.events[0]["response"]
    assert {name: response[name] for name in sent} == sent
    assert response["model"] == "wafer-model"
    assert response["routing"] == json.loads(msgspec.json.encode(ROUTING))


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (None, "default"),
        ("auto", "default"),
        ("default", "default"),
        ("fast", "priority"),
        ("priority", "priority"),
        ("flex", "flex"),
        ("ultrafast", "ultrafast"),
    ],
)
def test_the_service_tier_is_the_one_used(asked: str | None, told: str) -> None:
    events, _ = write([], DONE, service_tier=asked)
    assert events[-1]["response"]["service_tier"] == told


def test_text_gathers_between_flushes() -> None:
    heard = Transcript()
    dirty: list[ResponseStream] = []
    stream = ResponseStream(parsed_create(), heard.emit, on_dirty=dirty.append)
    stream.open(100, "m", ROUTING)
    heard.take()
    for word in ("a", "b", "c"):
        stream.push(text(word))
    assert [event.get("delta") for event in heard.take()] == [None, None, "a"], "the first at once"
    assert dirty == [stream], "marked once, however much gathers"
    stream.flush()
    assert [event["delta"] for event in heard.take()] == ["bc"]
    stream.flush()
    assert heard.take() == []
    stream.push(text("d"))
    stream.push(text("e", 1))
    assert [event["type"] for event in heard.events][:2] == [
        "response.output_text.delta",
        "response.output_text.done",
    ], "an item that ends is flushed first"
    assert heard.events[-1]["delta"] == "e"


def test_what_gathered_of_a_dropped_call_is_dropped_with_it() -> None:
    heard = Transcript()
    stream = ResponseStream(parsed_create(), heard.emit, on_dirty=lambda stream: None)
    stream.open(100, "m", ROUTING)
    stream.push(call("{", 0))
    stream.push(call("}", 0))
    finish(stream, FAILED)
    num_events = len(heard.events)
    stream.flush()
    assert (stream.gathered_bytes(), len(heard.events)) == (0, num_events)
    assert "}" not in [event.get("delta") for event in heard.events]


def test_heartbeats_repeat_the_response_while_it_runs() -> None:
    heard = Transcript()
    stream = ResponseStream(parsed_create(), heard.emit, stream_id="s")
    stream.heartbeat()
    assert heard.events == []
    stream.open(100, "m", ROUTING)
    stream.heartbeat()
    stream.push(text("x"))
    stream.heartbeat()
    finish(stream, DONE)
    stream.heartbeat()
    check(heard.events, "s")
    assert heard.types.count("response.in_progress") == 3
    assert heard.types[-1] == "response.completed"
    assert stream.num_events == len(heard.events)


def test_states() -> None:
    heard = Transcript()
    stream = ResponseStream(parsed_create(), heard.emit)
    assert (stream.is_open, stream.ended, stream.num_events, stream.body) == (False, False, 0, b"")
    stream.open(100, "m", ROUTING)
    assert (stream.is_open, stream.ended, stream.num_events) == (True, False, 2)
    assert json.loads(stream.body) == heard.events[0]["response"]
    assert not stream.has_calls
    stream.push(call("{}"))
    assert stream.has_calls
    finish(stream, DONE)
    assert (stream.is_open, stream.ended) == (True, True)
    with pytest.raises(AssertionError):
        stream.send_terminal()


# -- whatever is generated -------------------------------------------------------------------

WORDS = ["a", " word", "\n", '"', "\\", "é", "日本", "\u2028", "{", "😀", "\x00", "</s>"]


def random_script(chance: random.Random) -> list[tuple[Delta, str | None]]:
    script: list[tuple[Delta, str | None]] = []
    index = 0
    for _ in range(chance.randrange(5)):
        index += chance.randrange(1, 3)
        kind = chance.choice(list(DeltaKind))
        call_id, name = (f"call_{index}", "look") if kind >= FUNCTION else ("", "")
        phase = chance.choice([None, "commentary", "final_answer"]) if kind is TEXT else None
        for _ in range(chance.randrange(1, 6)):
            words = "".join(chance.choices(WORDS, k=chance.randrange(3)))
            script.append((Delta(index, kind, words, 1, 0, call_id, name), phase))
    return script


def expected_output(script: list[tuple[Delta, str | None]]) -> list[Item]:
    """Returns the script's items that are of the conversation, ids left out."""
    items: list[Item] = []
    for index in sorted({delta.index for delta, _ in script}):
        own = [(delta, phase) for delta, phase in script if delta.index == index]
        first, phase = own[0]
        if phase == "commentary":
            continue
        whole = "".join(delta.text for delta, _ in own)
        if first.kind is TEXT:
            items.append(Message("assistant", (TextPart(whole),), phase=phase))
        elif first.kind is REASONING:
            items.append(Reasoning(None, (whole,) if whole else ()))
        elif first.kind is FUNCTION:
            items.append(FunctionCall(first.call_id, first.name, whole))
        else:
            items.append(CustomToolCall(first.call_id, first.name, whole))
    return items


def without_id(item: Item) -> Item:
    return type(item)(
        **{name: getattr(item, name) for name in item.__struct_fields__ if name != "id"}
    )


def test_whatever_is_generated_the_protocol_holds() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(150):
        script = random_script(chance)
        ending = chance.choice([DONE, LENGTH, STEERED, CANCELLED, FAILED])
        stream_id = chance.choice([None, "main", "100 %d %"])
        heard = Transcript()
        gathers = chance.random() < 0.7
        stream = ResponseStream(
            parsed_create(),
            heard.emit,
            stream_id=stream_id,
            on_dirty=(lambda stream: None) if gathers else None,
        )
        stream.open(100, "m", ROUTING)
        for delta, phase in script:
            stream.push(delta, phase)
            act = chance.random()
            if act < 0.3:
                stream.flush()
            elif act < 0.35:
                stream.heartbeat()
            elif act < 0.4:
                steer = b'"steer":{"id":"steer_1","previous_response_id":"resp_1"}'
                stream.send_about("response.steer.accepted", steer)
        finish(stream, ending)
        check(heard.events, stream_id)
        expected = expected_output(script)
        if ending is not DONE and script and script[-1][0].kind >= FUNCTION:
            open_call = expected.pop()
            if ending is not FAILED:
                expected.append(msgspec.structs.replace(open_call, is_cut=True))
        assert [without_id(item) for item in stream.output] == expected
        shown = [item["id"] for item in heard.events[-1]["response"]["output"]]
        kept = [item_id for item_id in shown if not item_id.endswith("_aside")]
        assert [item.id for item in stream.output] == kept
        assert len(set(shown)) == len(shown)
        assert stream.has_calls == any(delta.kind >= FUNCTION for delta, _ in script)


@pytest.mark.parametrize(
    ("own", "given", "shown"),
    [
        ("", None, None),
        ("commentary", None, "commentary"),  # the engine's word stands
        ("commentary", "final_answer", "final_answer"),  # unless a strategy gave it another part
    ],
)
def test_an_engines_own_phase(own: str, given: str | None, shown: str | None) -> None:
    heard = Transcript()
    stream = ResponseStream(parsed_create(), heard.emit)
    stream.open(1, "ours", ROUTING)
    stream.push(msgspec.structs.replace(text("Hm."), phase=own), given)
    stream.end_item()
    items = [event["item"] for event in heard.events if "item" in event]
    assert [item.get("phase") for item in items] == [shown, shown]
    (kept,) = stream.output
    assert isinstance(kept, Message)
    assert kept.phase == shown


def test_what_was_sent_again_is_held_from_its_new_number_on() -> None:
    """A client that is lost amid it holds none of it yet, though it ended long before."""
    heard = Transcript()
    stream = ResponseStream(parsed_create(), lambda kind, *events: None)
    stream.open(100, "m", ROUTING)
    stream.push(text("One."))
    stream.push(text("Two.", 1))
    stream.end_item()
    before = list(stream.done_numbers)
    stream.leave()
    stream.join(heard.emit, None, None, 1, RoutedRejoin(1, 1, 10))
    assert heard.types[:3] == [
        *("response.created", "response.in_progress", "response.output_item.added")
    ]
    done = heard.events[-1]
    assert (done["type"], done["output_index"]) == ("response.output_item.done", 1)
    assert stream.done_numbers == [before[0], done["sequence_number"]]
    assert heard.events[0]["response"]["routing"]["rejoined"] == {
        "times": 1,
        "held_items": 1,
        "away_ms": 10,
    }
