"""Writes engines' call ids so that Anthropic's clients take them: letters, digits, `_` and `-`."""

import re

_PLAIN = re.compile(r"[a-zA-Z0-9_-]+")
_CODED = re.compile(r"toolu_x((?:[0-9a-f]{2})+)")


def tool_use_id(call_id: str) -> str:
    """Returns the id of a `tool_use` block for an engine's call."""
    if _PLAIN.fullmatch(call_id) and not _CODED.fullmatch(call_id):
        return call_id
    return f"toolu_x{call_id.encode('utf-8', 'surrogatepass').hex()}"


def call_id_of(tool_use_id: str) -> str:
    """Returns the engine's id again; ids of others stay as they are."""
    coded = _CODED.fullmatch(tool_use_id)
    if coded is None:
        return tool_use_id
    return bytes.fromhex(coded[1]).decode("utf-8", "replace")
