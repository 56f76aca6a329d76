"""Tests a response in which the model refuses: its events, its items, and how they come again."""

from typing import Any

import msgspec
import pytest

from backends.contract import Delta, Message, RefusalPart, TextPart, Usage
from gateway.wire.response import Ending, ResponseStream
from gateway.wire.routing import RoutedRejoin
from tests.e2e.events import check_event, check_response
from tests.unit.gateway.doubles import ROUTING, Transcript, parsed_create, text

PART = {"type": "refusal", "refusal": "No, never."}


def refusing(words: str, index: int = 0) -> Delta:
    return msgspec.structs.replace(text(words, index), refuses=True)


def opened() -> tuple[ResponseStream, Transcript]:
    heard = Transcript()
    stream = ResponseStream(parsed_create(), heard.emit)
    stream.open(100, "wafer-model", ROUTING)
    return stream, heard


def finish(stream: ResponseStream) -> None:
    ending = Ending(status="completed", usage=Usage(7, 3, 5, 2))
    stream.close_items(ending)
    stream.finish(ending, 101, ROUTING)
    stream.send_terminal()


def of_item(heard: Transcript) -> list[tuple[str, Any]]:
    """Returns what is told of an item, by the events' short names."""
    names = ("item", "part", "delta", "refusal")
    found = []
    for event in heard.events:
        check_event(event)
        told = next((event[name] for name in names if name in event), None)
        if told is not None:
            said = told["content"] if "item" in event else told
            found.append((event["type"].removeprefix("response."), said))
    return found


EVENTS = [
    ("output_item.added", []),
    ("content_part.added", {"type": "refusal", "refusal": ""}),
    ("refusal.delta", "No, "),
    ("refusal.delta", "never."),
    ("refusal.done", "No, never."),
    ("content_part.done", PART),
    ("output_item.done", [PART]),
]


def test_a_refusal_has_events_of_its_own() -> None:
    stream, heard = opened()
    stream.push(refusing("No, "))
    stream.push(refusing("never."))
    finish(stream)
    assert of_item(heard) == EVENTS
    check_response(heard.events)


def test_a_refusal_behind_a_text_is_a_message_of_its_own() -> None:
    stream, heard = opened()
    stream.push(text("Well."))
    stream.push(refusing("No.", 1))
    assert stream.words() == ("Well.\n\nNo.", False)
    finish(stream)
    check_response(heard.events)
    assert [item.content for item in stream.output if isinstance(item, Message)] == [
        (TextPart("Well."),),
        (RefusalPart("No."),),
    ]


@pytest.mark.parametrize("is_done", [True, False])
def test_a_client_that_comes_back_is_told_it_as_a_refusal(is_done: bool) -> None:
    stream, _ = opened()
    stream.push(refusing("No, never."))
    if is_done:
        stream.end_item()
    stream.leave()
    heard = Transcript()
    stream.join(heard.emit, lambda writer: None, None, 0, RoutedRejoin(1, 0, 10))
    if not is_done:
        stream.end_item()
    whole = [event for event in EVENTS if event[0] != "refusal.delta"]
    assert of_item(heard) == [*whole[:2], ("refusal.delta", "No, never."), *whole[2:]]
