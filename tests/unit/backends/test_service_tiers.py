"""Tests which tier is asked of an upstream, and which one its answer is billed as."""

from typing import Any

import msgspec
import pytest

from backends.service_tiers import asked_tier, passed_on
from backends.upstream.answer.chat_chunks import decode_chunk
from backends.upstream.answer.chat_reader import ChatReader
from backends.upstream.answer.responses_events import decode_event
from backends.upstream.answer.responses_reader import ResponsesReader
from tests.unit.backends.upstream.upstream_requests import make_request


@pytest.mark.parametrize(
    ("sells", "client", "asked"),
    [
        ((), "priority", None),
        (("priority",), "priority", "priority"),
        (("priority",), "fast", "priority"),
        (("fast",), "priority", "fast"),
        (("flex",), "default", None),
        (("flex",), "auto", None),
        (("flex",), None, None),
    ],
)
def test_a_client_is_passed_on_to_whoever_sells_the_tier(
    sells: tuple[str, ...], client: str | None, asked: str | None
) -> None:
    assert passed_on(client, sells) == asked


@pytest.mark.parametrize(
    ("said", "billed", "unknown"),
    [
        ([], "flex", None),
        ([None, "auto"], "flex", None),  # before it is decided
        (["flex", "default"], "default", None),  # the last word counts
        (["fast"], "priority", None),
        (["hyper"], "flex", "hyper"),
        (["hyper", "priority"], "priority", None),
        ([{"tier": "priority"}], "flex", None),
    ],
)
def test_the_served_tier_is_billed(said: list[Any], billed: str, unknown: str | None) -> None:
    tier = asked_tier("flex")
    for each in said:
        tier.take(each)
    assert (tier.billed, tier.unknown) == (billed, unknown)


def test_a_stream_that_is_cut_is_billed_as_it_began() -> None:
    tier = {"service_tier": "priority"}
    chat = ChatReader("up", make_request(), frozenset())
    chunks = [{"choices": [{"index": 0, "delta": {"content": word}}], **tier} for word in "abc"]
    deltas = []
    for chunk in chunks:
        deltas += chat.read([decode_chunk(msgspec.json.encode(chunk))], 1)
    assert [delta.text for delta in deltas] == ["a", "b", "c"]
    assert chat.usage().service_tier == "priority"
    responses = ResponsesReader("up", make_request(), frozenset())
    created = {"type": "response.created", "response": {"id": "r", **tier}}
    responses.read([decode_event(msgspec.json.encode(created))], 1)
    assert responses.usage().service_tier == "priority"
