"""Checks what every event and every response must satisfy, whichever transport carried it.

Single events are validated against the official SDK's own models, which its runtime does not do;
responses as a whole against the order and the identities that the protocol promises.
"""

import typing
from typing import Any

import pydantic
from openai.types.beta.beta_responses_server_event import BetaResponsesServerEvent
from openai.types.responses import Response, ResponsesServerEvent

Event = dict[str, Any]

TERMINALS = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}
STEER_EVENTS = ("response.steer.accepted", "response.steer.pending", "response.steer.failed")

OWN_EVENTS = ("response.context",)  # of the response; only where a client asked for them


def _models(union: Any) -> dict[str, type[pydantic.BaseModel]]:
    """Maps an event's type to the SDK's model of it."""
    members = typing.get_args(typing.get_args(union)[0])
    return {typing.get_args(m.model_fields["type"].annotation)[0]: m for m in members}


MODELS = {**_models(BetaResponsesServerEvent), **_models(ResponsesServerEvent)}


def check_event(event: Event) -> None:
    """Checks one event, by itself."""
    kind = event.get("type")
    assert isinstance(kind, str), event
    if kind in OWN_EVENTS:
        assert isinstance(event["sequence_number"], int), event
        return
    assert kind in MODELS, f"{kind} is no event of the protocol"
    if kind == "error":
        assert isinstance(event["status"], int), event
        assert event["status"] >= 400, event  # without it Codex waits for five minutes
        assert event["error"]["message"], event
        if event["status"] == 429:
            assert int(event["error"]["headers"]["retry-after"]) >= 0, event
    elif kind not in STEER_EVENTS and not kind.startswith("response.inject."):
        assert isinstance(event["sequence_number"], int), event
    assert event.get("stream_id", "named") is not None, event
    if _is_cancelled(event):
        return  # the extension's reason is outside the SDK's literals
    if kind == "response.steer.failed":  # gives back the input as it came, however wrong
        event = {**event, "steer": {**event["steer"], "input": "as it came"}}
    if kind == "response.failed":
        event = {**event, "response": _with_literal_error(event["response"])}
    MODELS[kind].model_validate(event, strict=True)


def _with_literal_error(response: dict[str, Any]) -> dict[str, Any]:
    """Replaces the code that the SDK's literals lack; Codex knows it, and stops asking there."""
    error = response["error"]
    if error is None or error["code"] != "context_length_exceeded":
        return response
    return {**response, "error": {**error, "code": "invalid_prompt"}}


def _is_cancelled(event: Event) -> bool:
    details = (event.get("response") or {}).get("incomplete_details") or {}
    return bool(details.get("reason") == "cancelled")


def check_response_object(response: dict[str, Any]) -> None:
    """Checks a response as HTTP answers it and as terminal events hold it."""
    if (response["incomplete_details"] or {}).get("reason") != "cancelled":
        Response.model_validate(_with_literal_error(response), strict=True)
    assert response["object"] == "response"
    assert response["id"].startswith("resp_")
    assert (response["completed_at"] is not None) == (response["status"] == "completed")
    assert (response["error"] is not None) == (response["status"] == "failed")
    if response["usage"] is not None:
        check_usage(response["usage"])


def check_usage(usage: dict[str, Any]) -> None:
    """Checks the sums within a usage object."""
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert 0 <= usage["input_tokens_details"]["cached_tokens"] <= usage["input_tokens"]
    assert 0 <= usage["output_tokens_details"]["reasoning_tokens"] <= usage["output_tokens"]
    assert usage["input_tokens_details"]["cache_write_tokens"] >= 0


def check_response(events: list[Event]) -> None:
    """Checks all events of one response, first to last, steer events about it included."""
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"], kinds[:4]
    assert kinds[-1] in TERMINALS, kinds[-3:]
    assert sum(kind in TERMINALS for kind in kinds) == 1, kinds
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    first, last = events[0]["response"], events[-1]["response"]
    assert first["status"] == "in_progress"
    assert first["output"] == []
    assert first["usage"] is None
    assert last["status"] == TERMINALS[kinds[-1]]
    for event in events:
        if "response" in event:
            assert event["response"]["id"] == first["id"]
            assert event["response"]["created_at"] == first["created_at"]
    check_response_object(last)
    items = _Items()
    for event in events[2:-1]:
        items.take(event)
    items.check_against(last)


class _Items:
    """Follows the output items through their events."""

    def __init__(self) -> None:
        self._open: dict[int, dict[str, Any]] = {}  # output index -> item as added
        self._done: dict[int, dict[str, Any]] = {}
        self._deltas: dict[tuple[int, str, int], str] = {}  # (output index, kind, part) -> text
        self._finals: dict[tuple[int, str, int], str] = {}
        self._parts: dict[tuple[int, str, int], bool] = {}  # -> whether it is done

    def take(self, event: Event) -> None:
        kind = event["type"]
        if kind == "response.in_progress" or kind in STEER_EVENTS or kind in OWN_EVENTS:
            return  # a heartbeat, or about the whole response
        index = event["output_index"]
        if kind == "response.output_item.added":
            assert index == len(self._open) + len(self._done), "output indexes count up"
            assert not self._open, "one item after the other"
            if event["item"]["type"] != "compaction":  # those have no status
                assert event["item"]["status"] == "in_progress"
            self._open[index] = event["item"]
        elif kind == "response.output_item.done":
            added, item = self._open.pop(index), event["item"]
            assert (added["id"], added["type"]) == (item["id"], item["type"])
            if item["type"] != "compaction":
                assert item["status"] in ("completed", "incomplete")
            self._done[index] = item
            self._check_item(index, item)
        else:
            assert event["item_id"] == self._open[index]["id"], "ids are stable"
            if kind != "response.compaction.compacting":
                self._take_part(kind, index, event)

    def _take_part(self, kind: str, index: int, event: Event) -> None:
        what, _, step = kind.rpartition(".")
        number = event.get("content_index", event.get("summary_index", 0))
        if what.endswith("_part"):
            key = (index, "part", number)
            assert (key in self._parts) == (step == "done"), kind
            self._parts[key] = step == "done"
            if step == "done":
                assert self._parts_text(index, number) == _words(event["part"])
            return
        key = (index, what, number)
        assert key not in self._finals, f"{kind} after done"
        if step == "delta":
            assert event["delta"], "an empty delta says nothing"
            self._deltas[key] = self._deltas.get(key, "") + event["delta"]
        else:
            assert step == "done", kind
            final = next(event[n] for n in ("text", "refusal", "arguments", "input") if n in event)
            assert final == self._deltas.get(key, ""), "deltas concatenate to done"
            self._finals[key] = final

    def _parts_text(self, index: int, number: int) -> str:
        texts = [
            final
            for (own, _, part), final in self._finals.items()
            if (own, part) == (index, number)
        ]
        assert len(texts) == 1
        return texts[0]

    def _check_item(self, index: int, item: dict[str, Any]) -> None:
        if item["type"] == "message":
            texts = [_words(part) for part in item["content"]]
        elif item["type"] == "compaction":
            assert item["encrypted_content"]
            return
        elif item["type"] == "reasoning":
            texts = [part["text"] for part in item["summary"]]
        else:
            texts = [item.get("arguments", item.get("input"))]
        finals = {part: text for (own, _, part), text in self._finals.items() if own == index}
        assert texts == [finals[part] for part in sorted(finals)], (
            "the item holds what was streamed"
        )

    def check_against(self, response: dict[str, Any]) -> None:
        """Checks at the end that all is closed, and that the response lists exactly those items."""
        if response["status"] == "failed":  # a call that is not whole is not to be run
            cut = [index for index, item in self._open.items() if "call_id" in item]
            for index in cut:
                del self._open[index]
        assert not self._open, "every added item is done"
        assert all(self._parts.values()), "every added part is done"
        assert response["output"] == [self._done[index] for index in sorted(self._done)]


def _words(part: dict[str, Any]) -> str:
    """Returns what a part of an item says, be it a refusal."""
    words = part["refusal"] if part["type"] == "refusal" else part["text"]
    assert isinstance(words, str)
    return words
