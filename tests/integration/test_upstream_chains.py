"""Conversations with an upstream go on from what it remembers; where it does not, nobody hears."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from backends.contract import (
    BackendError,
    FinishReason,
    GenerateRequest,
    Message,
    Reasoning,
    Role,
    TextFormat,
    TextPart,
    Usage,
)
from backends.prompt import measure, prompt_size
from backends.sealed_reasoning import wrap
from backends.upstream.backend import UpstreamBackend
from tests.integration.fault_server import TEXT, FaultServer
from tests.integration.upstreams import WAIT_S, RecordingSink, upstream

ANSWER = "".join(TEXT)
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "socket": ("responses-ws", {}),
    "streams": ("responses-ws", {"max_streams_per_socket": 4, "cancel_event": True}),
    "stored": ("responses", {"chains": True}),
}


@pytest.fixture
async def server() -> AsyncIterator[FaultServer]:
    async with FaultServer.running() as server:
        yield server


def ask(*texts: str, said: str = ANSWER, **fields: Any) -> GenerateRequest:
    """Returns a conversation: what the user said, and the answers between."""
    items = []
    for number, text in enumerate(texts):
        speakers: list[tuple[Role, str]] = [("user", text)]
        if number:
            speakers.insert(0, ("assistant", said))
        items += [measure(Message(role, (TextPart(words),))) for role, words in speakers]
    num_tokens, prefix = prompt_size(None, (), TextFormat(), items)
    return GenerateRequest(
        id="resp_test",
        model="told-here",
        items=tuple(items),
        num_prompt_tokens=num_tokens,
        prefix=prefix,
        max_output_tokens=100,
        **fields,
    )


async def run(backend: UpstreamBackend, request: GenerateRequest) -> RecordingSink:
    sink = RecordingSink()
    backend.start(request, sink)
    await asyncio.wait_for(sink.ended.wait(), WAIT_S)
    while backend._pumps:
        await asyncio.wait(set(backend._pumps))
    return sink


def sent(body: dict[str, Any]) -> tuple[str | None, list[str]]:
    """Returns what a request went on from, and the texts it brought."""
    return body.get("previous_response_id"), [item["content"] for item in body["input"]]


@pytest.mark.parametrize("way", WAYS)
async def test_only_what_is_new_is_sent(server: FaultServer, way: str) -> None:
    protocol, options = WAYS[way]
    async with upstream(server.base_url(protocol), protocol, **options) as backend:
        for texts in (("a",), ("a", "b"), ("a", "b", "c")):
            sink = await run(backend, ask(*texts, instructions="Be brief."))
            assert sink.text == ANSWER
        assert backend.stats().num_continued == 2
    parent = "resp_s0" if way == "streams" else "resp_1"
    first, *others = map(sent, server.bodies)
    assert first == (None, ["a"])
    assert others == [(parent, ["b"]), (parent, ["c"])]
    assert all(body["instructions"] == "Be brief." for body in server.bodies), "never inherited"
    assert all(body["store"] is (way == "stored") for body in server.bodies)


@pytest.mark.parametrize("way", WAYS)
async def test_sealed_reasoning_breaks_no_chain(server: FaultServer, way: str) -> None:
    """It is in the context behind each question, and the server has it."""
    protocol, options = WAYS[way]
    sealed = measure(Reasoning(encrypted_content=wrap("told-here", "rs_1", "secret" * 50)))
    assert sealed.num_tokens > 0
    base_url = server.base_url(protocol)
    async with upstream(base_url, protocol, seals_reasoning=True, **options) as backend:
        for texts in (("a",), ("a", "b"), ("a", "b", "c")):
            request = ask(*texts)
            items = [
                each
                for entry in request.items[:-1]
                for each in ([sealed, entry] if entry.item.role == "assistant" else [entry])
            ]
            items.append(request.items[-1])
            await run(backend, msgspec.structs.replace(request, items=tuple(items)))
        assert backend.stats().num_continued == 2
    assert [texts for _, texts in map(sent, server.bodies)] == [["a"], ["b"], ["c"]]


@pytest.mark.parametrize(
    ("way", "forgotten"),
    [*((way, "forgotten") for way in WAYS), ("stored", "forgotten as an event")],
)
async def test_what_was_forgotten_is_sent_whole_once_and_silently(
    server: FaultServer, way: str, forgotten: str
) -> None:
    protocol, options = WAYS[way]
    server.plan = ["answer", forgotten, "answer"]
    async with upstream(server.base_url(protocol), protocol, max_retries=0, **options) as backend:
        await run(backend, ask("a"))
        sink = await run(backend, ask("a", "b"))
        assert sink.finishes[0].reason is FinishReason.STOP
        assert sink.text == ANSWER
        stats = backend.stats()
        assert (stats.num_continued, stats.num_chains_lost) == (0, 1)
        assert stats.healthy
        await run(backend, ask("a", "b", "c"))
        assert backend.stats().num_continued == 1, "and it goes on from there"
    assert sent(server.bodies[2]) == (None, ["a", ANSWER, "b"])


@pytest.mark.parametrize("way", WAYS)
async def test_a_server_that_always_forgets_is_asked_twice_and_no_more(
    server: FaultServer, way: str
) -> None:
    protocol, options = WAYS[way]
    server.plan = ["answer", "forgotten"]
    async with upstream(server.base_url(protocol), protocol, **options) as backend:
        await run(backend, ask("a"))
        sink = await run(backend, ask("a", "b"))
    assert sink.finishes[0].reason is FinishReason.ERROR
    assert server.num_requests == 3


async def test_a_new_connection_gets_the_whole_context(server: FaultServer) -> None:
    server.plan = ["answer", "too old", "answer"]
    protocol = "responses-ws"
    async with upstream(server.base_url(protocol), protocol, max_retries=0) as backend:
        await run(backend, ask("a"))
        sink = await run(backend, ask("a", "b"))
        assert sink.text == ANSWER, "the socket's age is nobody's fault: no retry is spent on it"
    assert sent(server.bodies[1]) == ("resp_1", ["b"])
    assert sent(server.bodies[2]) == (None, ["a", ANSWER, "b"])


OTHERS = {
    "another answer": ask("a", "b", said="Four."),
    "another beginning": ask("z", "b"),
    "the same again": ask("a"),
    "nothing new": msgspec.structs.replace(ask("a", "b"), items=ask("a", "b").items[:2]),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("other", OTHERS)
async def test_what_does_not_go_on_is_sent_whole(server: FaultServer, way: str, other: str) -> None:
    protocol, options = WAYS[way]
    async with upstream(server.base_url(protocol), protocol, **options) as backend:
        await run(backend, ask("a"))
        await run(backend, OTHERS[other])
        assert backend.stats().num_continued == 0
    assert sent(server.bodies[1])[0] is None
    assert len(server.bodies[1]["input"]) == len(OTHERS[other].items)


@pytest.mark.parametrize("way", WAYS)
async def test_another_tenant_never_continues_a_response(server: FaultServer, way: str) -> None:
    protocol, options = WAYS[way]
    async with upstream(server.base_url(protocol), protocol, **options) as backend:
        await run(backend, ask("a", cache_salt=1))
        await run(backend, ask("a", "b", cache_salt=2))
        assert backend.stats().num_continued == 0
        if way == "stored":  # any connection has these: it is still there for its own tenant
            await run(backend, ask("a", "b", cache_salt=1))
            assert backend.stats().num_continued == 1
    assert sent(server.bodies[1]) == (None, ["a", ANSWER, "b"])


async def test_a_server_stores_nothing_of_who_may_not_be_stored(server: FaultServer) -> None:
    async with upstream(server.base_url("responses"), "responses", chains=True) as backend:
        await run(backend, ask("a", may_store=False))
        await run(backend, ask("a", "b", may_store=False))
    assert [body["store"] for body in server.bodies] == [False, False]
    assert sent(server.bodies[1]) == (None, ["a", ANSWER, "b"])


async def test_what_was_cut_is_not_gone_on_from(server: FaultServer) -> None:
    protocol = "responses-ws"
    server.plan = ["hang midway", "answer"]
    async with upstream(server.base_url(protocol), protocol) as backend:
        sink = RecordingSink()
        generation = backend.start(ask("a"), sink)
        await asyncio.wait_for(sink.first.wait(), WAIT_S)
        generation.cancel()
        await run(backend, ask("a", "b", said=sink.text))
        stopped = ask("a", "b", "c", stop=("three",))
        await run(backend, stopped)
        await run(backend, ask("a", "b", "c", "d", said="One, two, "))
        # The second went whole, for the first was cut; the third went on from it, as its stop
        # sequence is ours to find; and what that one left is not what the server remembers.
    assert [sent(body)[0] for body in server.bodies][1] is None
    assert [sent(body)[0] for body in server.bodies][3] is None


async def test_conversations_keep_to_their_own_sockets(server: FaultServer) -> None:
    protocol = "responses-ws"
    async with upstream(server.base_url(protocol), protocol) as backend:
        names = ("a", "b", "c")
        sinks = [RecordingSink() for _ in names]
        for name, sink in zip(names, sinks, strict=True):
            backend.start(ask(name), sink)
        for sink in sinks:
            await asyncio.wait_for(sink.ended.wait(), WAIT_S)
        num_before = server.num_connections
        for name in reversed(names):
            await run(backend, ask(name, "more"))
        assert backend.stats().num_continued == 3
        assert server.num_connections == num_before


async def test_it_can_be_turned_off(server: FaultServer) -> None:
    protocol = "responses-ws"
    async with upstream(server.base_url(protocol), protocol, chains=False) as backend:
        await run(backend, ask("a"))
        await run(backend, ask("a", "b"))
    assert [sent(body)[0] for body in server.bodies] == [None, None]


# -- warm-ups ----------------------------------------------------------------------------------


async def test_a_warm_up_is_handed_on_and_gone_on_from(server: FaultServer) -> None:
    protocol = "responses-ws"
    server.plan = ["warm", "answer"]
    async with upstream(server.base_url(protocol), protocol) as backend:
        warm = await run(backend, ask("a", generate=False))
        assert (warm.text, warm.finishes[0].usage) == ("", Usage(num_input_tokens=11))
        both = ask("a", "b")
        turn = msgspec.structs.replace(both, items=(both.items[0], both.items[2]))
        assert (await run(backend, turn)).text == ANSWER
        assert backend.stats().num_continued == 1
    assert server.bodies[0]["generate"] is False
    assert "generate" not in server.bodies[1]
    assert sent(server.bodies[1]) == ("resp_1", ["b"])


@pytest.mark.parametrize("way", WAYS)
async def test_a_server_that_knows_no_warm_ups_gets_a_connection_only(
    server: FaultServer, way: str
) -> None:
    protocol, options = WAYS[way]
    async with upstream(server.base_url(protocol), protocol, **options) as backend:
        for _ in range(2):
            warm = await run(backend, ask("a", generate=False))
            (finish,) = warm.finishes
            assert (finish.reason, finish.usage, warm.text) == (FinishReason.STOP, Usage(), "")
        assert backend.stats().num_warming == 0
        before = server.num_connections
        assert (await run(backend, ask("a"))).text == ANSWER
        assert before >= 1
        if way == "stored":  # a socket may be opened ahead at any time
            assert server.num_connections == before, "there was one ahead"
    # Over a socket it was told of the first, answered it, and was not told of the second.
    assert server.num_requests == (1 if way == "stored" else 2)


async def test_warm_ups_leave_places_to_others(server: FaultServer) -> None:
    server.plan = ["hang midway"]
    protocol = "responses-ws"
    async with upstream(server.base_url(protocol), protocol, max_num_seqs=3) as backend:
        generations = [backend.start(ask("a", generate=False), RecordingSink()) for _ in range(2)]
        with pytest.raises(BackendError) as refused:
            backend.start(ask("a", generate=False), RecordingSink())
        assert refused.value.code == "server_is_overloaded"
        generations += [backend.start(ask("b"), RecordingSink()) for _ in range(3)]
        for generation in generations:
            generation.cancel()
        assert backend.stats().num_warming == 0


async def test_a_warm_up_that_fails_is_not_tried_again(server: FaultServer) -> None:
    server.plan = ["status 500"]
    protocol = "responses-ws"
    async with upstream(server.base_url(protocol), protocol) as backend:
        warm = await run(backend, ask("a", generate=False))
    assert warm.finishes[0].reason is FinishReason.ERROR
    assert server.num_requests == 1
