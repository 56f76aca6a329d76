"""Frames made by hand are those of `websockets`, and a client of its reads them."""

import random

import pytest
from websockets.frames import Frame, Opcode
from websockets.protocol import CLIENT, OPEN, Protocol

from gateway.transport.socket_frames import BINARY, TEXT, framed

EDGES = (0, 1, 125, 126, 127, 65_535, 65_536, 70_000)


def plain(opcode: Opcode, messages: list[bytes]) -> bytes:
    """The plain twin."""
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
