"""Runs the same client without asyncio: its event loop has a thread. This is an edge."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, Self, TypeVar

from lanewise.client import Client, Stream, connect
from lanewise.turn import Event, Item, LanewiseError, Response

T = TypeVar("T")


def connect_sync(
    url: str | None = None, api_key: str | None = None, *, max_retries: int = 5
) -> "SyncClient":
    """Makes a client as `connect` does, to be entered by `with`; any thread may use it."""
    return SyncClient(connect(url, api_key, max_retries=max_retries))


class SyncClient:
    """Wraps a `Client`. An interrupted call (Ctrl-C) cancels its response."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._loop: asyncio.AbstractEventLoop | None = None  # while it is entered

    def __enter__(self) -> Self:
        self._loop = loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=loop.run_forever, name="lanewise-client", daemon=True
        )
        self._thread.start()
        try:
            self.run(self._client.__aenter__())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.run(self._client.close())
        finally:
            self._stop()

    def create(
        self, input: str | list[Item], *, after: Response | str | None = None, **fields: Any
    ) -> Response:
        """Asks as `Client.create` does."""
        return self.run(self._client.create(input, after=after, **fields))

    def stream(
        self, input: str | list[Item], *, after: Response | str | None = None, **fields: Any
    ) -> "SyncStream":
        """Asks as `Client.stream` does."""
        return SyncStream(self, self._client.stream(input, after=after, **fields))

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs it on the client's loop and waits; an interrupt of the waiting cancels it."""
        if self._loop is None:  # nobody would ever run it
            coroutine.close()
            raise LanewiseError("client_closed", "This client is not open. Enter it by `with`.")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _stop(self) -> None:
        loop, self._loop = self._loop, None
        assert loop is not None, "it was entered"
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        loop.close()


class SyncStream:
    """Wraps a `Stream`; `steer` and `cancel` may come from another thread."""

    def __init__(self, client: SyncClient, stream: Stream) -> None:
        self._client = client
        self._stream = stream

    def __enter__(self) -> Self:
        self._client.run(self._stream.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self._client.run(self._stream.cancel())

    def __iter__(self) -> Iterator[Event]:
        while (event := self._client.run(self._stream.next())) is not None:
            yield event

    def response(self) -> Response:
        """Returns the answer as `Stream.response` does."""
        return self._client.run(self._stream.response())

    def steer(self, input: str | list[Item], *, subtask: str | None = None) -> None:
        """Steers as `Stream.steer` does."""
        self._client.run(self._stream.steer(input, subtask=subtask))

    def cancel(self, *, subtask: str | None = None) -> None:
        """Cancels as `Stream.cancel` does."""
        self._client.run(self._stream.cancel(subtask=subtask))
