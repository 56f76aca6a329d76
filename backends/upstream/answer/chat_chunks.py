"""Decodes an upstream's chat completion chunks."""

from typing import Any, Literal

import msgspec

from backends.upstream.answer.errors import WireError
from backends.upstream.answer.lenient import fitted


class ChunkFunction(msgspec.Struct, frozen=True, gc=False):
    """Is a piece of what a call has of its function."""

    name: str | None = None
    arguments: str | None = None


class ChunkCall(msgspec.Struct, frozen=True, gc=False):
    """Is a piece of a call."""

    index: int | None = None
    id: str | None = None
    function: ChunkFunction | None = None


class ChunkDelta(msgspec.Struct, frozen=True, gc=False):
    """Is what a chunk adds to an answer."""

    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None  # DeepSeek's name: SGLang, xAI, llama.cpp, older vLLM
    reasoning: str | None = None  # Cerebras, Ollama, newer vLLM
    tool_calls: list[ChunkCall] | None = None
    function_call: ChunkFunction | None = None  # what was before calls had ids


class ChunkChoice(msgspec.Struct, frozen=True, gc=False):
    """Is what a chunk says of one answer."""

    index: int = 0
    delta: ChunkDelta | None = None
    message: ChunkDelta | None = None  # some servers' name for a delta
    finish_reason: str | None = None
    stop_reason: Any = None  # vLLM's: the stop sequence, or the number of a token


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """Is one event of a chat completion."""

    choices: list[ChunkChoice] | None = None
    usage: Any = None  # a figure of another type must not spoil the event
    error: WireError | str | None = None
    service_tier: Any = None
    # An error that is not nested has these; whole chunks have choices.
    message: str | None = None
    code: str | int | None = None
    type: str | None = None


class _PlainDelta(msgspec.Struct, frozen=True, gc=False):
    content: str
    refusal: None = None
    reasoning_content: None = None
    reasoning: None = None
    tool_calls: None = None
    function_call: None = None


class _PlainChoice(msgspec.Struct, frozen=True, gc=False):
    delta: _PlainDelta
    message: None = None
    index: Literal[0] = 0
    finish_reason: None = None
    stop_reason: None = None


class _PlainChunk(msgspec.Struct, frozen=True, gc=False):
    """Is a chunk that says nothing but a piece of the text: more is a DecodeError."""

    choices: tuple[_PlainChoice]
    usage: None = None
    error: None = None
    service_tier: Any = None
    message: None = None


DONE = Chunk()  # the end of a stream, which is not JSON
_decode = msgspec.json.Decoder(Chunk).decode
decode_plain = msgspec.json.Decoder(_PlainChunk).decode
_TEXT_FIELDS = ("text", "thinking", "reasoning", "content", "refusal")  # of a part
# What must be read where a chunk has it. Other fields are left out if they are of another type.
_NEEDED = ("choices", "delta", "content", "refusal", "tool_calls", "function", "error")


def decode_chunk(message: bytes) -> Chunk:
    """Decodes a chunk, reads what it has in odd ways, and leaves out odd fields that nobody needs.

    Invalid JSON is a DecodeError, UnicodeDecodeError or RecursionError.
    """
    if message == b"[DONE]":
        return DONE
    try:
        return _decode(message)
    except msgspec.ValidationError:
        found = msgspec.json.decode(message)
        if isinstance(found, dict) and isinstance(found.get("choices"), list):
            for choice in found["choices"]:
                for name in ("delta", "message") if isinstance(choice, dict) else ():
                    if isinstance(choice.get(name), dict):
                        _flatten(choice[name])
        return fitted(found, Chunk, _NEEDED)


def _flatten(delta: dict[str, Any]) -> None:
    """Makes texts of what a delta has as parts or objects; those that think are reasoning."""
    content = delta.get("content")
    if isinstance(content, list | dict):
        parts = content if isinstance(content, list) else [content]
        thoughts = [part for part in parts if _thinks(part)]
        delta["content"] = _text([part for part in parts if not _thinks(part)])
        if thoughts:
            delta["reasoning_content"] = _text(thoughts)
    for name in ("reasoning", "reasoning_content"):
        if isinstance(delta.get(name), list | dict):
            delta[name] = _text(delta[name])


def _thinks(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in ("thinking", "reasoning")


def _text(part: Any) -> str:
    """Returns the text of a part or of several; "" if there is none."""
    if isinstance(part, list):
        return "".join(map(_text, part))
    if isinstance(part, dict):
        return next(filter(None, (_text(part.get(name)) for name in _TEXT_FIELDS)), "")
    return part if isinstance(part, str) else ""


def decode_chunks(messages: list[bytes]) -> list[Chunk]:
    """Decodes chunks that came together, of which only the last may be the end of the stream.

    An odd field is an error, and `decode_chunk` reads those chunks.
    """
    if messages and messages[-1] == b"[DONE]":
        return [*map(_decode, messages[:-1]), DONE]
    return list(map(_decode, messages))
