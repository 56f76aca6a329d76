"""Acts with hostility on responses that run or are stored, by their own tenant and by another.

Each returns what was wrong, and nothing if the gateway held.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import websockets

from tests.hostile import wire
from tests.hostile.client import (
    ANSWER_TIMEOUT_S,
    LEAKED,
    TERMINALS,
    Target,
    fault_of_answer,
    fault_of_event,
    posted,
)

LONG = {"model": "lanewise-deep", "input": "Write a book.", "max_output_tokens": 4_000}
SHORT = {"model": "lanewise-fast", "input": "x", "max_output_tokens": 16}
STORM = 300  # messages at once
DRIPS, DRIP_S = 20, 0.05
PROBE = "the end of what was sent"

Act = Callable[[Target], Awaitable[str]]


class _Socket:
    """Is a socket, and what runs on it."""

    def __init__(self, socket: websockets.ClientConnection) -> None:
        self._socket = socket
        self.events: list[dict[str, Any]] = []
        self.running: set[str] = set()

    async def send(self, kind: str, **fields: Any) -> None:
        await self._socket.send(json.dumps({"type": kind, **fields}))

    async def next(self) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(await self._socket.recv())
        self.events.append(event)
        if event["type"] == "response.created":
            self.running.add(event["response"]["id"])
        elif event["type"] in TERMINALS:
            self.running.discard(event["response"]["id"])
        return event

    async def begun(self, **more: Any) -> str:
        """Returns the id of a long response that runs."""
        await self.send("response.create", **LONG, **more)
        while (event := await self.next())["type"] != "response.output_text.delta":
            assert event["type"] != "error", event
        (response_id,) = self.running
        return response_id

    async def settled(self) -> str:
        """Reads until all has ended and all is answered; returns the first fault."""
        await self.send("response.cancel", response_id=PROBE)
        is_probed = False
        while self.running or not is_probed:
            event = await self.next()
            is_probed |= event["type"] == "error" and PROBE in event["error"]["message"]
        return next(filter(None, map(fault_of_event, self.events)), "")


@asynccontextmanager
async def _opened(target: Target, key: str) -> AsyncIterator[_Socket]:
    url, headers = f"ws://127.0.0.1:{target.port}/v1/responses", {"authorization": f"Bearer {key}"}
    async with (
        asyncio.timeout(ANSWER_TIMEOUT_S),
        websockets.connect(
            url, additional_headers=headers, max_size=None, max_queue=None, compression=None
        ) as socket,
    ):
        yield _Socket(socket)


def _client(target: Target, key: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{target.port}/v1",
        headers={"authorization": f"Bearer {key}"},
        timeout=ANSWER_TIMEOUT_S,
    )


async def _storm_of_cancels(target: Target) -> str:
    async with _opened(target, target.key) as socket:
        response_id = await socket.begun()
        for number in range(STORM):
            await socket.send("response.cancel", response_id=response_id)
            await socket.send("response.create", **SHORT, stream_id=f"s{number % 8}")
        return await socket.settled()


async def _storm_of_steers(target: Target) -> str:
    async with _opened(target, target.key) as socket:
        response_id = await socket.begun()
        for number in range(STORM):
            say: Any = ("more", [], "", [{"role": "user", "content": "x"}], None, 7)[number % 6]
            await socket.send("response.steer", previous_response_id=response_id, input=say)
        await socket.send("response.cancel", response_id=response_id)
        while socket.running:  # a steered response has a successor, which is as long
            for running in socket.running.copy():
                await socket.send("response.cancel", response_id=running)
            await socket.next()
        return await socket.settled()


async def _anothers_running_one(target: Target) -> str:
    async with _opened(target, target.key) as owner, _opened(target, target.other_key) as thief:
        response_id = await owner.begun()
        for id in (response_id, f"{response_id}-d0001"):
            await thief.send("response.cancel", response_id=id)
            await thief.send("response.steer", previous_response_id=id, input="Stop.")
            await thief.send("response.inject", response_id=id, input=[])
            await thief.send("response.create", **SHORT, previous_response_id=id)
        while len(thief.events) < 8:  # each is refused, by one event
            await thief.next()
        fault = await thief.settled()
        if any(event["type"] == "response.created" for event in thief.events):
            fault = fault or "another tenant continued it"
        if response_id not in owner.running:
            fault = fault or "another tenant ended it"
        await owner.send("response.cancel", response_id=response_id)
        return fault or await owner.settled()


async def _anothers_stored_one(target: Target) -> str:
    async with _client(target, target.key) as owner, _client(target, target.other_key) as thief:
        made = (await owner.post("/responses", json=SHORT)).json()
        id, item_id = made["id"], made["output"][0]["id"]
        long = (await owner.post("/responses", json={**LONG, "background": True})).json()["id"]
        reference = [{"type": "item_reference", "id": item_id}]
        answers = [
            answer
            for each in (id, long)
            for answer in (
                await thief.get(f"/responses/{each}"),
                await thief.get(f"/responses/{each}", params={"stream": "true"}),
                await thief.get(f"/responses/{each}/input_items"),
                await thief.post(f"/responses/{each}/cancel"),
                await thief.post(f"/responses/{each}/feedback", json={"success": False}),
                await thief.post("/responses", json={**SHORT, "previous_response_id": each}),
                await thief.delete(f"/responses/{each}"),
            )
        ]
        answers.append(await thief.post("/responses", json={**SHORT, "input": reference}))
        kept = [(await owner.get(f"/responses/{each}")).status_code for each in (id, long)]
        await owner.post(f"/responses/{long}/cancel")
        wrong = [f"{each.request.method} {each.url}" for each in answers if each.status_code < 400]
        if wrong:
            return f"another tenant may {wrong[0]}"
        if kept != [200, 200]:
            return f"another tenant's acts left {kept}"
        faults = (fault_of_answer(each.status_code, each.content) for each in answers)
        return next(filter(None, faults), "")


def _dripping(data: bytes) -> Act:
    """Sends a byte at a time, and then goes."""

    async def drip(target: Target) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
        try:
            sent = data.replace(wire.KEY.encode(), target.key.encode())
            writer.write(sent[:-DRIPS])
            for number in range(len(sent) - DRIPS, len(sent)):
                if writer.is_closing():
                    return ""
                writer.write(sent[number : number + 1])
                await asyncio.sleep(DRIP_S)
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                answer = await reader.read(65_536)
        except ConnectionError:
            return ""
        except TimeoutError:
            return "no answer"
        finally:
            writer.transport.abort()
        found = LEAKED.search(answer.decode(errors="replace"))
        return f"{answer[:200]!r}" if found or answer.startswith(b"HTTP/1.1 5") else ""

    return drip


_BODY = json.dumps(SHORT).encode()
LIVE: dict[str, Act] = {
    "a storm of cancels": _storm_of_cancels,
    "a storm of steers": _storm_of_steers,
    "another tenant's running response": _anothers_running_one,
    "another tenant's stored responses": _anothers_stored_one,
    "a head in drips": _dripping(wire.http("GET /v1/models HTTP/1.1")),
    "a body in drips": _dripping(posted("/v1/responses", _BODY)),
    "a handshake in drips": _dripping(wire.handshake()),
    "a frame in drips": _dripping(wire.handshake() + wire.frame(1, b'{"type":"nothing at all"}')),
}
