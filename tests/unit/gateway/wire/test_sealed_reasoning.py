"""Sealed reasoning reaches the client, and its context, as the upstream gave it."""

import json
from typing import Any

from backends.contract import Delta, DeltaKind, Reasoning, Usage
from gateway.wire.events import CreateBody
from gateway.wire.requests import parse_create
from gateway.wire.response import Ending, ResponseStream


def test_it_is_in_the_finished_item_and_in_the_context() -> None:
    events: list[dict[str, Any]] = []
    parsed = parse_create(CreateBody(model="auto", input="Hi."), "resp_1")
    stream = ResponseStream(parsed, lambda _, *sent: events.extend(map(json.loads, sent)))
    stream.open(1, "ours", {})
    stream.push(Delta(0, DeltaKind.REASONING, "Hm.", 1, 1))
    stream.push(Delta(0, DeltaKind.REASONING, "", 0, 2, sealed="blob"))
    stream.push(Delta(1, DeltaKind.REASONING, "", 0, 3, sealed="silent"))
    stream.push(Delta(2, DeltaKind.TEXT, "So.", 1, 4))
    ending = Ending(status="completed", usage=Usage())
    stream.close_items(ending)
    stream.finish(ending, 5, {})
    stream.send_terminal()
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done[0]["summary"] == [{"type": "summary_text", "text": "Hm."}]
    assert [item.get("encrypted_content") for item in done] == ["blob", "silent", None]
    assert events[-1]["response"]["output"] == done
    first, second, _ = stream.output
    assert isinstance(first, Reasoning)
    assert (first.summary, first.encrypted_content) == (("Hm.",), "blob")
    assert isinstance(second, Reasoning)
    assert second.encrypted_content == "silent"
