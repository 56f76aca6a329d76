"""Speaks the protocol by hand over `websockets`, and checks every event as it arrives."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, Self

import websockets

from tests.e2e.events import Event, check_event, check_response
from tests.e2e.gateway_process import DEVELOPMENT_KEY, GatewayProcess

TERMINALS = ("response.completed", "response.incomplete", "response.failed")
RECEIVE_TIMEOUT_S = 60.0  # bounds a hang


class SocketClient:
    """Is one socket; `received` keeps every event in the order of arrival."""

    def __init__(self, socket: websockets.ClientConnection) -> None:
        self.socket = socket
        self.received: list[Event] = []
        self.checks = True

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, gateway: GatewayProcess, key: str = DEVELOPMENT_KEY) -> AsyncIterator[Self]:
        headers = {"authorization": f"Bearer {key}"}
        async with websockets.connect(
            gateway.socket_url,
            additional_headers=headers,
            max_size=None,
            max_queue=None,  # a full one would hold up the closing handshake
            compression=None,
            ssl=gateway.trusting,
        ) as socket:
            yield cls(socket)

    async def send(self, event: dict[str, Any]) -> None:
        await self.socket.send(json.dumps(event))

    async def create(self, input: Any = None, *, model: str = "lanewise-fast", **body: Any) -> None:
        """Sends a `response.create`; `input` None leaves it out."""
        if input is not None:
            body["input"] = input
        await self.send({"type": "response.create", "model": model, **body})

    async def receive(self) -> Event:
        """Returns the next event, checked against the official SDK's own type."""
        frame = await asyncio.wait_for(self.socket.recv(), RECEIVE_TIMEOUT_S)
        assert isinstance(frame, str), "a binary frame"
        event: Event = json.loads(frame)
        if self.checks:
            check_event(event)
        self.received.append(event)
        return event

    async def until(self, wanted: Callable[[Event], bool]) -> Event:
        """Receive up to and including the first event that is wanted."""
        while True:
            event = await self.receive()
            if wanted(event):
                return event

    async def next_type(self, *types: str) -> Event:
        return await self.until(lambda event: event["type"] in types)

    async def terminal(self, stream_id: str | None = None) -> Event:
        """Returns the next terminal on a stream; an `error` there fails the test."""

        def wanted(event: Event) -> bool:
            if event.get("stream_id") != stream_id:
                return False
            assert event["type"] != "error", event
            return event["type"] in TERMINALS

        return await self.until(wanted)

    async def turn(self, input: Any = None, **body: Any) -> dict[str, Any]:
        """Create, receive all of its events, check them as a whole; returns the response."""
        before = len(self.received)
        await self.create(input, **body)
        stream_id = body.get("stream_id")
        terminal = await self.terminal(stream_id)
        own = [e for e in self.received[before:] if e.get("stream_id") == stream_id]
        check_response(own)
        response: dict[str, Any] = terminal["response"]
        return response

    async def error(self) -> dict[str, Any]:
        """Returns the next event, which must be a protocol error."""
        event = await self.receive()
        assert event["type"] == "error", event
        return event


def text_of(response: dict[str, Any]) -> str:
    """Returns all answer text of a response."""
    return "".join(
        part["text"]
        for item in response["output"]
        if item["type"] == "message"
        for part in item["content"]
        if part["type"] == "output_text"
    )


def calls_of(response: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the function calls of a response."""
    return [item for item in response["output"] if item["type"] == "function_call"]
