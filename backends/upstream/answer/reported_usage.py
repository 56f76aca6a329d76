"""Reads the usage that a server reports: any JSON, of which only whole numbers are believed.

The most that it can report for the prompt follows from what was sent: no vocabulary has a token
for less than a byte, and a server's own template adds a tenth at most.
"""

from typing import Annotated, Any, TypeVar

import msgspec

from backends.contract import (
    CustomToolCallOutput,
    FilePart,
    FunctionCallOutput,
    GenerateRequest,
    ImagePart,
    Message,
)

SPARE_INPUT_TOKENS = 64  # of a chat template's own words, where a prompt is short


class Figures(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Holds what a server reports, before it is bounded; None for what it does not say."""

    num_input: int | None
    num_output: int | None
    num_cached: int = 0
    num_cache_write: int = 0
    num_reasoning: int = 0
    num_hidden: int = 0  # of the output, never shown; without the rejected ones
    num_accepted: int = 0  # of the prediction
    num_rejected: int = 0
    is_odd: bool = False


_Count = Annotated[int, msgspec.Meta(ge=0)] | None


class PromptFigures(msgspec.Struct, frozen=True, gc=False):
    """Is what either protocol says of a prompt."""

    cached_tokens: _Count = None
    cache_write_tokens: _Count = None


class AnswerFigures(msgspec.Struct, frozen=True, gc=False):
    """Is what a Responses server says of an answer."""

    reasoning_tokens: _Count = None


class CompletionFigures(msgspec.Struct, frozen=True, gc=False):
    """Is what a chat server says of an answer."""

    reasoning_tokens: _Count = None
    accepted_prediction_tokens: _Count = None
    rejected_prediction_tokens: _Count = None


class ResponsesFigures(msgspec.Struct, frozen=True, gc=False):
    """Is the usage object of a Responses server."""

    input_tokens: _Count = None
    output_tokens: _Count = None
    input_tokens_details: PromptFigures | None = None
    output_tokens_details: AnswerFigures | None = None


class ChatFigures(msgspec.Struct, frozen=True, gc=False):
    """Is the usage object of a chat server."""

    prompt_tokens: _Count = None
    completion_tokens: _Count = None
    total_tokens: _Count = None
    prompt_tokens_details: PromptFigures | None = None
    completion_tokens_details: CompletionFigures | None = None


NO_PROMPT_FIGURES = PromptFigures()
NO_ANSWER_FIGURES = AnswerFigures()
NO_COMPLETION_FIGURES = CompletionFigures()
_DETAILS: dict[str, type[msgspec.Struct]] = {
    "input_tokens_details": PromptFigures,
    "prompt_tokens_details": PromptFigures,
    "output_tokens_details": AnswerFigures,
    "completion_tokens_details": CompletionFigures,
}

_Kind = TypeVar("_Kind", bound=msgspec.Struct)


def believed(usage: Any, kind: type[_Kind]) -> tuple[_Kind, bool]:
    """Returns what is believed of a server's usage object, and whether some of it was odd."""
    try:
        return msgspec.convert(usage, kind), False
    except msgspec.ValidationError:
        return believed_figures(usage, kind)


def believed_figures(usage: Any, kind: type[_Kind]) -> tuple[_Kind, bool]:
    """Does what `believed` does, figure by figure."""
    reported = Reported(usage)
    fields: dict[str, Any] = {}
    for name in kind.__struct_fields__:
        details = _DETAILS.get(name)
        if details is None:
            fields[name] = reported.figure(name)
        elif isinstance(reported.fields.get(name), dict):
            figures = {each: reported.figure(name, each) for each in details.__struct_fields__}
            fields[name] = details(**figures)
    return kind(**fields), reported.is_odd


class Reported:
    """Holds a server's usage object, whatever it is."""

    def __init__(self, usage: Any) -> None:
        self.fields = usage if isinstance(usage, dict) else {}
        self.is_odd = not isinstance(usage, dict)  # a figure was no whole number from 0 on

    def figure(self, *path: str) -> int | None:
        """Returns the figure at a path; None if it is missing, null or no count of tokens."""
        found: Any = self.fields
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        if found is None or (type(found) is int and found >= 0):
            return found
        if isinstance(found, float) and found.is_integer():
            found = int(found)  # as servers in JavaScript write it
        if not isinstance(found, int) or isinstance(found, bool) or found < 0:
            self.is_odd = True
            return None
        return found


def max_input_tokens(
    request: GenerateRequest, num_bytes: int, max_image_tokens: int, window_tokens: int
) -> int:
    """Returns the most tokens that a prompt can have of which so many bytes were sent.

    Images count `max_image_tokens` instead of their bytes, and a file that is only named may fill
    the window.
    """
    num_attached_tokens = 0
    for entry in request.items:
        item = entry.item
        if isinstance(item, Message):
            parts = item.content
        elif isinstance(item, FunctionCallOutput | CustomToolCallOutput):
            parts = item.output
        else:
            continue
        for part in parts:
            if isinstance(part, ImagePart):
                num_attached_tokens += max_image_tokens
                num_bytes -= len(part.image_url or "")
            elif isinstance(part, FilePart) and part.file_data is None:
                num_attached_tokens += window_tokens
    num_bytes = max(num_bytes, 0)
    return num_bytes + num_bytes // 10 + SPARE_INPUT_TOKENS + num_attached_tokens
