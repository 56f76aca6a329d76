"""Goes on with an answer on another backend: what was said of it, and where its deltas join.

This is an edge.
"""

from typing import Literal, NamedTuple

import msgspec

from backends.contract import BackendError, Delta, DeltaKind, Finish, GenerateRequest, More
from backends.tokenizer import count
from gateway.run.branch import Branch
from gateway.wire.response import ResponseWriter
from router.strategies.items import text_of

Reason = Literal["broke", "stalled"]


class Continued(msgspec.Struct, frozen=True):
    """Tells that an answer went on, from its words, on another backend."""

    to: str
    error: BackendError  # names the one that it began on
    num_chars: int  # said until then
    num_tokens: int  # reasoning included
    reason: Reason


class Said(NamedTuple):
    """Holds what the generations of a branch have said so far."""

    words: str
    num_tokens: int  # reasoning included
    last: Delta | None  # None: nothing at all
    has_calls: bool


def said_by(branch: Branch, writer: ResponseWriter | None) -> Said:
    """Returns what a branch has said; `writer` has it where the branch keeps no deltas itself."""
    last = branch.last_delta
    num_tokens = branch.num_tokens_before + branch.num_streamed_tokens
    if last is None:
        return Said("", 0, None, False)
    if writer is not None:
        words, has_calls = writer.words()
        return Said(words, num_tokens, last, has_calls)
    has_calls = any(delta.kind >= DeltaKind.FUNCTION_CALL for delta in branch.said)
    return Said(text_of(branch.said), num_tokens, last, has_calls)


def continuing(request: GenerateRequest, said: Said, number: int) -> GenerateRequest:
    """Returns the request for the rest of an answer, as the `number`th generation after it broke.

    Without words it is the whole answer once more.
    """
    request = msgspec.structs.replace(request, id=f"{request.id}-c{number}")
    if not said.words:
        return request
    extras = request.extras
    if extras.min_tokens:
        least = max(0, extras.min_tokens - said.num_tokens)
        extras = msgspec.structs.replace(extras, min_tokens=least)
    return msgspec.structs.replace(
        request,
        prefill=said.words,
        prediction=None,  # it is of the whole answer
        num_prompt_tokens=request.num_prompt_tokens + count(said.words),
        max_output_tokens=max(1, request.max_output_tokens - said.num_tokens),
        extras=extras,
    )


def refusal_to_go_on(branch: Branch, finish: Finish) -> Finish:
    """Returns an error of an engine that goes on with another's answer as a fault of its own.

    What it refuses is our way to go on, and nothing that the client has sent.
    """
    error = finish.error
    if error is None or error.retryable or not branch.num_continuations or branch.times is not None:
        return finish
    message = f"it does not go on with the answer: {error.message}"
    error = BackendError(error.backend, "server_error", message, retryable=True)
    return msgspec.structs.replace(finish, error=error)


class Joint:
    """Passes a generation's deltas on as if the broken one had gone on: a `Sink`.

    Its first text joins the message that is open, and is a refusal if that is one. What it reasons
    before is not shown: the answer has begun.
    """

    def __init__(self, branch: Branch, said: Said) -> None:
        self._branch = branch
        self._said = said
        self._shift: int | None = None  # from its own indexes to the branch's

    def push(self, delta: Delta) -> More | None:
        if self._shift is None:
            if self._said.words and delta.kind is DeltaKind.REASONING:
                self._branch.num_streamed_tokens += delta.num_tokens
                return None
            self._shift = self._first_index(delta) - delta.index
        index, last = delta.index + self._shift, self._said.last
        refuses = last.refuses if last is not None and index == last.index else delta.refuses
        if self._shift or refuses is not delta.refuses:
            delta = msgspec.structs.replace(delta, index=index, refuses=refuses)
        return self._branch.push(delta)

    def finish(self, finish: Finish) -> None:
        self._branch.finish(finish)

    def _first_index(self, delta: Delta) -> int:
        last = self._said.last
        if last is None:
            return 0
        return last.index + (not last.kind == delta.kind == DeltaKind.TEXT)
