"""Defines a script's answer: whole output items, before any limit cuts them."""

import hashlib
from collections.abc import Callable

import msgspec

from backends.contract import DeltaKind, GenerateRequest
from backends.tokenizer import count


class AnswerItem(msgspec.Struct, frozen=True):
    """Is one whole output item."""

    kind: DeltaKind
    text: str  # of the message, the reasoning summary, or the call's arguments
    num_silent_tokens: int = 0  # before the text: hidden reasoning, or a call's name
    call_id: str = ""  # calls only
    name: str = ""  # calls only
    namespace: str | None = None  # function calls only
    sealed: str = ""  # reasoning only: its encrypted content


class ScriptedAnswer(msgspec.Struct, frozen=True):
    """Holds a generation's whole output, uncut: at least one item."""

    items: tuple[AnswerItem, ...]


Script = Callable[[GenerateRequest], ScriptedAnswer]


def message_item(text: str) -> AnswerItem:
    """Makes an assistant message."""
    return AnswerItem(DeltaKind.TEXT, text)


def call_item(
    kind: DeltaKind, call_id: str, name: str, text: str, namespace: str | None = None
) -> AnswerItem:
    """Makes a call; its name costs tokens before its arguments."""
    return AnswerItem(kind, text, 1 + count(name), call_id, name, namespace)


def call_id(request_id: str, index: int) -> str:
    """Makes a call's id: unique to the request and index, and reproducible."""
    digest = hashlib.blake2b(f"{request_id}/{index}".encode(), digest_size=12)
    return f"call_{digest.hexdigest()}"
