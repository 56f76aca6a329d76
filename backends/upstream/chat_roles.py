"""Puts chat messages into the order that servers' chat templates take.

Many templates have user and assistant alternate (Mistral's raises an error, llama.cpp refuses a
request that ends with two messages of an assistant), and read system messages only in front.
"""

from typing import Any, Literal

Messages = list[dict[str, Any]]
SystemMessages = Literal["anywhere", "first"]
OF_WORDS = {"role", "content", "name"}  # fields of a message that has nothing else
PAD = "..."  # it says nothing, and a template refuses an empty message


def in_turns(
    messages: Messages, system_messages: SystemMessages, *, pads_tool_turns: bool = False
) -> Messages:
    """Merges neighbours of one role; no system message comes last.

    Args:
        messages: In the order of the conversation.
        system_messages: "first": all behind the first other message become the user's.
        pads_tool_turns: Whether an assistant's `PAD` stands between a tool's output and the user.
    """
    turns: Messages = []
    for number, message in enumerate(messages, start=1):
        if message["role"] in ("system", "developer"):
            is_first = not turns or (turns[-1]["role"] == message["role"] and len(turns) == 1)
            if number == len(messages) or (system_messages == "first" and not is_first):
                message = message | {"role": "user"}
        before = turns[-1] if turns else {"role": ""}
        if pads_tool_turns and (before["role"], message["role"]) == ("tool", "user"):
            turns.append({"role": "assistant", "content": PAD})
        if _merge(before, message):
            turns[-1] = _merged(before, message)
        else:
            turns.append(message)
    return turns


def _merge(before: dict[str, Any], message: dict[str, Any]) -> bool:
    """Returns whether two messages are one: of one speaker, and an assistant's or only words."""
    if before["role"] != message["role"] or before.get("name") != message.get("name"):
        return False
    return message["role"] == "assistant" or before.keys() | message.keys() <= OF_WORDS


def _merged(before: dict[str, Any], message: dict[str, Any]) -> dict[str, Any]:
    """Returns one message with the words, and the calls, of both."""
    contents = [content for each in (before, message) if (content := each["content"])]
    content = _joined(*contents) if len(contents) == 2 else (contents or [message["content"]])[0]
    merged = before | {"content": content}
    calls = [call for each in (before, message) for call in each.get("tool_calls", ())]
    return merged | {"tool_calls": calls} if calls else merged


def _joined(before: Any, content: Any) -> Any:
    if isinstance(before, str) and isinstance(content, str):
        return f"{before}\n\n{content}"
    parts = [[{"type": "text", "text": c}] if isinstance(c, str) else c for c in (before, content)]
    return parts[0] + parts[1]
