"""Frames made by hand are those of `websockets`, and a client of its reads them."""

import random

import pytest
from websockets.frames import Frame, Opcode
from websockets.protocol import CLIENT, OPEN, SERVER, Protocol

from gateway.transport.socket_frames import BINARY, TEXT, framed, whole_text

EDGES = (0, 1, 125, 126, 127, 65_535, 65_536, 70_000)


def plain(opcode: Opcode, messages: list[bytes]) -> bytes:
    """Returns the plain twin."""
    return b"".join(Frame(opcode, message).serialize(mask=False) for message in messages)


@pytest.mark.parametrize(("first_byte", "opcode"), [(TEXT, Opcode.TEXT), (BINARY, Opcode.BINARY)])
def test_frames_are_those_of_the_library(first_byte: int, opcode: Opcode) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(50):
        sizes = [chance.choice((*EDGES, chance.randrange(600))) for _ in range(chance.randrange(9))]
        messages = [chance.randbytes(size) for size in sizes]
        assert framed(first_byte, messages) == plain(opcode, messages), sizes


def test_a_client_reads_them() -> None:
    client = Protocol(CLIENT, state=OPEN)
    messages = [b"x" * size for size in EDGES]
    client.receive_data(framed(TEXT, messages))
    received = client.events_received()
    assert [bytes(frame.data) for frame in received if isinstance(frame, Frame)] == messages


def read_by_the_library(arrived: bytes) -> list[Frame]:
    """Returns what the library makes of a server's bytes, if a whole frame: the plain twin."""
    server = Protocol(SERVER, state=OPEN)
    server.receive_data(arrived)
    frames = [each for each in server.events_received() if isinstance(each, Frame)]
    return [] if len(server.reader.buffer) or server.parser_exc else frames


def test_a_whole_text_is_read_as_the_library_does() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for size in (*EDGES[:-2], *(chance.randrange(2_000) for _ in range(50))):
        message = chance.randbytes(size)
        frame = Frame(Opcode.TEXT, message).serialize(mask=True)
        assert whole_text(frame) == message


def test_what_is_not_a_whole_text_is_left_to_the_library() -> None:
    """Nothing that the library reads otherwise, or not at all, is taken for a text."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    text = Frame(Opcode.TEXT, b"x" * 300).serialize(mask=True)
    for other in (
        *(b"", text[:-1], text + b"x", text + text, text[:1], text[:4]),
        *(Frame(Opcode.TEXT, b"x", fin=False).serialize(mask=True), framed(TEXT, [b"x" * 300])),
        *(Frame(kind, b"x" * 9).serialize(mask=True) for kind in (Opcode.BINARY, Opcode.PING)),
        bytes((TEXT, 0xFF)) + bytes(4) + b"x" * 127,
    ):
        assert whole_text(other) is None, other
    for _ in range(20_000):
        arrived = chance.choice((b"\x81", b"\x01", b"\xc1", b"\x89")) + chance.randbytes(
            chance.choice((0, 1, 3, 5, 9, 131, 140))
        )
        if (message := whole_text(arrived)) is not None:
            (frame,) = read_by_the_library(arrived)
            assert (bytes(frame.data), frame.opcode, frame.fin) == (message, Opcode.TEXT, True)
