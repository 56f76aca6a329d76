"""Tests a stream of an upstream's socket, between one response and the next."""

import asyncio
import json
import math
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from backends.contract import Message, TextPart
from backends.net.read_hold import ReadHold
from backends.upstream.answer.errors import Failure
from backends.upstream.answer.responses_events import TERMINALS, Event, decode_event
from backends.upstream.chain import Turn
from backends.upstream.upstream_socket import RequestLimit, SocketStream
from tests.unit.backends.upstream.upstream_requests import make_options, make_request

ERROR = {"type": "error", "error": {"code": "server_error", "message": "No."}}


def created(response_id: str | None) -> dict[str, Any]:
    return {"type": "response.created", "response": {"id": response_id}}


def text(words: str) -> dict[str, Any]:
    return {"type": "response.output_text.delta", "item_id": "m", "delta": words}


def completed(response_id: str | None) -> dict[str, Any]:
    return {"type": "response.completed", "response": {"id": response_id, "status": "completed"}}


class Socket:
    """Stands for the stream's socket, and notes what the stream asks of it."""

    backend = "b"
    used_s = math.inf  # never stale

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.limit = RequestLimit()
        self.stream = SocketStream(self, None)  # type: ignore[arg-type]
        self.reading = ReadHold()

    def ask(self, request: bytes, max_event_bytes: int, reading: ReadHold) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.calls.append(name)

    def says(self, *events: dict[str, Any], num_bytes: int = 10) -> None:
        """Has events come in one read."""
        decoded = [decode_event(json.dumps(event).encode()) for event in events]
        is_last = any(event.type in (*TERMINALS, "error") for event in decoded)
        self.stream.take_in(decoded, num_bytes, is_last=is_last)

    async def asks(self) -> SimpleNamespace:
        """Sends a request; returns its exchange and what it gets."""
        asked = SimpleNamespace(seen=[])
        turn = Turn(make_request(Message("user", (TextPart("Hi."),))), make_options("responses-ws"))

        def receive(events: list[Event]) -> bool:
            asked.seen += [event.delta or event.type.split(".")[-1] for event in events]
            return False

        run = self.stream.run(turn, turn.whole(), receive, self.reading)
        asked.run = asyncio.create_task(run)
        await asyncio.sleep(0)
        return asked


async def test_what_comes_after_a_failure_is_no_answer_any_more() -> None:
    """The response's end, in the next read, must not make a whole answer of a failed one."""
    socket = Socket()
    asked = await socket.asks()
    socket.reading.take_one = lambda message: True  # as once a text is open
    socket.says(text("Too much."), num_bytes=1 << 40)  # more than one answer may have
    assert socket.reading.take_one is None, "nor a message that comes alone"
    socket.says(completed("r"))  # before the exchange's turn has come
    with pytest.raises(Failure, match="too much for one answer"):
        await asked.run
    assert asked.seen == []
    assert socket.calls[-1] == "release", "it is free, as its response has ended"


Reads = tuple[tuple[dict[str, Any], ...], ...]


class Case(NamedTuple):
    """Holds two responses of one stream: the reads of each, and what the second's exchange gets."""

    first: Reads
    second: Reads
    seen: list[str]


ANNOUNCED: Reads = ((created("a"), text("One.")), (completed("a"),))
WHOLE = ["created", "Two.", "completed"]
OWN = (created("b"), text("Two."), completed("b"))
CASES = {
    "well-behaved": Case(ANNOUNCED, (OWN,), WHOLE),
    "the end before comes first": Case(ANNOUNCED, ((completed("a"), *OWN),), WHOLE),
    "the end before comes alone": Case(ANNOUNCED, ((completed("a"),), OWN), WHOLE),
    "a text without an id": Case(ANNOUNCED, ((text("Late."),), (text("Late."), *OWN)), WHOLE),
    "an end without an id": Case(ANNOUNCED, ((completed(None),), OWN), WHOLE),
    "announced before it ended": Case(ANNOUNCED, ((created("b"),), OWN[1:]), WHOLE),
    "one id for all": Case(
        ANNOUNCED, ((created("a"), text("Two."), completed("a")),), ["created", "Two.", "completed"]
    ),
    "no ids": Case(
        ((created(None), text("One."), completed(None)),),
        ((text("Two."),), (completed(None),)),
        ["Two.", "completed"],
    ),
    "nothing announced": Case(
        ((text("One."), completed("a")),), ((text("Two."),), (completed("a"),)), WHOLE[1:]
    ),
    "refused before it is announced": Case(ANNOUNCED, ((ERROR,),), ["error"]),
    "ended before it is announced": Case(ANNOUNCED, ((completed("b"),),), ["completed"]),
}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
async def test_each_response_gets_its_own_events(case: Case) -> None:
    """A server may end a response twice, and that must not end the next one, of another client."""
    socket = Socket()
    for reads in (case.first, case.second):
        asked = await socket.asks()
        for events in reads[:-1]:
            socket.says(*events)
            await asyncio.sleep(0)
            assert not asked.run.done()
        socket.says(*reads[-1])
        await asked.run
    assert asked.seen == case.seen
    assert "take_no_more" not in socket.calls


@pytest.mark.parametrize("is_abandoned", [False, True])
@pytest.mark.parametrize("stray", [completed("a"), text("More.")])
async def test_a_socket_that_goes_on_takes_no_more(
    stray: dict[str, Any], is_abandoned: bool
) -> None:
    """What comes while nothing is awaited tells that more may come, into the next response."""
    socket = Socket()
    asked = await socket.asks()
    socket.says(created("a"))
    if is_abandoned:
        asked.run.cancel()
        await asyncio.gather(asked.run, return_exceptions=True)
    socket.says(completed("a"))
    await asyncio.gather(asked.run, return_exceptions=True)
    socket.says({"type": "codex.rate_limits"})
    assert "take_no_more" not in socket.calls, "it is about no response"
    socket.says(stray)
    assert socket.calls[-1] == "take_no_more"


async def test_a_flood_of_the_response_before_has_an_end() -> None:
    socket = Socket()
    asked = await socket.asks()
    socket.says(*ANNOUNCED[0], *ANNOUNCED[1])
    await asked.run
    asked = await socket.asks()
    socket.says(text("Late."), num_bytes=1 << 40)
    with pytest.raises(Failure, match="too much for one answer"):
        await asked.run
    assert asked.seen == []
