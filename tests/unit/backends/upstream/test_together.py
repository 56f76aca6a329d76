"""Events that come together give what they give when they come one by one."""

import functools
import json
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from websockets.frames import Frame, Opcode

from backends.contract import Delta, GenerateRequest
from backends.net.socket_messages import MessageCutter
from backends.net.sse import EventParser
from backends.tokenizer import count
from backends.upstream.answer.chat_chunks import decode_chunk, decode_chunks
from backends.upstream.answer.chat_reader import ChatReader
from backends.upstream.answer.responses_events import decode_event
from backends.upstream.answer.responses_reader import ResponsesReader

REQUEST = GenerateRequest(
    id="r", model="m", items=(), num_prompt_tokens=3, prefix=(), max_output_tokens=100_000
)
STOPPING = GenerateRequest(
    id="r",
    model="m",
    items=(),
    num_prompt_tokens=3,
    prefix=(),
    max_output_tokens=100_000,
    stop=("dog c",),
)
COMPLETED = {"type": "response.completed", "response": {"id": "resp_up", "status": "completed"}}
FAILED = {"type": "error", "code": "server_error", "error": {"message": "told to"}}
WORDS = ("a ", "dog ", "caf\u00e9 ", "", "\n\n", "1,000 ")
KINDS: dict[str, tuple[str, ...]] = {
    "message": ("output_text", "refusal"),
    "reasoning": ("reasoning_summary_text", "reasoning_text"),
    "function_call": ("function_call_arguments",),
    "custom_tool_call": ("custom_tool_call_input",),
}


@pytest.fixture
def chance() -> random.Random:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    return random.Random(seed)


def responses_events(chance: random.Random) -> list[dict[str, Any]]:
    """Returns a few items, some at once, whose pieces come in any order."""
    kinds = [chance.choice(list(KINDS)) for _ in range(chance.randint(1, 4))]
    items = [{"type": kind, "id": f"i{n}", "name": "f"} for n, kind in enumerate(kinds)]
    events: list[dict[str, Any]] = []
    open_items: list[int] = []
    waiting = list(range(len(items)))
    while waiting or open_items:
        if waiting and (not open_items or chance.random() < 0.2):
            index = waiting.pop(0)
            open_items.append(index)
            if chance.random() < 0.9:
                added = {"output_index": index, "item": items[index]}
                events.append({"type": "response.output_item.added", **added})
            continue
        index = chance.choice(open_items)
        place = {"item_id": f"i{index}", "output_index": index}
        if chance.random() < 0.1:
            open_items.remove(index)
            events.append({"type": "response.output_item.done", **place, "item": items[index]})
            continue
        piece = {"delta": chance.choice(WORDS), "summary_index": chance.randrange(2)}
        head = chance.choice(KINDS[kinds[index]])
        events.append({"type": f"response.{head}.delta", **place, **piece})
    return events


def chat_chunks(chance: random.Random) -> list[dict[str, Any]]:
    """Draws text, thoughts and calls in any order."""
    chunks: list[dict[str, Any]] = []
    for _ in range(chance.randrange(30)):
        delta: dict[str, Any] = {"content": chance.choice((*WORDS, None))}
        if chance.random() < 0.15:
            delta["reasoning"] = chance.choice(WORDS)
        if chance.random() < 0.1:
            function = {"name": "f", "arguments": chance.choice(WORDS)}
            delta["tool_calls"] = [{"index": chance.randrange(2), "function": function}]
        choice = {"index": int(chance.random() < 0.1), "delta": delta}
        chunks.append({"choices": [choice] * chance.choice((0, 1, 1, 1, 1, 2))})
    usage = {"prompt_tokens": 3, "completion_tokens": 9}
    last = {"choices": [{"index": 0, "delta": {"content": "!"}, "finish_reason": "stop"}]}
    return [*chunks, last, {"choices": [], "usage": usage}]


def groups(chance: random.Random, events: list[Any]) -> list[list[Any]]:
    """Returns the events as reads from a socket may bring them."""
    found: list[list[Any]] = []
    while events:
        size = chance.choice((1, 1, 2, 5, 100))
        found.append(events[:size])
        events = events[size:]
    return found


def said(reader: ResponsesReader | ChatReader, together: list[list[Any]]) -> dict[int, list[Any]]:
    """Returns what was said of each item, until the end."""
    items: dict[int, list[Any]] = {}
    for now_us, events in enumerate(together):
        deltas = reader.read(events, now_us)
        assert len({delta.index for delta in deltas}) == len(deltas), "one delta of an item"
        for delta in deltas:
            item = items.setdefault(delta.index, [delta.kind, delta.call_id, delta.name, "", ""])
            item[3] += delta.text
            item[4] = delta.sealed or item[4]
        if reader.finish is not None or reader.failure is not None:
            break
    assert list(items) == sorted(items), "never back to an earlier item"
    return items


Kind = ResponsesReader | ChatReader


def read_alike(quick: Kind, plain: Kind, together: list[list[Any]]) -> None:
    """`more` gives, where it may be asked, what `read` gives, and both end alike."""
    latest: Delta | None = None
    texts: dict[int, str] = {}
    for now_us, events in enumerate(together):
        expected = plain.read(events, now_us)
        more = quick.more(events) if quick.goes_on else None
        if more is None:
            deltas = quick.read(events, now_us)
        else:
            assert latest is not None, "it goes on with something"
            text, num_tokens = more
            same = {"text": text, "num_tokens": num_tokens, "at_us": now_us, "sealed": ""}
            deltas = [msgspec.structs.replace(latest, **same)]
        assert deltas == expected
        for delta in deltas:
            texts[delta.index] = texts.get(delta.index, "") + delta.text
        latest = deltas[-1] if deltas else latest
        assert quick.usage() == plain.usage()
        assert quick.finish == plain.finish
        assert str(quick.failure) == str(plain.failure)
        if quick.finish is not None or quick.failure is not None:
            break
    for reader in (quick, plain):
        if isinstance(reader, ResponsesReader):
            assert [item.said for item in reader.items.said()] == list(texts.values())


def passed_on(reader: Kind, message: bytes) -> str:
    """Returns the text of a message that only goes on, noted as `UpstreamGeneration` does."""
    text = reader.text_of(message) if reader.goes_on else ""
    num_tokens = reader.items.num_tokens + count(text)
    if not text or num_tokens > reader.items.max_unmeasured_tokens:
        return ""
    reader.items.num_tokens = num_tokens
    reader.items.unmeasured.append(text)
    return text


def read_one_by_one(quick: Kind, plain: Kind, messages: list[bytes]) -> int:
    """`text_of` gives, where it may be asked, what `read` gives; returns how often it does."""
    decode: Any = decode_chunk if isinstance(quick, ChatReader) else decode_event
    num_quick = 0
    for message in messages:
        expected = plain.read([decode(message)], 0)
        text = passed_on(quick, message)
        if text:
            (delta,) = expected
            assert (delta.text, delta.num_tokens, delta.sealed) == (text, count(text), "")
            num_quick += 1
        else:
            assert quick.read([decode(message)], 0) == expected
        assert quick.usage() == plain.usage()
        assert quick.finish == plain.finish
        assert str(quick.failure) == str(plain.failure)
        if quick.finish is not None or quick.failure is not None:
            break
    return num_quick


Make = Callable[[], ResponsesReader | ChatReader]


def compare(chance: random.Random, make: Make, events: list[Any]) -> None:
    """Compares with the plain twin, which reads one by one."""
    single, several = make(), make()
    together = groups(chance, events)
    read_alike(make(), make(), together)
    assert said(single, [[event] for event in events]) == said(several, together)
    assert str(single.failure) == str(several.failure)
    assert (single.finish is None) == (several.finish is None)
    if single.finish is not None and several.finish is not None:
        assert single.finish.reason == several.finish.reason
        assert several.usage().num_output_tokens <= single.usage().num_output_tokens
        if single.finish.usage.exact:
            assert single.finish.usage == several.finish.usage


@pytest.mark.parametrize("request_", [REQUEST, STOPPING], ids=["plain", "with a stop sequence"])
@pytest.mark.parametrize("ends", ["whole", "failing", "cut"])
def test_responses_events(chance: random.Random, request_: GenerateRequest, ends: str) -> None:
    num_quick = 0
    for _ in range(50):
        wrapped = frozenset({"f"} if chance.random() < 0.3 else ())
        events: list[dict[str, Any]] = responses_events(chance)
        if ends == "failing":
            events.insert(chance.randrange(len(events) + 1), FAILED)
        if ends != "cut":
            events.append(COMPLETED)
        messages = [json.dumps(event).encode() for event in events]
        read = list(map(decode_event, messages))
        make = functools.partial(ResponsesReader, "b", request_, wrapped)
        compare(chance, make, read)
        num_quick += read_one_by_one(make(), make(), messages)
    assert num_quick > 0


@pytest.mark.parametrize("ends", ["whole", "failing", "cut"])
def test_chat_chunks(chance: random.Random, ends: str) -> None:
    num_quick = 0
    for _ in range(50):
        chunks: list[dict[str, Any]] = chat_chunks(chance)
        if ends == "failing":
            chunks.insert(chance.randrange(len(chunks)), FAILED)
        if ends == "cut":
            chunks = chunks[:-2]
        messages = [json.dumps(chunk).encode() for chunk in chunks] + [b"[DONE]"]
        make = functools.partial(ChatReader, "b", REQUEST, frozenset())
        compare(chance, make, list(map(decode_chunk, messages)))
        num_quick += read_one_by_one(make(), make(), messages)
    assert num_quick > 0


def test_text_up_to_the_limit_of_an_answer(chance: random.Random) -> None:
    """The quick way stops where the meter has to see the text."""
    for _ in range(50):
        limit = chance.randint(1, 60)
        request = msgspec.structs.replace(REQUEST, max_output_tokens=limit)
        words = [
            chance.choice(("a ", "dogs, ", "x" * chance.randrange(300), "\n")) for _ in range(90)
        ]
        place = {"type": "response.output_text.delta", "item_id": "i", "output_index": 0}
        events: list[dict[str, Any]] = [{**place, "delta": word} for word in words]
        messages = [json.dumps(event).encode() for event in [*events, COMPLETED]]
        make = functools.partial(ResponsesReader, "b", request, frozenset())
        read_alike(make(), make(), groups(chance, list(map(decode_event, messages))))
        read_one_by_one(make(), make(), messages)


def reads(chance: random.Random, whole: bytes) -> list[bytes]:
    """Returns what a socket may bring of it, cut at any byte."""
    cuts = sorted(chance.randrange(len(whole)) for _ in range(chance.randrange(40)))
    return [whole[start:end] for start, end in pairwise([0, *cuts, len(whole)]) if start < end]


def test_a_sockets_bytes_cut_anywhere(chance: random.Random) -> None:
    for _ in range(30):
        messages = [json.dumps(event).encode() for event in (*responses_events(chance), COMPLETED)]
        frames = [Frame(Opcode.TEXT, message).serialize(mask=False) for message in messages]
        cutter = MessageCutter(1 << 20)
        cut = [cutter.feed(read)[0] for read in reads(chance, b"".join(frames))]
        assert [message for each in cut for message in each] == messages
        make = functools.partial(ResponsesReader, "b", REQUEST, frozenset())
        read_alike(make(), make(), [list(map(decode_event, each)) for each in cut if each])


def test_a_streams_bytes_cut_anywhere(chance: random.Random) -> None:
    for _ in range(30):
        messages = [json.dumps(chunk).encode() for chunk in chat_chunks(chance)] + [b"[DONE]"]
        whole = b"".join(b"data: %b\n\n" % message for message in messages)
        parser = EventParser()
        cut = [parser.feed(read) for read in reads(chance, whole)]
        assert [message for each in cut for message in each] == messages
        make = functools.partial(ChatReader, "b", REQUEST, frozenset())
        for each in cut:
            assert decode_chunks(each) == list(map(decode_chunk, each))
        read_alike(make(), make(), [decode_chunks(each) for each in cut if each])
