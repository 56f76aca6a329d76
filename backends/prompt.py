"""Renders items as text, counts their tokens, and hashes them so that prefixes are recognised.

A prompt is its head (instructions, tools, text format) and then its items. Each item is rendered
by `render`, counted by the tokenizer and hashed; the hash of the prompt after each item chains the
hashes before it, so two prompts share a prefix exactly when they share a hash. An engine keeps KV
by these hashes: a conversation's next turn finds everything up to its last response.

A tenant must not learn from cached tokens what another has sent. So the hashes of a prefix are
salted with the tenant's id, and equal prompts of two tenants share nothing.

Ids and phases are not part of an item's text: a message that the client sends back under another id
is the same prompt. Reasoning changes no hash; what an upstream encrypted of it, and reads again,
has the tokens that its bytes would have as text.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b

import msgspec

from backends.contract import (
    Compaction,
    ContextItem,
    CustomToolCall,
    CustomToolCallOutput,
    DeltaKind,
    FilePart,
    FunctionCall,
    FunctionCallOutput,
    GenerateRequest,
    ImagePart,
    Item,
    Message,
    Part,
    Reasoning,
    RefusalPart,
    TextFormat,
    TextPart,
    Tool,
)
from backends.tokenizer import count, min_tokens

ITEM_OVERHEAD_TOKENS = 4  # the markers around every item: start, role, separator, end

# Tokens an image costs, whatever its real size (it is never fetched): OpenAI's vision guide, tile
# rule (85 + 170 per 512 px tile) for a 1024 x 1024 picture, read 2025-08; "low" detail is 85.
IMAGE_TOKENS = 765
IMAGE_LOW_TOKENS = 85

# Tokens of an attached file whose content we do not hold; assumed: about two pages of text.
FILE_TOKENS = 1024

# Encrypted reasoning is base64: 4 characters stand for 3 bytes, and a token is about 4 bytes.
SEALED_CHARS_PER_TOKEN = 16 / 3

MAX_KEPT_HEAD_BYTES = 256 << 10
PIECE_ITEMS = 512  # hashed in a millisecond

# Agents that chain nothing send their whole context again with each request, and to count a text
# takes some twenty times as long as to hash it. The bounds are of what is worth an entry, of about
# 200 bytes, and of what the time may tell others of a text: whether anybody has sent it.
MIN_KNOWN_CHARS, MAX_KNOWN_CHARS = 128, 16 << 10
MAX_KNOWN_COUNTS = 16_384  # then all are dropped
_known_counts: dict[int, int] = {}

Prefix = tuple[tuple[int, int], ...]  # (hash of the prompt so far, its tokens), at item ends


class TooLongError(ValueError):
    """Says that an item exceeds the limit; `num_tokens` is a lower bound of its tokens."""

    def __init__(self, num_tokens: int) -> None:
        super().__init__(f"at least {num_tokens} tokens")
        self.num_tokens = num_tokens


def overflow_words(num_tokens: int, window_tokens: int) -> str:
    """Says that a context is too long in OpenAI's words, by which clients know it."""
    return (
        f"This model's maximum context length is {window_tokens} tokens. However, your messages "
        f"resulted in {num_tokens} tokens. Please reduce the length of the messages."
    )


def measure(item: Item, max_tokens: int | None = None) -> ContextItem:
    """Counts an item's tokens and hashes it; linear in its length, so done once per item.

    Raises `TooLongError` for more than `max_tokens`; the cost of finding out is bounded.
    """
    if isinstance(item, Reasoning):
        num_tokens = int(len(item.encrypted_content or "") / SEALED_CHARS_PER_TOKEN)
        if max_tokens is not None and num_tokens > max_tokens:
            raise TooLongError(num_tokens)
        return ContextItem(item, num_tokens, 0)
    text = render(item)
    if max_tokens is not None and len(text) > max_tokens:
        least = min_tokens(len(text))
        if least > max_tokens:
            raise TooLongError(least)
    digest = _hash(text.encode("utf-8", "surrogatepass"))
    if MIN_KNOWN_CHARS <= len(text) <= MAX_KNOWN_CHARS:
        num_tokens = ITEM_OVERHEAD_TOKENS + _known_count(text, digest, max_tokens)
    else:
        num_tokens = ITEM_OVERHEAD_TOKENS + count(text, max_tokens)
    if "[" in text:  # in which attachments are named
        num_tokens += _attachment_tokens(item)
    if max_tokens is not None and num_tokens > max_tokens:
        raise TooLongError(num_tokens)
    return ContextItem(item, num_tokens, digest)


def _known_count(text: str, digest: int, max_tokens: int | None) -> int:
    """Counts a text's tokens, unless it was counted before; it is known by its hash and length."""
    key = digest << 32 | len(text)
    num_tokens = _known_counts.get(key)
    if num_tokens is None:
        num_tokens = count(text, max_tokens)
        if max_tokens is None or num_tokens <= max_tokens:  # else counting may have stopped
            if len(_known_counts) >= MAX_KNOWN_COUNTS:
                _known_counts.clear()
            _known_counts[key] = num_tokens
    return num_tokens


def digest_of(item: Item) -> int:
    """Returns an item's hash alone, as `measure` computes it."""
    return _hash(render(item).encode("utf-8", "surrogatepass"))


@lru_cache(maxsize=4096)
def cache_salt(tenant_id: str) -> int:
    """Returns the salt of a tenant's prefixes."""
    return _hash(tenant_id.encode())


def prompt_size(
    instructions: str | None,
    tools: Sequence[Tool],
    text_format: TextFormat,
    items: Iterable[ContextItem],
    salt: int = 0,
) -> tuple[int, Prefix]:
    """Returns a prompt's tokens, and its prefix under that salt.

    That is the hash and tokens of the prompt so far at the end of the head and of each item that
    has tokens. The last entry, if any, is the whole prompt's.
    """
    prefix = begun_prefix(instructions, tools, text_format, salt)
    extend_prefix(prefix, items, salt)
    return (prefix[-1][1] if prefix else 0), tuple(prefix)


def begun_prefix(
    instructions: str | None, tools: Sequence[Tool], text_format: TextFormat, salt: int = 0
) -> list[tuple[int, int]]:
    """Returns the prefix of a prompt's head, to be extended by its items."""
    # An empty head must have no tokens, so that a bare prompt is only its items.
    if not instructions and not tools and text_format.type == "text":
        return []
    num_tokens, chained = _head_size(_render_head(instructions, tools, text_format))
    return [(chained ^ salt, num_tokens)]


def end_prefix(prefix: Prefix, items: Iterable[Item], salt: int = 0) -> tuple[int, int]:
    """Returns the last prefix entry of the prompt once these items are appended."""
    grown = list(prefix[-1:])
    extend_prefix(grown, map(measure, items), salt)
    return grown[-1] if grown else (0, 0)


def extend_prefix(
    prefix: list[tuple[int, int]], items: Iterable[ContextItem], salt: int = 0
) -> None:
    """Appends one entry per item that has tokens.

    The salt is applied to each entry and not to the chain, so that `unsalted_hash` can be had.
    """
    salted, num_tokens = prefix[-1] if prefix else (salt, 0)
    chained = salted ^ salt
    for item in items:
        if isinstance(item.item, Reasoning):
            num_tokens += item.num_tokens
            if prefix and item.num_tokens:
                prefix[-1] = (prefix[-1][0], num_tokens)
        elif item.num_tokens:
            num_tokens += item.num_tokens
            chained = _hash((chained << 64 | item.digest).to_bytes(16, "big"))
            prefix.append((chained ^ salt, num_tokens))
    if not prefix and num_tokens:  # of reasoning alone
        prefix.append((_hash(b"") ^ salt, num_tokens))


def unsalted_hash(request: GenerateRequest) -> int:
    """Returns the hash of a request's prompt, which is the same for every tenant."""
    return request.prefix[-1][0] ^ request.cache_salt if request.prefix else 0


def render(item: Item) -> str:
    """Renders an item as the model reads it; items with equal text are the same."""
    if isinstance(item, Message):  # as most are; a pattern would cost several times as much
        who = item.role if item.name is None else f"{item.role} {item.name}"
        return f"{who}\n{parts_text(item.content)}"
    match item:
        case FunctionCall(call_id, name, arguments, namespace=namespace):
            return f"call {call_id} {namespace or ''}.{name}\n{arguments}"
        case CustomToolCall(call_id, name, tool_input):
            return f"call {call_id} {name}\n{tool_input}"
        case FunctionCallOutput(call_id, output) | CustomToolCallOutput(call_id, output):
            return f"output {call_id}\n{parts_text(output)}"
        case Compaction(encrypted_content):
            message = compaction_message(item)
            return f"compaction\n{encrypted_content}" if message is None else render(message)
        case Reasoning():
            return ""


def compaction_message(item: Compaction) -> Message | None:
    """Returns a compaction as the model reads it; None if another server encrypted it."""
    if item.summary is None:
        return None
    text = f"Earlier in this conversation:\n{item.summary}"
    return Message("developer", (TextPart(text),), id=item.id)


def said_item(
    kind: DeltaKind, text: str, call_id: str, name: str, namespace: str | None
) -> Item | None:
    """Converts a model's output to an item of the next request; None for reasoning."""
    match kind:
        case DeltaKind.TEXT:
            return Message("assistant", (TextPart(text),))
        case DeltaKind.FUNCTION_CALL:
            return FunctionCall(call_id, name, text, namespace=namespace)
        case DeltaKind.CUSTOM_CALL:
            return CustomToolCall(call_id, name, text)
        case DeltaKind.REASONING:
            return None


def parts_text(parts: Sequence[Part]) -> str:
    """Returns the text of a message or tool output, with attachments named in brackets."""
    if len(parts) == 1 and isinstance(only := parts[0], TextPart):  # as most are
        return only.text
    return "\n".join(map(_part_text, parts))


def _part_text(part: Part) -> str:
    match part:
        case TextPart(text):
            return text
        case RefusalPart(refusal):
            return refusal
        case ImagePart(image_url, file_id):
            return f"[image {_address(image_url or file_id or '')}]"
        case FilePart(file_id, file_url, filename, file_data):
            name = filename or file_id or file_url or ""
            return f"[file {_address(name)} {_address(file_data or '')}]"


def _address(text: str) -> str:
    """Replaces a long URL or inline data by its hash; `_attachment_tokens` counts its tokens."""
    return text if len(text) <= 200 else f"{_hash(text.encode()):016x}"


def _attachment_tokens(item: Item) -> int:
    if isinstance(item, Message):
        parts = item.content
    elif isinstance(item, (FunctionCallOutput, CustomToolCallOutput)):
        parts = item.output
    else:
        return 0
    num_tokens = 0
    for part in parts:
        if isinstance(part, ImagePart):
            num_tokens += IMAGE_LOW_TOKENS if part.detail == "low" else IMAGE_TOKENS
        elif isinstance(part, FilePart):
            # Inline data is base64, 3 bytes in 4 characters; a token is about 4 bytes.
            num_tokens += len(part.file_data) * 3 // 16 if part.file_data else FILE_TOKENS
    return num_tokens


def _render_head(instructions: str | None, tools: Sequence[Tool], text_format: TextFormat) -> bytes:
    encoded = msgspec.json.encode((tools, text_format.schema), order="deterministic")
    text = (instructions or "").encode("utf-8", "surrogatepass")
    return text + b"\n" + text_format.type.encode() + b"\n" + encoded


def _head_size(head: bytes) -> tuple[int, int]:
    # A huge one is counted each time: hundreds of them kept would take gigabytes.
    return _known_head_size(head) if len(head) <= MAX_KEPT_HEAD_BYTES else _measured_head(head)


# Agents send the same long head with every request; a few hundred heads cover many sessions.
@lru_cache(maxsize=256)
def _known_head_size(head: bytes) -> tuple[int, int]:
    return _measured_head(head)


def _measured_head(head: bytes) -> tuple[int, int]:
    return ITEM_OVERHEAD_TOKENS + count(head.decode("utf-8", "surrogatepass")), _hash(head)


def _hash(content: bytes) -> int:
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "big")


def is_user(entry: ContextItem) -> bool:
    """Returns whether the item is a user's message."""
    return isinstance(entry.item, Message) and entry.item.role == "user"


def is_answer(entry: ContextItem) -> bool:
    """Returns whether the item is what an engine answers with: a message or a call."""
    item = entry.item
    if isinstance(item, Message):
        return item.role == "assistant"
    return isinstance(item, FunctionCall | CustomToolCall)


def is_tool_output(entry: ContextItem) -> bool:
    """Returns whether the item is a tool's output."""
    return isinstance(entry.item, FunctionCallOutput | CustomToolCallOutput)
