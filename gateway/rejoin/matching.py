"""Says whether a create comes back to a response, and what its client holds of the output.

A client whose connection was lost builds its request anew: the context as it was, then those items
of the lost output that it received whole, and outputs of the calls among them. Values are compared,
and never bytes: members come in another order, with other nulls, and without an item's status. All
that decides the answer has to be equal, and the turn, where the client names it.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from backends.contract import (
    Compaction,
    ContextItem,
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
)
from gateway.wire.output_items import ASIDE
from gateway.wire.requests import ParsedCreate

NEVER = ("never", "false")  # metadata.rejoin of who opts out

# Fields of a request that are compared elsewhere, or that the answer does not depend on.
_APART = (
    *("type", "input", "previous_response_id", "client_metadata", "stream", "stream_id"),
    *("generate", "background"),
)


class Returning(msgspec.Struct, frozen=True):
    """Holds a create with its whole context."""

    settings: bytes
    turn: tuple[str | None, str | None]
    items: tuple[ContextItem, ...]
    asides: frozenset[str]  # ids of items in its input that are not of the conversation


class ClientHolds(msgspec.Struct, frozen=True):
    """Says what a client that comes back holds."""

    num_output: int  # of the output's items, from the first on
    has_outputs: bool  # and outputs of calls among them


class _Head(msgspec.Struct):
    id: str | None = None


_head = msgspec.json.Decoder(_Head).decode


def may_rejoin(parsed: ParsedCreate) -> bool:
    """Says whether a request's response may be come back to at all."""
    wish = (parsed.body.metadata or {}).get("rejoin")
    is_answer = parsed.generate and parsed.answers and not parsed.body.background
    return is_answer and wish not in NEVER


def asks_for_grace(parsed: ParsedCreate) -> bool:
    """Says whether a request over HTTP asks that its response goes on when the client leaves."""
    return may_rejoin(parsed) and "rejoin" in (parsed.body.metadata or {})


def turn_of(parsed: ParsedCreate) -> tuple[str | None, str | None]:
    """Returns the thread and the turn that a request names; a client has one name for each."""
    return parsed.hints.agent.thread_id, parsed.hints.agent.turn_id


def anchor_of(context: Sequence[ContextItem]) -> int:
    """Returns the digest that stands in the context of every create that comes back to this one.

    That is its last item's; 0 if none of its items has a digest.
    """
    return next((each.digest for each in reversed(context) if each.digest), 0)


def known_digests(
    parsed: ParsedCreate, parent: Sequence[ContextItem] | None
) -> frozenset[int] | None:
    """Returns the digests of a create's whole context, and 0; None: it has to be loaded first.

    Most creates come back to nothing, and so are known to at the price of a few look-ups.
    """
    digests = {0}
    for entry in parsed.input.items:
        if not isinstance(entry, ContextItem) or isinstance(entry.item, Compaction):
            return None  # it stands for other items
        digests.add(entry.digest)
    if parent is not None:
        digests.update([each.digest for each in parent])
    elif parsed.body.previous_response_id is not None:
        return None
    return frozenset(digests)


def returning_by(parsed: ParsedCreate, items: tuple[ContextItem, ...]) -> Returning:
    """Returns what a request asks, whose whole context is `items`."""
    return Returning(settings_of(parsed), turn_of(parsed), items, _asides(parsed))


def settings_of(parsed: ParsedCreate) -> bytes:
    """Returns all settings of a request; equal ones are equal bytes.

    Those that are nested too deeply to be compared equal no other request's.
    """
    body = msgspec.structs.replace(parsed.body, input=None)
    try:
        fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(body))
        for name in _APART:
            fields.pop(name, None)
        return msgspec.json.encode((_without_nulls(fields), parsed.tools), order="sorted")
    except RecursionError:
        return parsed.id.encode()


def held_by(
    items: Sequence[ContextItem], context: Sequence[ContextItem], output: Sequence[Item]
) -> ClientHolds | None:
    """Returns what a client holds of a response's output; None: it asks for something else.

    `items` are the client's whole context, `context` and `output` the response's.
    """
    if len(items) < len(context):
        return None
    for ours, theirs in zip(context, items, strict=False):
        if ours.digest != theirs.digest or not _is_same(ours.item, theirs.item):
            return None
    num_output, has_outputs = 0, False
    open_calls: set[tuple[type[Item], str]] = set()
    for entry in items[len(context) :]:
        item = entry.item
        if isinstance(item, FunctionCallOutput | CustomToolCallOutput):
            kind = FunctionCall if isinstance(item, FunctionCallOutput) else CustomToolCall
            if (kind, item.call_id) not in open_calls:
                return None
            open_calls.remove((kind, item.call_id))
            has_outputs = True
            continue
        if num_output == len(output) or item.id is None or not _is_same(output[num_output], item):
            return None
        if isinstance(item, FunctionCall | CustomToolCall):
            open_calls.add((type(item), item.call_id))
        num_output += 1
    return ClientHolds(num_output, has_outputs)


def has_calls(output: Sequence[Item]) -> bool:
    """Says whether a call is among the items."""
    return any(isinstance(item, FunctionCall | CustomToolCall) for item in output)


def num_items_held(done: Sequence[msgspec.Raw], held: ClientHolds, asides: frozenset[str]) -> int:
    """Returns how many of all finished items are held, those included that are no context."""
    last = num_output = 0
    for number, raw in enumerate(done, start=1):
        item_id = _head(raw).id or ""
        if item_id.endswith(ASIDE):
            is_held = item_id in asides
        else:
            num_output += 1
            is_held = num_output <= held.num_output
        if is_held:
            last = number
    return last


def _is_same(ours: Item, theirs: Item) -> bool:
    if ours == theirs:
        return True
    if isinstance(theirs, FunctionCall | CustomToolCall):
        return ours == msgspec.structs.replace(theirs, is_cut=not theirs.is_cut)  # by its status
    if not (isinstance(ours, Message) and isinstance(theirs, Message)):
        return False
    if ours.phase is not None and theirs.phase is not None:
        return False
    return ours == msgspec.structs.replace(theirs, phase=ours.phase)  # not every client keeps it


def _asides(parsed: ParsedCreate) -> frozenset[str]:
    value = parsed.body.input
    if not isinstance(value, list):
        return frozenset()
    ids = (_head(raw).id for raw in value if ASIDE.encode() in bytes(raw))
    return frozenset(item_id for item_id in ids if item_id and item_id.endswith(ASIDE))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value
