"""Messages cut by hand are those of `websockets`, wherever the bytes are cut."""

import random

import pytest
from websockets.frames import Close, Frame, Opcode
from websockets.protocol import CLIENT, OPEN, Protocol

from backends.net.socket_messages import LONE_BYTES, MessageCutter

MAX_BYTES = 70_000
SIZES = (0, 1, 125, 126, 127, 300, 65_535, 65_536)


def plain(data: bytes) -> list[bytes]:
    """Returns the plain twin: what the library makes of all the bytes."""
    client = Protocol(CLIENT, state=OPEN, max_size=MAX_BYTES)
    client.receive_data(data)
    return messages_of(client, [])


def messages_of(client: Protocol, parts: list[bytes]) -> list[bytes]:
    """Returns whole messages, fragments put together; `parts` keeps those of an unfinished one."""
    found: list[bytes] = []
    for frame in client.events_received():
        assert isinstance(frame, Frame)
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            parts.append(bytes(frame.data))
            if frame.fin:
                found.append(b"".join(parts))
                parts.clear()
    return found


def cut(pieces: list[bytes]) -> tuple[list[bytes], int]:
    """Cuts, with the library for the rest; also counts the messages that went the quick way."""
    cutter, client = MessageCutter(MAX_BYTES), Protocol(CLIENT, state=OPEN, max_size=MAX_BYTES)
    found: list[bytes] = []
    parts: list[bytes] = []
    num_quick = 0
    for arrived in pieces:
        messages, others = cutter.feed(arrived)
        num_quick += len(messages)
        found += messages
        if others:
            client.receive_data(others)
            found += messages_of(client, parts)
    return found, num_quick


def torn(data: bytes, chance: random.Random) -> list[bytes]:
    """Returns the bytes as reads from a socket may bring them."""
    pieces: list[bytes] = []
    at = 0
    while at < len(data):
        size = chance.choice((1, 2, 3, 9, 200, 5_000, 200_000))
        pieces.append(data[at : at + size])
        at += size
    return pieces


def frames(chance: random.Random, *, unusual: bool) -> bytes:
    data = b""
    for _ in range(chance.randrange(12)):
        opcode = chance.choice((Opcode.TEXT, Opcode.BINARY))
        payload = b"x" * chance.choice(SIZES)
        kind = chance.random()
        if kind < 0.2:
            ping = Frame(chance.choice((Opcode.PING, Opcode.PONG)), b"ping")
            data += ping.serialize(mask=False)
        elif unusual and kind < 0.3:
            data += Frame(opcode, payload, fin=False).serialize(mask=False)
            data += Frame(Opcode.CONT, b"end").serialize(mask=False)
        else:
            data += Frame(opcode, payload).serialize(mask=False)
    return data + Frame(Opcode.CLOSE, Close(1000, "").serialize()).serialize(mask=False)


@pytest.mark.parametrize("unusual", [False, True], ids=["plain frames", "fragments among them"])
def test_messages_are_those_of_the_library(unusual: bool) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(60):
        data = frames(chance, unusual=unusual)
        expected = plain(data)
        found, num_quick = cut(torn(data, chance))
        assert found == expected
        assert unusual or num_quick == len(expected)


@pytest.mark.parametrize("size", [125, 126, 200, 65_535, 65_536])
@pytest.mark.parametrize("within", [b"", b"\x81~", b"\x81~\x00\x80", b"\x81", b"\x81\x05"])
def test_whole_texts_that_come_together(size: int, within: bytes) -> None:
    """What looks like a head within a text is none."""
    frame = Frame(Opcode.TEXT, within.rjust(size, b"x")).serialize(mask=False)
    odd = Frame(Opcode.TEXT, (b"x" + within).ljust(size, b"x")).serialize(mask=False)
    for read in (frame * 3, odd * 3, frame + odd, odd + frame[:-1], frame + odd[:3]):
        client = Protocol(CLIENT, state=OPEN, max_size=MAX_BYTES)
        client.receive_data(read)
        assert cut([read]) == (expected := messages_of(client, []), len(expected))


def test_a_message_that_comes_alone() -> None:
    cutter = MessageCutter(MAX_BYTES)
    for size in (*SIZES, LONE_BYTES, LONE_BYTES + 1, 65_537):
        payload = b"x" * size
        frame = Frame(Opcode.TEXT, payload).serialize(mask=False)
        is_taken = 126 <= size <= LONE_BYTES
        assert cutter.lone(frame) == (payload if is_taken else None)
        assert cutter.lone(frame[:-1]) is None, "not all of it"
        assert cutter.lone(frame + b"\x81") is None, "more than that"
        for first in (0x82, 0x01, 0xC1):  # binary, a fragment, with a reserved bit
            assert cutter.lone(bytes((first,)) + frame[1:]) is None
        assert cutter.lone(Frame(Opcode.TEXT, payload).serialize(mask=True)) is None
    assert [cutter.lone(b"\x81\x7e\x00"[:size]) for size in range(4)] == [None] * 4


def test_no_message_is_alone_amid_others() -> None:
    payload = b"x" * 300
    frame = Frame(Opcode.TEXT, payload).serialize(mask=False)
    inside = Frame(Opcode.TEXT, frame).serialize(mask=False)
    cutter = MessageCutter(MAX_BYTES)
    assert cutter.feed(inside[:4]) == ([], b"")
    assert cutter.lone(frame) is None, "it is the rest of another"
    assert cutter.feed(frame) == ([frame], b"")
    assert cutter.lone(frame) == payload
    cutter.feed(Frame(Opcode.TEXT, b"", fin=False).serialize(mask=False))
    assert cutter.lone(frame) is None, "the library reads on"
    assert MessageCutter(100).lone(frame) is None, "it is too large"
    assert MessageCutter(MAX_BYTES, cuts=False).lone(frame) is None


@pytest.mark.parametrize(
    "strange",
    [
        Frame(Opcode.TEXT, b"masked").serialize(mask=True),
        Frame(Opcode.TEXT, b"m" * 500).serialize(mask=True),
        b"\xc1\x01x",  # a reserved bit
        b"\x83\x01x",  # a reserved opcode
        b"\x81\x7f" + (MAX_BYTES + 1).to_bytes(8, "big"),
    ],
    ids=["masked", "masked and long", "reserved bit", "reserved opcode", "too large"],
)
def test_what_is_strange_is_left_to_the_library(strange: bytes) -> None:
    good = Frame(Opcode.TEXT, b"good").serialize(mask=False)
    cutter = MessageCutter(MAX_BYTES)
    assert cutter.feed(good + strange[:1]) == ([b"good"], b"")
    rest = [cutter.feed(strange[1:] + good), cutter.feed(good)]
    assert not any(messages for messages, _ in rest)
    assert b"".join(others for _, others in rest) == strange + good + good
