"""Finds the model that a client of Anthropic's means, and lists the models as Anthropic does."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from gateway.messages.ratelimit import rfc3339
from gateway.wire.errors import ProtocolError, check_limit
from router.policy.policy import AUTO

MAX_LISTED = 1_000  # of one page; Anthropic's limit
_MARK = "claude-"  # Claude Code lists only what has it in its name
_OURS = "lanewise-"
_FOREIGN = ("claude", "anthropic")


def meant_model(name: str, known: Collection[str]) -> str:
    """Returns the model or alias that a name means here.

    `claude-` before a name of ours is dropped, so that Claude Code lists it; other names of Claude
    leave the choice to the router, unless the policy has an alias for them.
    """
    if name in known:
        return name
    own = name.removeprefix(_MARK)
    for candidate in (own, own.removeprefix(_OURS)):
        if candidate in known:
            return candidate
    return AUTO if any(word in name.lower() for word in _FOREIGN) else name


def listed_name(name: str) -> str:
    """Returns the name under which Claude Code lists a model."""
    if any(word in name.lower() for word in _FOREIGN):
        return name
    return f"{_MARK}{name if name.startswith(_OURS) else _OURS + name}"


def model_entries(catalogue: Mapping[str, Any], max_tokens: int) -> list[dict[str, Any]]:
    """Makes the entries of a catalogue in Anthropic's form, under both of their names.

    Models that are only relayed have one, since no message can ask for them: Claude Code would
    list them by the other.
    """
    windows = {entry["slug"]: entry["context_window"] for entry in catalogue["models"]}
    return [
        {
            "type": "model",
            "id": name,
            "display_name": entry["id"],
            "created_at": rfc3339(entry["created"]),
            "lifecycle": "active",
            "max_input_tokens": windows.get(entry["id"]),
            "max_tokens": max_tokens,
            "capabilities": None,
        }
        for entry in catalogue["data"]
        for name in _names(entry["id"], is_relayed=entry["id"] not in windows)
    ]


def _names(name: str, *, is_relayed: bool) -> Iterable[str]:
    return (name,) if is_relayed else dict.fromkeys((name, listed_name(name)))


def model_page(
    entries: Sequence[dict[str, Any]], limit: int, after_id: str | None, before_id: str | None
) -> dict[str, Any]:
    """Makes a page of entries: those after one, or before one.

    Raises `ProtocolError` if there is no such one, as after the model was taken away: a client
    that got the first page again would have it twice. So it does for a limit that is none.
    """
    check_limit(limit, MAX_LISTED)
    ids = [entry["id"] for entry in entries]
    for name, given in (("after_id", after_id), ("before_id", before_id)):
        if given is not None and given not in ids:
            message = f"{name}: no model '{given[:80]}' is listed."
            raise ProtocolError("invalid_value", message, param=name)
    start, stop = 0, len(entries)
    if after_id in ids:
        start = ids.index(after_id) + 1
    if before_id in ids:
        stop = ids.index(before_id)
        start = max(start, stop - limit)
    page = entries[start : min(stop, start + limit)]
    has_more = start > 0 if before_id in ids else start + len(page) < stop
    return {
        "data": page,
        "has_more": has_more,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
    }
