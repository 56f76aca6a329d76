"""Plays turns with tools as three kinds of clients do whose sockets a proxy cuts.

One sends its create again unchanged, by hand or with an official SDK; one is Codex' kind, which
builds it anew from its history and runs tools as their calls come; one is our SDK.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import openai
import websockets
from openai import AsyncOpenAI

import lanewise
from tests.accept.connections import KEY
from tests.accept.node_sockets import NodeSockets
from tests.e2e.returning_client import as_codex_sends

Style = Literal["unchanged", "openai", "node", "codex", "ours"]
MAX_ATTEMPTS = 40
RECEIVE_S = 60.0  # bounds a hang
TURN_S = 240.0  # the same
PAUSE_S = 0.2  # before it comes back, as Codex
TERMINALS = ("response.completed", "response.incomplete", "response.failed", "error")
LOST = (websockets.ConnectionClosed, OSError, openai.OpenAIError, websockets.InvalidHandshake)


class Wire(Protocol):
    """Is one socket."""

    async def send(self, create: dict[str, Any]) -> None: ...

    async def receive(self) -> dict[str, Any]: ...


class PlainWire:
    """Speaks the protocol by hand."""

    def __init__(self, socket: websockets.ClientConnection) -> None:
        self._socket = socket

    async def send(self, create: dict[str, Any]) -> None:
        await self._socket.send(json.dumps({"type": "response.create", **create}))

    async def receive(self) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(await self._socket.recv())
        return event


class OpenAIWire:
    """Is the official Python SDK's connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def send(self, create: dict[str, Any]) -> None:
        await self._connection.response.create(**create)

    async def receive(self) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(await self._connection.recv_bytes())
        return event


@contextlib.asynccontextmanager
async def opened(port: int, style: Style, node: NodeSockets) -> AsyncIterator[Wire]:
    """Opens a socket; who leaves it closes it, whatever came of it."""
    if style == "node":
        async with node.opened(port) as node_socket:
            yield node_socket
        return
    if style == "openai":
        client = AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=KEY, max_retries=0)
        async with client, client.responses.connect() as connection:
            yield OpenAIWire(connection)
        return
    url, headers = f"ws://127.0.0.1:{port}/v1/responses", {"authorization": f"Bearer {KEY}"}
    async with websockets.connect(
        url, additional_headers=headers, max_size=None, max_queue=None, compression=None
    ) as socket:
        yield PlainWire(socket)


@dataclass
class Turn:
    """Is one turn: what it asks, what became of it, and what was wrong with that."""

    style: Style
    name: str  # thread and turn of its client, too
    body: dict[str, Any]  # of its first create
    node: NodeSockets
    may_begin_anew: bool = False  # its gateway is killed
    faults: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)  # of the responses that it saw
    runs: dict[str, int] = field(default_factory=dict)  # of tools, by their call's id
    waits_s: list[float] = field(default_factory=list)  # from a create that comes back to its event
    num_cuts: int = 0
    num_anew: int = 0  # model calls that began anew
    ended: set[str] = field(default_factory=set)  # the responses whose end it received

    async def play(self, port: int) -> None:
        """Plays it to its end; notes faults."""
        try:
            playing = self._ours(port) if self.style == "ours" else self._calls(port)
            await asyncio.wait_for(playing, TURN_S)
        except Exception as error:
            self.faults.append(f"{type(error).__name__}: {error}"[:300])
        self.faults += [f"{call} ran {n} times" for call, n in self.runs.items() if n != 1]
        if self.num_anew and not self.may_begin_anew:
            self.faults.append(f"it began anew {self.num_anew} times")
        if self.faults:
            self.faults = [f"{self.name} ({self.style}): {fault}" for fault in self.faults]

    async def _ours(self, port: int) -> None:
        async with lanewise.connect(f"http://127.0.0.1:{port}", KEY, max_retries=20) as client:
            fields, after, given = dict(self.body), None, self.body["input"]
            del fields["input"]
            for _ in range(3):
                said, done = "", None
                async for event in client.stream(given, after=after, **fields):
                    if isinstance(event, lanewise.Started):
                        self.ids.add(event.response.id)
                    elif isinstance(event, lanewise.TextDelta):
                        said += event.text
                    elif isinstance(event, lanewise.Restarted):
                        self.num_anew, said = self.num_anew + 1, ""
                    elif isinstance(event, lanewise.Done):
                        done = event.response
                    self.num_cuts += isinstance(event, lanewise.Rejoined)
                if done is None:
                    raise AssertionError("no end")
                self.ended.add(done.id)
                text = "".join(_text(each) for each in done.output if each["type"] == "message")
                if said != text:
                    self.faults.append(f"told {said[:80]!r}..., the answer is {text[:80]!r}...")
                if not done.calls:
                    return
                given, after = [self._run(call) for call in done.calls], done
            self.faults.append("it calls for ever")

    def _run(self, call: dict[str, Any]) -> dict[str, Any]:
        name = call["call_id"]
        self.runs[name] = self.runs.get(name, 0) + 1
        return {"type": "function_call_output", "call_id": name, "output": "19 degrees and hail"}

    async def _calls(self, port: int) -> None:
        """Plays model calls until one calls no tool."""
        create = dict(self.body)
        if self.style == "codex":
            create["client_metadata"] = {"thread_id": self.name, "turn_id": self.name}
        history, outputs = [_message(self.body["input"])], list[dict[str, Any]]()
        create["input"] = list(history)
        wires = contextlib.AsyncExitStack()
        wire: Wire | None = None
        try:
            for _ in range(4):
                done, wire = await self._one_call(port, create, wires, wire)
                calls = [item for item in done["output"] if item["type"] == "function_call"]
                if not calls:
                    if not any(item["type"] == "message" for item in done["output"]):
                        self.faults.append("it ended without an answer")
                    return
                outputs = [self._output_of(call) for call in calls]
                if self.style == "codex":
                    held = list(map(as_codex_sends, self._items.values()))
                    create = create | {"input": [*self._input, *held, *outputs]}
                else:
                    create = create | {"input": outputs, "previous_response_id": done["id"]}
            self.faults.append("it calls for ever")
        finally:
            with contextlib.suppress(*LOST):
                await wires.aclose()

    def _output_of(self, call: dict[str, Any]) -> dict[str, Any]:
        known = self._outputs.get(call["call_id"])
        return self._outputs.setdefault(call["call_id"], known or self._run(call))

    async def _one_call(
        self,
        port: int,
        create: dict[str, Any],
        wires: contextlib.AsyncExitStack,
        wire: Wire | None,
    ) -> tuple[dict[str, Any], Wire]:
        """Sends a create until its end has come; returns the response, and the socket."""
        self._input: list[dict[str, Any]] = create["input"]
        self._items: dict[str, dict[str, Any]] = {}  # of the response, as they came whole
        self._outputs: dict[str, dict[str, Any]] = {}
        self._call_ids: set[str] = set()
        for attempt in range(MAX_ATTEMPTS):
            try:
                if wire is None:
                    await asyncio.sleep(PAUSE_S if attempt else 0)
                    wire = await wires.enter_async_context(opened(port, self.style, self.node))
                sent_s = time.monotonic()
                await wire.send(self._again(create))
                return await self._until_end(wire, sent_s, bool(attempt)), wire
            except LOST:
                self.num_cuts += 1
                wire = None
        raise AssertionError(f"lost {MAX_ATTEMPTS} times")

    def _again(self, create: dict[str, Any]) -> dict[str, Any]:
        if self.style != "codex":
            return create
        # As Codex: the history with all that came whole, and the outputs of tools that ran.
        held: list[dict[str, Any]] = []
        for item in self._items.values():
            held.append(as_codex_sends(item))
            if item["type"] == "function_call":
                held.append(self._output_of(item))
        create = {key: each for key, each in create.items() if key != "previous_response_id"}
        return create | {"input": [*self._input, *held]}

    async def _until_end(self, wire: Wire, sent_s: float, is_back: bool) -> dict[str, Any]:
        texts: dict[str, str] = {}
        while True:
            event = await asyncio.wait_for(wire.receive(), RECEIVE_S)
            kind = event["type"]
            if kind == "response.created":
                self._created(event["response"], sent_s, is_back)
            elif kind == "response.output_item.added":
                texts[event["item"]["id"]] = ""
            elif kind == "response.output_text.delta":
                texts[event["item_id"]] += event["delta"]
            elif kind == "response.output_item.done":
                self._done(event["item"], texts)
            elif kind in TERMINALS:
                if kind == "response.failed" and self.may_begin_anew:
                    raise ConnectionResetError(json.dumps(event)[:300])  # asked again, as SDKs do
                if kind != "response.completed":
                    raise AssertionError(json.dumps(event)[:300])
                return self._ended(event["response"])

    def _created(self, response: dict[str, Any], sent_s: float, is_back: bool) -> None:
        if is_back:
            self.waits_s.append(time.monotonic() - sent_s)
        # Where it holds outputs of tools, it may be the turn's next model call.
        if self._call_ids - {response["id"]} and not self._outputs:
            self.num_anew += 1
        self._call_ids = {response["id"]}
        if response["id"] not in self.ids and self._items and self.style == "codex":
            # The turn's next model call: what the client holds is its context now.
            held = self._again({})["input"]
            self._input, self._items = held, {}
        self.ids.add(response["id"])
        if self.style != "codex":
            self._items = {}  # all of it comes again, and what came before is dropped

    def _done(self, item: dict[str, Any], texts: dict[str, str]) -> None:
        if item["id"] in self._items:
            self.faults.append(f"{item['id']} came twice")
        if item["type"] == "message" and texts.get(item["id"]) != _text(item):
            self.faults.append(f"{item['id']}: its deltas are not its text")
        self._items[item["id"]] = item
        if item["type"] == "function_call" and self.style == "codex":
            self._output_of(item)  # tools start as their calls come

    def _ended(self, response: dict[str, Any]) -> dict[str, Any]:
        self.ended.add(response["id"])
        if list(self._items.values()) != response["output"]:
            held, said = list(self._items), [item["id"] for item in response["output"]]
            self.faults.append(f"it holds {held}, the response has {said}")
        return response


def _message(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def _text(item: dict[str, Any]) -> str:
    return "".join(part["text"] for part in item["content"])
