"""What a script answers with: whole output items, before anything cuts them."""

import hashlib
from collections.abc import Callable

import msgspec

from backends.contract import DeltaKind, GenerateRequest
from backends.tokenizer import count


class AnswerItem(msgspec.Struct, frozen=True):
    """Holds one whole output item."""

    kind: DeltaKind
    text: str  # of the message, the reasoning summary, or the call's arguments
    num_silent_tokens: int = 0  # before the text: hidden reasoning, or a call's name
    call_id: str = ""  # calls only
    name: str = ""  # calls only
    namespace: str | None = None  # function calls only


class ScriptedAnswer(msgspec.Struct, frozen=True):
    """Holds everything a generation would say if nothing cut it short: at least one item."""

    items: tuple[AnswerItem, ...]


Script = Callable[[GenerateRequest], ScriptedAnswer]


def message_item(text: str) -> AnswerItem:
    """Make an assistant message."""
    return AnswerItem(DeltaKind.TEXT, text)


def call_item(
    kind: DeltaKind, call_id: str, name: str, text: str, namespace: str | None = None
) -> AnswerItem:
    """Make a call; its name costs tokens too, before its arguments."""
    return AnswerItem(kind, text, 1 + count(name), call_id, name, namespace)


def call_id(request_id: str, index: int) -> str:
    """Make a call's id: different for each request and call, the same when made again."""
    digest = hashlib.blake2b(f"{request_id}/{index}".encode(), digest_size=12)
    return f"call_{digest.hexdigest()}"
