"""Builds requests as a gateway would."""

from typing import Any

from backends.contract import GenerateRequest, Item, Message, TextFormat, TextPart, Tool
from backends.prompt import measure, prompt_size


def user(text: str) -> Message:
    return Message("user", (TextPart(text),))


def assistant(text: str) -> Message:
    return Message("assistant", (TextPart(text),))


def request(
    *items: Item | str,
    id: str = "resp_1",
    instructions: str | None = None,
    tools: tuple[Tool, ...] = (),
    text_format: TextFormat | None = None,
    **fields: Any,
) -> GenerateRequest:
    """Returns a request; plain strings are user messages."""
    measured = tuple(measure(user(i) if isinstance(i, str) else i) for i in items)
    text_format = text_format or TextFormat()
    num_tokens, prefix = prompt_size(instructions, tools, text_format, measured)
    fields.setdefault("max_output_tokens", 20_000)
    return GenerateRequest(
        id=id,
        model="lanewise-fast",
        items=measured,
        instructions=instructions,
        tools=tools,
        text_format=text_format,
        num_prompt_tokens=num_tokens,
        prefix=prefix,
        **fields,
    )
