"""A client's frames are those that the library would have sent."""

import pytest
from websockets.frames import Frame, Opcode

from backends.net.client_frames import masked_text


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_535, 65_536, 300_000])
def test_as_the_library_writes_it(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    message, mask = bytes(range(256)) * (size // 256) + b"x" * (size % 256), b"\x01\xfe\x37\xfa"
    monkeypatch.setattr("websockets.frames.secrets.token_bytes", lambda num_bytes: mask)
    frame = Frame(Opcode.TEXT, message)
    assert masked_text(message, mask) == frame.serialize(mask=True)
