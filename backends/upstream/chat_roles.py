"""Puts chat messages into the order that servers' chat templates take.

Many templates have user and assistant alternate (Mistral's raises an error, llama.cpp refuses a
request that ends with two messages of an assistant), and read system messages only in front.
"""

from typing import Any, Literal

Messages = list[dict[str, Any]]
SystemMessages = Literal["anywhere", "first"]


def in_turns(messages: Messages, system_messages: SystemMessages) -> Messages:
    """Merges neighbours of one role; no system message behind others comes last.

    Args:
        messages: In the order of the conversation.
        system_messages: "first": all behind the first other message become the user's.
    """
    turns: Messages = []
    for number, message in enumerate(messages, start=1):
        is_system = message["role"] in ("system", "developer")
        is_first = not turns or (turns[-1]["role"] == message["role"] and len(turns) == 1)
        if is_system and not is_first and (system_messages == "first" or number == len(messages)):
            message = message | {"role": "user"}
        if turns and _merge(turns[-1], message):
            turns[-1] = turns[-1] | {"content": _joined(turns[-1]["content"], message["content"])}
        else:
            turns.append(message)
    return turns


def _merge(before: dict[str, Any], message: dict[str, Any]) -> bool:
    """Returns whether two messages are one: of the same role, and only words."""
    words = before.keys() | message.keys() == {"role", "content"}
    return words and before["role"] == message["role"]


def _joined(before: Any, content: Any) -> Any:
    if isinstance(before, str) and isinstance(content, str):
        return "\n\n".join(filter(None, (before, content)))
    parts = [[{"type": "text", "text": c}] if isinstance(c, str) else c for c in (before, content)]
    return parts[0] + parts[1]
