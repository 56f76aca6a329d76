"""What only a later event has of an item's text is added, and nothing comes twice."""

import json
import random
from typing import Any

import pytest

from backends.contract import CustomTool, DeltaKind, FinishReason, Message, TextPart
from backends.sealed_reasoning import unwrap
from backends.upstream.answer.responses_events import decode_event
from backends.upstream.answer.responses_reader import ResponsesReader
from tests.unit.backends.upstream.upstream_requests import make_request

Event = dict[str, Any]
Said = tuple[DeltaKind, str, str]  # kind, call_id, all of the text

TEXT, THOUGHT, CALLED, CUSTOM = (
    DeltaKind.TEXT,
    DeltaKind.REASONING,
    DeltaKind.FUNCTION_CALL,
    DeltaKind.CUSTOM_CALL,
)


def reader_of(**fields: Any) -> ResponsesReader:
    tools = (CustomTool("sql"),)
    request = make_request(Message("user", (TextPart("Hi."),)), tools=tools, **fields)
    return ResponsesReader("up", request, frozenset({"sql"}), "ours")


def said_by(reader: ResponsesReader, events: list[Event], *, together: bool = False) -> list[Said]:
    """Returns all of the items, as clients get them."""
    items: dict[int, Said] = {}
    decoded = [decode_event(json.dumps(event).encode()) for event in events]
    for now_us, each in enumerate([decoded] if together else [[event] for event in decoded]):
        for delta in reader.read(each, now_us):
            assert delta.index >= max(items, default=0), "never back to an earlier item"
            _, _, text = items.get(delta.index, (None, None, ""))
            items[delta.index] = (delta.kind, delta.call_id, text + delta.text)
        assert reader.failure is None
    return list(items.values())


def added(index: int | None, item: Event, **fields: Any) -> Event:
    place = {} if index is None else {"output_index": index}
    return {"type": "response.output_item.added", **place, "item": item | fields}


def done(index: int | None, item: Event, **fields: Any) -> Event:
    return added(index, item, **fields) | {"type": "response.output_item.done"}


def piece(event: str, item_id: str | None, text: str, **fields: Any) -> Event:
    return {"type": f"response.{event}.delta", "item_id": item_id, "delta": text, **fields}


def whole(event: str, item_id: str | None, text: str, **fields: Any) -> Event:
    field = {"refusal": "refusal", "function_call_arguments": "arguments"}.get(event, "text")
    return {"type": f"response.{event}.done", "item_id": item_id, field: text, **fields}


def part(item_id: str, text: str, kind: str = "output_text", **fields: Any) -> Event:
    said = {"type": kind, "refusal" if kind == "refusal" else "text": text}
    head = "reasoning_summary_part" if kind == "summary_text" else "content_part"
    return {"type": f"response.{head}.done", "item_id": item_id, "part": said, **fields}


def ended(*output: Event, kind: str = "completed", **fields: Any) -> Event:
    response = {"id": "resp_up", "status": kind, "output": list(output), **fields}
    return {"type": f"response.{kind}", "response": response}


def message(item_id: str | None, *texts: str) -> Event:
    content = [{"type": "output_text", "text": text} for text in texts]
    return {"type": "message", "content": content} | ({} if item_id is None else {"id": item_id})


def thought(item_id: str, *texts: str, **fields: Any) -> Event:
    summary = [{"type": "summary_text", "text": text} for text in texts]
    return {"type": "reasoning", "id": item_id, "summary": summary, **fields}


def call(item_id: str | None, arguments: str, call_id: str = "c1", name: str = "add") -> Event:
    item = {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
    return item if item_id is None else item | {"id": item_id}


M, R, F = message("m"), thought("r"), call("f", "")
ONE, ALL = piece("output_text", "m", "One, "), "One, two."

ROWS: dict[str, tuple[list[Event], list[Said]]] = {
    # -- only at the end of the response
    "the text of an item that was added": (
        [added(0, M), ended(message("m", ALL))],
        [(TEXT, "", ALL)],
    ),
    "the rest of a text": ([added(0, M), ONE, ended(message("m", ALL))], [(TEXT, "", ALL)]),
    "a text that differs is left as it was said": (
        [added(0, M), ONE, ended(message("m", "1, 2"))],
        [(TEXT, "", "One, ")],
    ),
    "a call behind a message": (
        [
            added(0, M),
            ONE,
            done(0, message("m", "One, ")),
            ended(message("m", "One, "), call("f", "{}")),
        ],
        [(TEXT, "", "One, "), (CALLED, "c1", "{}")],
    ),
    "a message before a call comes after it": (
        [added(1, F), done(1, call("f", "{}")), ended(message("m", ALL), call("f", "{}"))],
        [(CALLED, "c1", "{}"), (TEXT, "", ALL)],
    ),
    "the arguments of a call that was added": (
        [added(0, F), ended(call("f", '{"n":1}'))],
        [(CALLED, "c1", '{"n":1}')],
    ),
    "the rest of a call's arguments": (
        [added(0, F), piece("function_call_arguments", "f", '{"n"'), ended(call("f", '{"n":1}'))],
        [(CALLED, "c1", '{"n":1}')],
    ),
    "one of several calls": (
        [
            added(0, F),
            added(1, call("g", "", "c2")),
            piece("function_call_arguments", "f", "{}"),
            ended(call("f", "{}"), call("g", '{"n":2}', "c2")),
        ],
        [(CALLED, "c1", "{}"), (CALLED, "c2", '{"n":2}')],
    ),
    "a custom call that was offered as a function": (
        [
            added(0, call("f", "", name="sql")),
            piece("function_call_arguments", "f", '{"input":"sel'),
            ended(call("f", '{"input":"select 1"}', name="sql")),
        ],
        [(CUSTOM, "c1", "select 1")],
    ),
    "the same custom call, that was done": (
        [
            added(0, call("f", "", name="sql")),
            done(0, call("f", '{"input":"select 1"}', name="sql")),
            ended(call("f", '{"input":"select 1"} ', name="sql")),
        ],
        [(CUSTOM, "c1", "select 1")],
    ),
    "summaries": (
        [
            added(0, R),
            piece("reasoning_summary_text", "r", "First.", summary_index=0),
            ended(thought("r", "First.", "Then."), message("m", ALL)),
        ],
        [(THOUGHT, "", "First.\n\nThen."), (TEXT, "", ALL)],
    ),
    "raw reasoning beside a summary that nobody said": (
        [
            added(0, R),
            piece("reasoning_text", "r", "Hm, "),
            ended(thought("r", "Short.", content=[{"text": "Hm, so."}])),
        ],
        [(THOUGHT, "", "Hm, so.")],
    ),
    "reasoning is not told behind its answer": (
        [added(1, M), ONE, ended(thought("r", "First."), message("m", ALL))],
        [(TEXT, "", ALL)],
    ),
    "reasoning before an answer of which nothing was said": (
        [added(1, M), ended(thought("r", "First."), message("m", ALL))],
        [(THOUGHT, "", "First."), (TEXT, "", ALL)],
    ),
    "reasoning before an answer that was done without": (
        [added(1, M), done(1, M), ended(thought("r", "First."), message("m", ALL))],
        [(THOUGHT, "", "First."), (TEXT, "", ALL)],
    ),
    "reasoning is not told behind its call, whose arguments come last": (
        [added(1, F), ended(thought("r", "First."), call("f", '{"n":1}'))],
        [(CALLED, "c1", '{"n":1}')],
    ),
    "a refusal beside a text": (
        [
            added(0, M),
            ONE,
            ended({**M, "content": [{"text": "One, "}, {"type": "refusal", "refusal": "No."}]}),
        ],
        [(TEXT, "", "One, No.")],
    ),
    "several parts": (
        [added(0, M), ONE, ended(message("m", ALL, " Three.", ""))],
        [(TEXT, "", "One, two. Three.")],
    ),
    "the text of an item that was done without": (
        [added(0, M), done(0, M), ended(message("m", ALL))],
        [(TEXT, "", ALL)],
    ),
    "the arguments of a call that was done without": (
        [added(0, F), done(0, F), ended(call("f", '{"n":1}'))],
        [(CALLED, "c1", '{"n":1}')],
    ),
    "more than the finished item had, if nothing came behind it": (
        [added(0, M), done(0, message("m", "One, ")), ended(message("m", ALL))],
        [(TEXT, "", ALL)],
    ),
    "an incomplete response": (
        [
            added(0, M),
            ONE,
            ended(
                message("m", ALL),
                kind="incomplete",
                incomplete_details={"reason": "max_output_tokens"},
            ),
        ],
        [(TEXT, "", ALL)],
    ),
    # -- only in the event that ends a part
    "a part": ([added(0, M), part("m", ALL), ended()], [(TEXT, "", ALL)]),
    "a part of an item that was not added": ([part("m", ALL), ended()], [(TEXT, "", ALL)]),
    "the rest of a part": ([added(0, M), ONE, part("m", ALL), ended()], [(TEXT, "", ALL)]),
    "a summary": (
        [added(0, R), part("r", "First.", "summary_text"), ended()],
        [(THOUGHT, "", "First.")],
    ),
    "a second summary": (
        [
            added(0, R),
            piece("reasoning_summary_text", "r", "First.", summary_index=0),
            part("r", "First.", "summary_text", summary_index=0),
            part("r", "Then.", "summary_text", summary_index=1),
            done(0, thought("r", "First.", "Then.")),
            ended(thought("r", "First.", "Then.")),
        ],
        [(THOUGHT, "", "First.\n\nThen.")],
    ),
    "raw reasoning": (
        [added(0, R), part("r", "Hm.", "reasoning_text", content_index=0), ended()],
        [(THOUGHT, "", "Hm.")],
    ),
    "a refusal": ([added(0, M), part("m", "No.", "refusal"), ended()], [(TEXT, "", "No.")]),
    "a longer text than its pieces": (
        [added(0, M), ONE, whole("output_text", "m", ALL), part("m", ALL), ended()],
        [(TEXT, "", ALL)],
    ),
    "longer arguments than their pieces": (
        [
            added(0, F),
            piece("function_call_arguments", "f", '{"n"'),
            whole("function_call_arguments", "f", '{"n":1}'),
            done(0, call("f", '{"n":1}')),
            ended(call("f", '{"n":1}')),
        ],
        [(CALLED, "c1", '{"n":1}')],
    ),
    "several parts, each in its own event": (
        [
            added(0, M),
            piece("output_text", "m", "One", content_index=0),
            whole("output_text", "m", "One, ", content_index=0),
            part("m", "One, ", content_index=0),
            piece("output_text", "m", "tw", content_index=1),
            whole("output_text", "m", "two.", content_index=1),
            whole("refusal", "m", "No.", content_index=2),
            part("m", "No.", "refusal", content_index=2),
            done(0, message("m", "One, ", "two.", "No.")),
            ended(message("m", "One, ", "two.", "No.")),
        ],
        [(TEXT, "", "One, two.No.")],
    ),
    "a part whose place is told once only": (
        [added(0, M), ONE, whole("output_text", "m", "One, ", content_index=1), ended()],
        [(TEXT, "", "One, ")],
    ),
    "an earlier part that ends late": (
        [
            added(0, M),
            piece("output_text", "m", "One, ", content_index=0),
            piece("refusal", "m", "No.", content_index=1),
            part("m", "One, ", content_index=0),
            part("m", "No.", "refusal", content_index=1),
            ended(),
        ],
        [(TEXT, "", "One, No.")],
    ),
    # -- whatever the ids are
    "other ids at the end, with places": (
        [added(0, M), ONE, done(0, message("m", ALL)), ended(message("x", ALL))],
        [(TEXT, "", ALL)],
    ),
    "other ids at the end, without places": (
        [
            added(None, M),
            ONE,
            added(None, call("f", "")),
            piece("function_call_arguments", "f", "{"),
            ended(message("x", ALL), call("y", "{}", "c9")),
        ],
        [(TEXT, "", ALL), (CALLED, "c1", "{}")],
    ),
    "other ids in each event, without places": (
        [
            added(None, message("a")),
            piece("output_text", "a", ALL),
            whole("output_text", "b", ALL),
            part("c", ALL),
            done(None, message("d", ALL)),
            ended(message("e", ALL)),
        ],
        [(TEXT, "", ALL)],
    ),
    "no ids": (
        [
            added(0, message(None)),
            piece("output_text", None, "One, ", output_index=0),
            added(1, call(None, "")),
            ended(message(None, ALL), call(None, "{}")),
        ],
        [(TEXT, "", ALL), (CALLED, "c1", "{}")],
    ),
    "neither ids nor places": (
        [
            {"type": "response.output_text.delta", "delta": "One, "},
            added(None, call(None, "")),
            added(None, call(None, "", "c2")),
            piece("function_call_arguments", "c2", "{}"),
            done(None, call(None, '{"n":1}')),
            done(None, call(None, "{}", "c2")),
            ended(message(None, ALL), call(None, '{"n":1}'), call(None, "{}", "c2")),
        ],
        [(TEXT, "", ALL), (CALLED, "c1", '{"n":1}'), (CALLED, "c2", "{}")],
    ),
    "a new item beside one of another id": (
        [
            added(0, M),
            ONE,
            done(0, message("m", ALL)),
            ended(message("n", "New."), message("m", ALL)),
        ],
        [(TEXT, "", ALL), (TEXT, "", "New.")],
    ),
    "places that leave out reasoning at the end": (
        [added(0, R), done(0, R), added(1, M), ONE, ended(message("x", ALL))],
        [(TEXT, "", ALL)],
    ),
    "one place for all": (
        [
            added(0, M),
            piece("output_text", "m", ALL, output_index=0),
            done(0, message("m", ALL)),
            added(0, F),
            piece("function_call_arguments", "f", "{}", output_index=0),
            done(0, call("f", "{}")),
            added(0, call("g", "", "c2")),
            piece("function_call_arguments", "g", "[]", output_index=0),
            done(0, call("g", "[]", "c2")),
            ended(message("m", ALL), call("f", "{}"), call("g", "[]", "c2")),
        ],
        [(TEXT, "", ALL), (CALLED, "c1", "{}"), (CALLED, "c2", "[]")],
    ),
    "places in some events only, and another id there": (
        [
            *(ONE, part("x", ALL, output_index=0), done(0, message("y", ALL))),
            ended(message("z", ALL)),
        ],
        [(TEXT, "", ALL)],
    ),
    "two items that came as one": (
        [
            added(0, M),
            ONE,
            piece("output_text", "m", "two."),
            ended(message("m", "One, "), message("n", "two.")),
        ],
        [(TEXT, "", ALL)],
    ),
    # -- nothing at all
    "a call without arguments": (
        [added(0, F), done(0, F), ended(F)],
        [(CALLED, "c1", "{}")],
    ),
    "a call without arguments at the end only": ([ended(F)], [(CALLED, "c1", "{}")]),
    "a call without arguments before another item": (
        [
            *(added(0, F), done(0, F), added(1, M), ONE, done(1, message("m", "One, "))),
            ended(F, message("m", "One, ")),
        ],
        [(CALLED, "c1", "{}"), (TEXT, "", "One, ")],
    ),
    "a custom call without input": (
        [done(0, call("f", "", name="sql")), ended()],
        [(CUSTOM, "c1", "")],
    ),
    "a call that was cut before its arguments": (
        [
            *(added(0, F), done(0, F)),
            ended(F, kind="incomplete", incomplete_details={"reason": "max_output_tokens"}),
        ],
        [(CALLED, "c1", "")],
    ),
    "a call that is never done": ([added(0, F), ended()], [(CALLED, "c1", "")]),
    "everything, twice": (
        [
            *(added(0, M), ONE, whole("output_text", "m", ALL), part("m", ALL)),
            *(done(0, message("m", ALL)), done(0, message("m", ALL))),
            *(added(1, F), done(1, call("f", "{}")), done(1, call("f", "{}"))),
            *(whole("output_text", "m", ALL), part("m", ALL + " Three.")),
            ended(message("m", ALL), call("f", "{}")),
        ],
        [(TEXT, "", ALL), (CALLED, "c1", "{}")],
    ),
}


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("name", ROWS)
def test_what_is_missing_is_added(name: str, together: bool) -> None:
    events, expected = ROWS[name]
    reader = reader_of()
    assert said_by(reader, events, together=together) == expected
    assert reader.finish is not None
    assert [item.said for item in reader.items.said()] == [text for _, _, text in expected]


def test_no_item_is_gone_back_to() -> None:
    events = [
        *(added(0, M), done(0, message("m", "One, ")), done(1, call("f", "{}"))),
        ended(message("m", ALL), call("f", "{}")),
    ]
    assert said_by(reader_of(), events) == [(TEXT, "", "One, "), (CALLED, "c1", "{}")]


STOPS: list[tuple[list[Event], str, str | None]] = [
    ([added(0, M), ended(message("m", "a END b"), call("f", "{}"))], "a ", "END"),
    ([added(0, M), piece("output_text", "m", "a E"), ended(message("m", "a END b"))], "a ", "END"),
    (
        [added(0, M), piece("output_text", "m", "a E"), ended(message("m", "a EN b"))],
        "a EN b",
        None,
    ),
    ([added(0, M), piece("output_text", "m", "a E"), part("m", "a END b"), ended()], "a ", "END"),
    ([added(0, M), piece("output_text", "m", "a E"), part("m", "a E"), ended()], "a E", None),
    (
        [piece("output_text", "m", "a E"), part("m", "ND b", content_index=1), ended()],
        "a ",
        "END",
    ),
    (
        [
            piece("output_text", "m", "a E", content_index=0),
            piece("output_text", "m", "N", content_index=1),
            part("m", "N b", content_index=1),
            ended(message("m", "a E", "N b", " c")),
        ],
        "a EN b c",
        None,
    ),
]


@pytest.mark.parametrize(("events", "expected", "stop"), STOPS)
def test_stop_sequences_in_what_is_added(
    events: list[Event], expected: str, stop: str | None
) -> None:
    reader = reader_of(stop=("END",))
    assert said_by(reader, events) == [(TEXT, "", expected)]
    assert reader.finish is not None
    assert reader.finish.stop_sequence == stop


def test_sealed_reasoning_that_comes_at_the_end_only() -> None:
    reader = reader_of()
    events = [added(0, R), ended(thought("r", encrypted_content="blob"), message("m", ALL))]
    deltas = [
        delta
        for event in events
        for delta in reader.read([decode_event(json.dumps(event).encode())], 0)
    ]
    assert [(delta.kind, delta.text) for delta in deltas] == [(THOUGHT, ""), (TEXT, ALL)]
    assert unwrap("ours", deltas[0].sealed) == ("r", "blob")


# -- any order, any ids ------------------------------------------------------------------------

EVENTS = {TEXT: "output_text", THOUGHT: "reasoning_summary_text", CALLED: "function_call_arguments"}


def item_of(kind: DeltaKind, item_id: str, text: str) -> Event:
    if kind is CALLED:
        return call(item_id, text, f"call_{item_id[0]}")
    return message(item_id, text) if kind is TEXT else thought(item_id, text)


Made = tuple[DeltaKind, str, bool, bool]  # kind, text, if it was announced, if it was shown by then


def random_answer(chance: random.Random) -> tuple[list[Event], list[Made]]:
    """Returns events that leave out anything but the end, and the items.

    Ids may be others in each event, and places may be missing.
    """
    ids_change, has_places = chance.choice([(True, True), (False, True), (False, False)])
    events: list[Event] = []
    items: list[Made] = []
    output: list[Event] = []
    for number in range(chance.randint(1, 4)):
        kind = chance.choice(list(EVENTS))
        text = "".join(chance.choice("ab") for _ in range(chance.randint(1, 6)))
        ids = [f"{number}-{chance.randrange(99) if ids_change else 0}" for _ in range(4)]
        place = {"output_index": number} if has_places else {}
        is_told = chance.random() < 0.8
        num_events = len(events) + (kind is not CALLED)  # that do not show it
        if is_told:
            events.append(added(None, item_of(kind, ids[0], "")) | place)
            pieces = text[: chance.randrange(len(text) + 1)]
            events += [piece(EVENTS[kind], ids[0], each, **place) for each in pieces]
            if chance.random() < 0.5:
                events.append(whole(EVENTS[kind], ids[1], text, **place))
            if chance.random() < 0.5:
                events.append(done(None, item_of(kind, ids[2], text)) | place)
        output.append(item_of(kind, ids[3], text))
        items.append((kind, text, is_told, len(events) > num_events))
    return [*events, ended(*output)], items


@pytest.mark.parametrize("together", [False, True])
def test_nothing_comes_twice_and_nothing_is_lost(together: bool) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(500):
        events, items = random_answer(chance)
        reader = reader_of()
        said = [(kind, text) for kind, _, text in said_by(reader, events, together=together)]
        assert reader.finish is not None
        assert reader.finish.reason is FinishReason.STOP
        latest = max((n for n, (*_, is_shown) in enumerate(items) if is_shown), default=-1)
        expected = [
            (kind, text)
            for number, (kind, text, is_told, _) in enumerate(items)
            if is_told or kind is not THOUGHT or number > latest
        ]
        assert sorted(said) == sorted(expected), events
