"""Tests what an engine's end of the link does with frames of a gateway that has lost count."""

from typing import Any

from backends.contract import GenerateRequest, Message, TextPart
from backends.link.frames import Cancel, Start, encode
from backends.prompt import measure
from gateway.process.link_server import LinkServer
from tests.unit.gateway.doubles import RecordingBackend

REQUEST = GenerateRequest(
    id="resp_1",
    model="wafer-model",
    items=(measure(Message("user", (TextPart("Go."),))),),
    num_prompt_tokens=3,
    prefix=(),
    max_output_tokens=10,
)


class Socket:
    """Brings some frames, and then the end."""

    def __init__(self, *frames: Start | Cancel) -> None:
        self._frames = list(frames)

    async def receive(self) -> dict[str, Any]:
        if not self._frames:
            return {"type": "websocket.disconnect"}
        return {"type": "websocket.receive", "bytes": encode(self._frames.pop(0))}

    async def write(self, frames: list[bytes], *, binary: bool) -> None:
        pass

    def write_now(self, frames: list[bytes], *, binary: bool) -> bool:
        return True


async def cancels(*frames: Start | Cancel) -> list[int]:
    """Returns how often each generation that these frames start was cancelled."""
    backend = RecordingBackend("wafer", "fast")
    await LinkServer(backend, Socket(*frames)).serve()  # type: ignore[arg-type]
    return [each.num_cancels for each in backend.generations]


async def test_the_end_of_the_link_cancels_what_it_started() -> None:
    assert await cancels(Start(1, REQUEST), Start(2, REQUEST)) == [1, 1]


async def test_a_key_in_use_ends_the_link_and_leaves_nothing_running() -> None:
    assert await cancels(Start(1, REQUEST), Start(1, REQUEST), Start(2, REQUEST)) == [1]


async def test_a_key_may_be_used_again_once_it_is_free() -> None:
    assert await cancels(Start(1, REQUEST), Cancel(1), Start(1, REQUEST)) == [1, 1]
