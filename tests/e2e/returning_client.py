"""Plays clients that lose their socket and come back: as an SDK's driver, and as Codex."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any

from tests.e2e.events import Event, check_response
from tests.e2e.gateway_process import GatewayProcess
from tests.e2e.socket_client import SocketClient

FAR = 1 << 30
NUM_LOOKS, LOOK_S = 100, 0.05

WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "Current weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


def reset(client: SocketClient) -> None:
    """Ends the connection with an RST, and no close frame."""
    transport = client.socket.transport
    raw = transport.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


@contextlib.asynccontextmanager
async def lost_after(
    gateway: GatewayProcess, body: dict[str, Any], num_events: int = FAR, *types: str
) -> AsyncIterator[list[Event]]:
    """Creates a response, and loses the socket after so many events, or after one of a type."""
    async with SocketClient.open(gateway) as client:
        before = num_closed(gateway)
        await client.send({"type": "response.create", **body})
        while len(client.received) < num_events:
            event = await client.receive()
            assert event["type"] != "error", event
            if event["type"] in types:
                break
        reset(client)
        await client.socket.wait_closed()
    await until_noticed(gateway, before)
    yield client.received


def num_closed(gateway: GatewayProcess) -> float:
    """Returns how many sockets have closed there."""
    return gateway.metrics().total("lanewise_ws_closed_total")


async def until_noticed(gateway: GatewayProcess, before: float) -> None:
    """Waits as Codex does before it comes back, and until the gateway knows of the loss."""
    await asyncio.sleep(0.2)
    for _ in range(NUM_LOOKS):  # of several workers each tells a second late
        if num_closed(gateway) > before:
            return
        await asyncio.sleep(LOOK_S)


def done_items(events: list[Event]) -> list[dict[str, Any]]:
    """Returns the items that came whole."""
    return [each["item"] for each in events if each["type"] == "response.output_item.done"]


def as_codex_sends(item: dict[str, Any]) -> dict[str, Any]:
    """Returns a server's item as Codex sends it back: other order, nulls, less status."""
    sent = dict(reversed(item.items()))
    if item["type"] == "reasoning":
        sent.pop("status", None)
        sent |= {"content": None, "encrypted_content": item.get("encrypted_content")}
    return sent


def with_items(body: dict[str, Any], items: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the create with what its client has besides, in one history."""
    own = body["input"]
    if isinstance(own, str):
        own = [{"type": "message", "role": "user", "content": own}]
    return {**body, "input": [*own, *map(as_codex_sends, items)]}


async def come_back(gateway: GatewayProcess, body: dict[str, Any]) -> list[Event]:
    """Sends a create on a new socket, and returns its events up to the terminal."""
    async with SocketClient.open(gateway) as client:
        await client.send({"type": "response.create", **body})
        await client.terminal(body.get("stream_id"))
        return client.received


def text_in(events: list[Event]) -> str:
    """Returns the text of the deltas."""
    deltas = (e["delta"] for e in events if e["type"] == "response.output_text.delta")
    return "".join(deltas)


def output_for(call: dict[str, Any], text: str = "19 degrees") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call["call_id"], "output": text}


def codex_metadata(turn_id: str, stamp: int = 0) -> dict[str, Any]:
    """Returns `client_metadata` of a turn; the stamp differs in each of its requests."""
    told = {"turn_id": turn_id, "thread_id": "thread-1", "stamp": str(stamp)}
    return dict(reversed(told.items())) if stamp else told


def check_rest(events: list[Event]) -> None:
    """Checks what a client gets that comes back: a whole response, numbered on from before."""
    first = events[0]["sequence_number"]
    check_response([{**e, "sequence_number": e["sequence_number"] - first} for e in events])
