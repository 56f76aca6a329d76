"""Mutates the hostile kinds by a seed: each is made from one or two, and is another kind."""

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from tests.hostile import bodies, wire
from tests.hostile.admin import ADMIN
from tests.hostile.client import posted
from tests.hostile.kinds import Kind, as_frame, framed, sent, upgraded

MAX_BYTES = 20_000  # of what is mutated; larger ones are slow, and no odder

_PIECES = (
    *(b"\x00", b"\xff", b"\xed\xa0\x80", b"\r\n", b"\r\n\r\n", b'"', b"\\", b"{", b"}", b"[", b"]"),
    *(b",", b":", b"null", b"1e999", b"-0", b"\\ud800", b"\\u0000", b"9" * 40, b"NaN", b"%00"),
    *(b"../", b"chunked", b"Content-Length: 7\r\n", b"HTTP/1.0", b" ", b"\xef\xbb\xbf"),
)
_VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**63, 10**300, 0.5, 1e308, "", "x", "\x00", "✓", "auto"),
    *([], {}, [[]], [None], {"": None}, ["a"] * 50, {"type": "message"}, "x" * 5_000),
)


def changed_bytes(chance: random.Random, data: bytes, other: bytes) -> bytes:
    """Changes some bytes, or joins a part of another."""
    mutated = bytearray(data)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(mutated) + 1)
        match chance.randrange(6):
            case 0 if mutated:
                mutated[at % len(mutated)] ^= 1 << chance.randrange(8)
            case 1:
                del mutated[at : at + chance.choice((1, 2, 10, 100))]
            case 2:
                mutated[at:at] = chance.choice(_PIECES)
            case 3:
                mutated[at:at] = mutated[at : at + chance.choice((1, 10, 200))]
            case 4:
                start = chance.randrange(len(other) + 1)
                mutated[at:at] = other[start : start + chance.choice((5, 50, 500))]
            case _:
                mutated[at : at + 1] = bytes((chance.randrange(256),))
    return bytes(mutated)


def _changed_value(chance: random.Random, value: Any, other: Any) -> Any:
    """Replaces, drops, doubles or moves one value of a JSON document."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        key = chance.choice(list(value))
        changed = dict(value)
        match chance.randrange(8):
            case 0:
                del changed[key]
            case 1:
                changed[key] = other
            case 2:
                changed[chance.choice(("type", "id", "role", "content", "input"))] = value[key]
            case _:
                changed[key] = _changed_value(chance, value[key], other)
        return changed
    if isinstance(value, list) and value and chance.random() < 0.85:
        at = chance.randrange(len(value))
        if chance.random() < 0.2:
            return value + [value[at]] * chance.choice((1, 20))
        return [*value[:at], _changed_value(chance, value[at], other), *value[at + 1 :]]
    return [value] if chance.random() < 0.2 else chance.choice((*_VALUES, other))


def changed_text(chance: random.Random, text: str, other: str) -> bytes:
    """Changes a JSON text as a document, where it is one, or as bytes."""
    if chance.random() < 0.6:
        try:
            document, another = json.loads(text), json.loads(other)
            for _ in range(chance.randint(1, 3)):
                document = _changed_value(chance, document, another)
            return json.dumps(document).encode()
        except (ValueError, RecursionError):
            pass  # it was no document to begin with
    return changed_bytes(chance, text.encode(errors="replace"), other.encode(errors="replace"))


def _short(texts: dict[str, str]) -> list[str]:
    return [text for text in texts.values() if len(text) <= MAX_BYTES]


def mutations(seed: int) -> Iterator[Kind]:
    """Mutations without end; the same seed gives the same ones."""
    chance = random.Random(seed)
    creates, chats = _short(bodies.BODIES), _short(bodies.CHATS)
    frames = _short(bodies.FRAMES) + [as_frame(text) for text in creates]
    raws = [data for data in wire.HTTP.values() if len(data) <= MAX_BYTES]
    sockets = [data for data in wire.SOCKETS.values() if len(data) <= MAX_BYTES]
    upgrades = list(wire.HANDSHAKES.values())
    admins = [each for each in ADMIN.values() if len(each[2]) <= MAX_BYTES]
    pick, number = chance.choice, 0

    def frame(name: str) -> Kind:
        # A frame of text is UTF-8; what is not stands among the sockets' bytes.
        text = changed_text(chance, pick(frames), pick(frames)).decode(errors="replace")
        return framed(f"{name}, a frame", text)

    def body(name: str) -> Kind:
        content = changed_text(chance, pick(creates), pick(creates))
        return sent(f"{name}, a body", posted("/v1/responses", content))

    def chat(name: str) -> Kind:
        content = changed_text(chance, pick(chats), pick(creates))
        return sent(f"{name}, a chat", posted("/v1/chat/completions", content))

    def raw(name: str) -> Kind:
        data = changed_bytes(chance, pick(raws), pick(raws))
        return sent(f"{name}, HTTP", data, half_closes=True)

    def socket(name: str) -> Kind:
        data = changed_bytes(chance, pick(sockets), pick(frames).encode())
        return upgraded(f"{name}, a socket", data, half_closes=True)

    def upgrade(name: str) -> Kind:
        data = changed_bytes(chance, pick(upgrades), pick(raws))
        return sent(f"{name}, a handshake", data, half_closes=True, until_answered=True)

    def admin(name: str) -> Kind:
        method, path, text = pick(admins)
        data = posted(path, changed_text(chance, text, pick(admins)[2]), method=method)
        return sent(f"{name}, an admin", data, admin=True)

    makers: tuple[Callable[[str], Kind], ...] = (
        frame,
        frame,
        body,
        chat,
        raw,
        socket,
        upgrade,
        admin,
    )
    while True:
        number += 1
        yield pick(makers)(f"mutation {number} of seed {seed}")
