"""Turns a conversation of messages into Responses items.

Results of tools come first in a message, since they must follow the calls. What a harness says in
between (`system` messages, and Claude Code's `<system-reminder>` texts in a user's message) is no
word of the user, by which a task is classified: it becomes a developer message, or a part of the
result before it.
"""

from collections.abc import Iterable

import msgspec

from gateway.messages.blocks import (
    Block,
    Json,
    MessageParam,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolAdditionBlock,
    ToolReferenceBlock,
    ToolRemovalBlock,
    ToolResultBlock,
    ToolUseBlock,
    part_of,
    text_part,
)
from gateway.messages.call_ids import call_id_of
from gateway.messages.thinking import sealed_in
from gateway.wire.errors import ProtocolError

_REMINDER, _REMINDER_END = "<system-reminder>", "</system-reminder>"


class Conversation:
    """Reads messages one after the other; afterwards `items` and `json_paths` have the items."""

    def __init__(self) -> None:
        self.items: list[Json] = []
        self.json_paths: list[str] = []  # of the message that each item came from
        self.loaded: dict[str, bool] = {}  # tools that were added, or removed, on the way
        self.defined: list[msgspec.Raw] = []  # tools that were defined on the way
        self._role = ""  # of the last message that was not the harness's
        self._calls: dict[str, None] = {}  # of the last assistant turn, without a result so far
        self._called_at = ""  # that turn's path
        self._held: list[tuple[str, str]] = []  # notes between calls and their results

    def begin(self, system: str) -> None:
        """Begins with what a harness says of itself."""
        self._add({"role": "developer", "content": [text_part(system)]}, "system")

    def read(self, messages: Iterable[MessageParam]) -> None:
        """Reads all messages.

        Raises `ProtocolError` if calls and results do not fit, or the last word is the assistant's.
        """
        for index, message in enumerate(messages):
            json_path = f"messages.{index}"
            if message.role == "system":
                self._read_system(message, json_path)
            elif message.role == "assistant":
                self._read_assistant(message, json_path)
            else:
                self._read_user(message, json_path)
        self._check_answered()
        if self._role != "user":
            raise ProtocolError(
                "invalid_value",
                "This model does not support assistant message prefill. The conversation must end "
                "with a user message.",
            )

    def _read_system(self, message: MessageParam, json_path: str) -> None:
        for number, block in enumerate(message.blocks()):
            match block:
                case TextBlock(text):
                    self._note(text, json_path)
                case ToolAdditionBlock(tool):
                    if tool.name:
                        self.loaded[tool.name] = True
                    elif bytes(tool.definition) != b"null":
                        self.defined.append(tool.definition)
                case ToolRemovalBlock(tool):
                    self.loaded[tool.name] = False
                case _:
                    raise _misplaced(block, f"{json_path}.content.{number}", "a system")

    def _read_assistant(self, message: MessageParam, json_path: str) -> None:
        if self._role != "assistant":
            self._check_answered()
        self._role, self._called_at = "assistant", json_path
        for number, block in enumerate(message.blocks()):
            where = f"{json_path}.content.{number}"
            match block:
                case TextBlock(text):
                    part = {"type": "output_text", "text": text}
                    self._add({"role": "assistant", "content": [part]}, where)
                case ToolUseBlock(use_id, name, arguments):
                    self._read_call(use_id, name, bytes(arguments), where)
                case ThinkingBlock(thinking, signed):
                    self._read_thinking(thinking, signed, where)
                case RedactedThinkingBlock():
                    pass  # of another service
                case _:
                    raise _misplaced(block, where, "an assistant")

    def _read_call(self, use_id: str, name: str, arguments: bytes, where: str) -> None:
        if not arguments.startswith(b"{"):
            message = f"{where}.input: Input should be a valid dictionary"
            raise ProtocolError("invalid_type", message)
        if use_id in self._calls:
            message = f"{where}.id: `tool_use` ids must be unique, got '{use_id[:80]}' twice."
            raise ProtocolError("invalid_value", message)
        self._calls[use_id] = None
        item = {"type": "function_call", "call_id": call_id_of(use_id), "name": name}
        compact = msgspec.json.format(arguments, indent=-1).decode()
        self._add(item | {"arguments": compact}, where)

    def _read_thinking(self, thinking: str, signed: str, where: str) -> None:
        sealed = sealed_in(thinking, signed)
        if sealed is not None:
            summary = [{"type": "summary_text", "text": thinking}] if thinking else []
            item = {"type": "reasoning", "summary": summary, "encrypted_content": sealed}
            self._add(item, where)

    def _read_user(self, message: MessageParam, json_path: str) -> None:
        self._role = "user"
        blocks = list(enumerate(message.blocks()))
        if not blocks:
            raise ProtocolError(
                "invalid_value", f"{json_path}: user messages must have non-empty content"
            )
        for number, block in blocks:
            if isinstance(block, ToolResultBlock):
                self._read_result(block, f"{json_path}.content.{number}")
        held, self._held = self._held, []
        for note in held:
            self._note(*note)
        said: list[Json] = []
        for number, block in blocks:
            if isinstance(block, ToolResultBlock):
                continue
            if isinstance(block, TextBlock) and _is_reminder(block.text):
                self._note(block.text, json_path)
            elif isinstance(block, ThinkingBlock | RedactedThinkingBlock):
                raise _misplaced(block, f"{json_path}.content.{number}", "a user")
            else:
                said.append(part_of(block, f"{json_path}.content.{number}"))
        if said:
            self._add({"role": "user", "content": said}, json_path)

    def _read_result(self, block: ToolResultBlock, where: str) -> None:
        if block.tool_use_id not in self._calls:
            raise ProtocolError(
                "invalid_value",
                f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: "
                f"{block.tool_use_id[:80]}. Each `tool_result` block must have a corresponding "
                "`tool_use` block in the previous message.",
            )
        del self._calls[block.tool_use_id]
        content = block.content or []
        blocks = [TextBlock(content)] if isinstance(content, str) else content
        self.loaded |= {b.tool_name: True for b in blocks if isinstance(b, ToolReferenceBlock)}
        parts = [part_of(b, f"{where}.content.{n}") for n, b in enumerate(blocks)]
        if block.is_error:
            parts = _marked_as_error(parts)
        call_id = call_id_of(block.tool_use_id)
        self._add({"type": "function_call_output", "call_id": call_id, "output": parts}, where)

    def _note(self, text: str, json_path: str) -> None:
        """Adds what the harness says; between calls and results, it comes after these."""
        if self._calls:
            self._held.append((text, json_path))
        elif self.items and self.items[-1].get("type") == "function_call_output":
            reminder = text if _is_reminder(text) else f"{_REMINDER}\n{text}\n{_REMINDER_END}"
            self.items[-1]["output"].append(text_part(reminder))
        else:
            self._add({"role": "developer", "content": [text_part(text)]}, json_path)

    def _add(self, item: Json, json_path: str) -> None:
        self.items.append(item)
        self.json_paths.append(json_path)

    def _check_answered(self) -> None:
        """Raises `ProtocolError` if calls of the last assistant turn have no result."""
        if self._calls:
            ids = ", ".join(list(self._calls)[:8])
            raise ProtocolError(
                "invalid_value",
                f"{self._called_at}: `tool_use` ids were found without `tool_result` blocks "
                f"immediately after: {ids}. Each `tool_use` block must have a corresponding "
                "`tool_result` block in the next message.",
            )


def _is_reminder(text: str) -> bool:
    stripped = text.strip()
    return stripped.startswith(_REMINDER) and stripped.endswith(_REMINDER_END)


def _marked_as_error(parts: list[Json]) -> list[Json]:
    """Says in words that a result is an error, which a Responses item cannot say otherwise."""
    first = parts[0].get("text", "") if parts else ""
    if first.lstrip("<").lower().startswith(("error", "tool_use_error")):
        return parts
    return [text_part(f"Error: {first}"), *parts[1:]] if first else [text_part("Error"), *parts]


def _misplaced(block: Block, json_path: str, whose: str) -> ProtocolError:
    kind = block.__struct_config__.tag
    message = f"{json_path}.type: a block of type '{kind}' cannot stand in {whose} message."
    return ProtocolError("invalid_value", message)
