"""A stream of an upstream's socket, between an exchange's failure and its end."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from backends.contract import Message, TextPart
from backends.net.read_hold import ReadHold
from backends.upstream.answer.errors import Failure
from backends.upstream.answer.responses_reader import decode_event
from backends.upstream.chain import Turn
from backends.upstream.socket_exchange import _Stream
from tests.unit.backends.upstream.upstream_requests import make_options, make_request

TEXT = {"type": "response.output_text.delta", "item_id": "m", "delta": "Too much."}
COMPLETED = {"type": "response.completed", "response": {"id": "r", "status": "completed"}}


async def test_what_comes_after_a_failure_is_no_answer_any_more() -> None:
    """The response's end, in the next read, must not make a whole answer of a failed one."""
    seen: list[Any] = []
    released: list[Any] = []
    socket: Any = SimpleNamespace(
        backend="b",
        idle_s=0.0,
        allow=lambda max_bytes: None,
        lend=lambda reading: None,
        send=lambda event: True,
        release=released.append,
        drop=lambda stream, response_id: pytest.fail("the response had ended"),
    )
    stream = _Stream(socket, None)
    request = make_request(Message("user", (TextPart("Hi."),)))
    turn = Turn(request, make_options("responses-ws"))

    def receive(events: list[Any]) -> bool:
        seen.extend(event.type for event in events)
        return False

    reading = ReadHold()
    reading.take_one = lambda message: True  # as once a text is open
    run = asyncio.create_task(stream.run(turn, turn.whole(), receive, reading))
    await asyncio.sleep(0)
    text, last = (decode_event(json.dumps(event).encode()) for event in (TEXT, COMPLETED))
    stream.take_in([text], 1 << 40, is_last=False)  # more than one answer may have
    assert reading.take_one is None, "nor a message that comes alone"
    stream.take_in([last], 10, is_last=True)  # before the exchange's turn has come
    with pytest.raises(Failure, match="too much for one answer"):
        await run
    assert seen == []
    assert released == [stream], "it is free, as its response has ended"
