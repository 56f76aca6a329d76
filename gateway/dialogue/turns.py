"""Follows the answers of one ask while they come: their streams, and who may redirect or stop them.

This is an edge.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Self

from gateway.dialogue.answer import AnswerView
from gateway.dialogue.conversation import Ask
from lanewise.client import Client, Stream
from lanewise.turn import LanewiseError

TOO_LATE = "response_already_completed"


def now_us() -> int:
    """Returns the time of the clock that answers are measured by."""
    return time.monotonic_ns() // 1000


class Turns:
    """Reads one answer, or one of each engine; leaving it cancels what still runs."""

    def __init__(self, client: Client, prompt: str, asks: Sequence[Ask]) -> None:
        self._streams: list[Stream] = [client.stream(prompt, **ask.fields) for ask in asks]
        self._readers: list[asyncio.Task[None]] = []
        self.titled = [(ask.title, AnswerView(now_us())) for ask in asks]
        self.answers = [answer for _, answer in self.titled]
        self.cancelled = False

    async def __aenter__(self) -> Self:
        self._readers = [
            asyncio.create_task(_read(stream, answer))
            for stream, answer in zip(self._streams, self.answers, strict=True)
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for reader in self._readers:
            reader.cancel()
        for result in await asyncio.gather(*self._readers, return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    @property
    def over(self) -> bool:
        """Says whether nothing more will come."""
        return all(reader.done() for reader in self._readers)

    async def wait(self, timeout_s: float) -> None:
        """Returns when all has come, or after that time."""
        await asyncio.wait(self._readers, timeout=timeout_s)

    async def cancel(self) -> None:
        """Stops what runs; what has come so far stays."""
        self.cancelled = True
        for stream in self._streams:
            await stream.cancel()

    async def steer(self, line: str) -> bool:
        """Redirects what runs; returns false if all of it has ended, so that nothing did."""
        steered = [
            _steer(stream, answer, line)
            for stream, answer in zip(self._streams, self.answers, strict=True)
        ]
        return any(await asyncio.gather(*steered))


async def _read(stream: Stream, answer: AnswerView) -> None:
    try:
        async with stream:
            async for event in stream:
                answer.take(event, now_us())
    except LanewiseError as error:
        answer.fail(error)


async def _steer(stream: Stream, answer: AnswerView, line: str) -> bool:
    answer.steer(line, now_us())
    try:
        await stream.steer(line)
    except LanewiseError as error:
        answer.steer_refused(line, None if error.code == TOO_LATE else error.message)
        return error.code != TOO_LATE
    return True
