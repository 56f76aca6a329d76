"""Writes what a response holds as JSON: the items of its output, and its usage."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from backends.contract import (
    CUSTOM_CALL,
    REASONING,
    TEXT,
    CustomToolCall,
    DeltaKind,
    FunctionCall,
    Item,
    Message,
    Reasoning,
    RefusalPart,
    TextPart,
    Usage,
)


class InputDetails(msgspec.Struct, frozen=True, gc=False):
    """Counts the input tokens by kind."""

    cached_tokens: int  # input tokens that a KV cache held
    cache_write_tokens: int  # input tokens that an upstream wrote to its cache


class OutputDetails(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Counts the output tokens by kind."""

    reasoning_tokens: int  # output tokens spent on reasoning
    # tokens of the prediction that are in the answer, where one was checked
    accepted_prediction_tokens: int | None = None
    # tokens of the prediction that were computed and are not in the answer
    rejected_prediction_tokens: int | None = None


class ResponseUsage(msgspec.Struct, frozen=True, gc=False):
    """Counts the tokens of a response, or of what a backend did for it."""

    input_tokens: int  # tokens of the prompt
    input_tokens_details: InputDetails  # the input tokens by kind
    output_tokens: int  # tokens generated, reasoning included
    output_tokens_details: OutputDetails  # the output tokens by kind
    total_tokens: int  # input and output together


def response_usage(usage: Usage) -> ResponseUsage:
    """Makes `usage` of a response; OpenAI's SDK requires every field."""
    num_input, num_output = usage.num_input_tokens, usage.num_output_tokens
    accepted, rejected = usage.num_accepted_tokens, usage.num_rejected_tokens
    if accepted or rejected:
        details = OutputDetails(usage.num_reasoning_tokens, accepted, rejected)
    else:
        details = OutputDetails(usage.num_reasoning_tokens)
    return ResponseUsage(
        num_input,
        InputDetails(usage.num_cached_tokens, usage.num_cache_write_tokens),
        num_output,
        details,
        num_input + num_output,
    )


def usage_by_name(used: Mapping[str, Usage]) -> dict[str, ResponseUsage]:
    """Makes `routing.usage`, by backend."""
    return dict(zip(used, map(response_usage, used.values()), strict=True))


class OutputText(msgspec.Struct, frozen=True, tag="output_text", gc=False):
    """Carries text of a message."""

    text: str
    annotations: tuple[()] = ()
    logprobs: tuple[()] = ()


class RefusalText(msgspec.Struct, frozen=True, tag="refusal", gc=False):
    """Is a content part of a message that refuses."""

    refusal: str


class SummaryText(msgspec.Struct, frozen=True, gc=False):
    """Is a part of a reasoning summary."""

    type: Literal["summary_text"]
    text: str


class MessageOutput(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Is a message; it has a `phase` only where one is known."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    status: str
    content: tuple[OutputText | RefusalText, ...]
    phase: str | None = None


class ReasoningOutput(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Carries a summary of the reasoning, and the sealed reasoning itself."""

    id: str
    type: Literal["reasoning"]
    summary: tuple[SummaryText, ...]
    status: str
    encrypted_content: str = ""


class CallOutput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Is a call of a function (`arguments`) or of a custom tool (`input`)."""

    id: str
    call_id: str
    name: str
    status: str
    namespace: str | None = None
    type: Literal["function_call", "custom_tool_call"]
    arguments: str | None = None
    input: str | None = None


class CompactionOutput(msgspec.Struct, frozen=True, gc=False):
    """Carries a sealed compaction, which clients send back as it is."""

    id: str | None
    type: Literal["compaction"]
    encrypted_content: str


# Ends the ids of items that are not of the conversation, for clients that send all items again.
ASIDE = "_aside"

OutputItem = MessageOutput | ReasoningOutput | CallOutput | CompactionOutput


class OpenItem(msgspec.Struct, eq=False, gc=False):
    """Is the output item that deltas go to now."""

    source: int  # the engine's index of the item
    kind: DeltaKind
    id: str
    phase: str | None
    call_id: str
    name: str
    namespace: str | None = None  # of the function that is called
    pieces: list[str] = []  # sent
    index: int = 0  # in the response
    delta_type: str = ""  # of the events with more of its text
    delta_format: bytes = b""  # of the same, for their number and their text's JSON
    sealed: str = ""  # encrypted content of reasoning
    is_aside: bool = False  # not of the conversation: the next turn is not to read it
    refuses: bool = False  # a message, in which the model refuses

    def output(self, status: str, text: str | None) -> OutputItem:
        """Returns the item as the response shows it; `text` is None while it is open."""
        if self.kind is TEXT:
            content: tuple[OutputText | RefusalText, ...] = ()
            if text is not None:
                content = (RefusalText(text) if self.refuses else OutputText(text),)
            return MessageOutput(self.id, "message", "assistant", status, content, self.phase)
        if self.kind is REASONING:
            summary = (SummaryText("summary_text", text),) if text else ()
            return ReasoningOutput(self.id, "reasoning", summary, status, self.sealed)
        is_custom = self.kind is CUSTOM_CALL
        return CallOutput(
            id=self.id,
            call_id=self.call_id,
            name=self.name,
            status=status,
            namespace=None if is_custom else self.namespace,
            type="custom_tool_call" if is_custom else "function_call",
            arguments=None if is_custom else text or "",
            input=text or "" if is_custom else None,
        )

    def context_item(self, text: str, *, is_cut: bool) -> Item:
        """Returns the item as context for the next turn; `is_cut`: it ended before it was whole."""
        if self.kind is TEXT:
            part = RefusalPart(text) if self.refuses else TextPart(text)
            return Message("assistant", (part,), id=self.id, phase=self.phase)
        if self.kind is REASONING:
            return Reasoning(self.id, (text,) if text else (), (), self.sealed or None)
        if self.kind is CUSTOM_CALL:
            return CustomToolCall(self.call_id, self.name, text, self.id, is_cut)
        return FunctionCall(self.call_id, self.name, text, self.id, self.namespace, is_cut)


class _DoneText(msgspec.Struct, gc=False):
    text: str = ""
    refusal: str | None = None


class _DoneItem(msgspec.Struct, gc=False):
    """Is a finished item of any kind, as it was written."""

    type: str
    id: str | None = None
    phase: str | None = None
    call_id: str = ""
    name: str = ""
    namespace: str | None = None
    encrypted_content: str = ""
    arguments: str = ""
    input: str = ""
    content: tuple[_DoneText, ...] = ()
    summary: tuple[_DoneText, ...] = ()


_DONE_KINDS = {
    "message": DeltaKind.TEXT,
    "reasoning": DeltaKind.REASONING,
    "function_call": DeltaKind.FUNCTION_CALL,
    "custom_tool_call": DeltaKind.CUSTOM_CALL,
}
_decode_done = msgspec.json.Decoder(_DoneItem).decode


def reopened(written: bytes) -> tuple[OpenItem | None, str]:
    """Returns a finished item as it was open, and its text; of a compaction None, and its id."""
    done = _decode_done(written)
    kind = _DONE_KINDS.get(done.type)
    if kind is None:
        return None, done.id or ""
    texts = "".join(part.refusal or part.text for part in done.content or done.summary)
    item = OpenItem(
        -1,
        kind,
        done.id or "",
        done.phase,
        done.call_id,
        done.name,
        done.namespace,
        sealed=done.encrypted_content,
        is_aside=(done.id or "").endswith(ASIDE),
        refuses=any(part.refusal is not None for part in done.content),
    )
    return item, texts or done.arguments or done.input
