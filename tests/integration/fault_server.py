"""Offers a server on loopback that answers as an upstream does, or fails as upstreams do.

It speaks chat completions and Responses over SSE by hand, byte by byte, and Responses over a
WebSocket. What it does with each request is the next entry of `plan`; the last one stays. With
"hand on" it answers with a call of the tool that the gateway offers.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from backends.delegation import DELEGATE_TOOL

TEXT = ("One, ", "two, ", "three.")
USAGE = {"input_tokens": 11, "output_tokens": 7}

_CHAT = "/v1/chat/completions"
_FORGOTTEN = {"message": "told to", "code": "previous_response_not_found", "type": "x"}
_FLAT_FORGOTTEN = {name: _FORGOTTEN[name] for name in ("message", "code")}
_HANDED = json.dumps({"task": "Prove it."})


def _chat_events() -> list[dict[str, Any]]:
    deltas = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in TEXT]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    usage = {"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 7}}
    return [*deltas, end, usage]


def _response_events() -> list[dict[str, Any]]:
    item = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    response = {"id": "resp_1", "status": "in_progress", "output": []}
    return [
        {"type": "response.created", "response": response},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        *({"type": "response.output_text.delta", **place, "delta": text} for text in TEXT),
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {**response, "usage": USAGE}},
    ]


def _chat_call() -> list[dict[str, Any]]:
    function = {"name": DELEGATE_TOOL, "arguments": _HANDED}
    call = {"index": 0, "id": "call_1", "type": "function", "function": function}
    *_, usage = _chat_events()
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    return [{"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}, end, usage]


def _response_call() -> list[dict[str, Any]]:
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": DELEGATE_TOOL}
    created, *_, completed = _response_events()
    item = {**call, "arguments": _HANDED}
    return [
        created,
        {"type": "response.output_item.added", "output_index": 0, "item": call},
        {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": _HANDED},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        completed,
    ]


def _whole(is_chat: bool, plan: str) -> dict[str, Any]:
    """Returns what a server writes that does not stream: an answer, or an error."""
    if plan == "whole error":
        return {"error": {"message": "told to", "type": "invalid_request_error", "code": None}}
    text, usage = "".join(TEXT), {"prompt_tokens": 11, "completion_tokens": 7}
    if is_chat:
        message = {"role": "assistant", "content": text, "tool_calls": None}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return {"object": "chat.completion", "choices": [choice], "usage": usage}
    item = {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": text}]}
    response = {"id": "resp_1", "object": "response", "status": "completed", "error": None}
    return {**response, "output": [item], "usage": USAGE}


class FaultServer:
    """Counts and keeps what it is asked."""

    def __init__(self) -> None:
        self.plan = ["answer"]
        self.num_requests = 0
        self.asked = asyncio.Event()
        self.cancelled = asyncio.Event()  # by an event on a socket
        self.left = asyncio.Event()  # a client closed before the end
        self.may_answer = asyncio.Event()  # what is asked before waits for it
        self.may_answer.set()
        self.num_connections = 0
        self.num_open = 0  # of them
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[str] = []
        self.http_port = 0
        self.socket_port = 0
        self._open: set[asyncio.StreamWriter] = set()

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls) -> AsyncIterator["FaultServer"]:
        server = cls()
        http = await asyncio.start_server(server._http, "127.0.0.1", 0)
        server.http_port = http.sockets[0].getsockname()[1]
        async with serve(server._socket, "127.0.0.1", 0, compression=None) as sockets:
            server.socket_port = next(iter(sockets.sockets)).getsockname()[1]
            try:
                yield server
            finally:
                http.close()
                for writer in server._open:
                    writer.transport.abort()
                await http.wait_closed()

    def base_url(self, protocol: str) -> str:
        port = self.socket_port if protocol == "responses-ws" else self.http_port
        return f"http://127.0.0.1:{port}/v1"

    async def _next(self, body: dict[str, Any]) -> str:
        self.bodies.append(body)
        self.num_requests += 1
        self.asked.set()
        await self.may_answer.wait()
        return self.plan.pop(0) if len(self.plan) > 1 else self.plan[0]

    # -- over HTTP -------------------------------------------------------------------------

    async def _http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        self.num_open += 1
        self._open.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.headers.append(head)
                if head.startswith("GET"):  # the probe
                    writer.write(_answer(200, b"{}"))
                    continue
                (length,) = (
                    int(line.partition(":")[2])
                    for line in head.splitlines()
                    if line.lower().startswith("content-length:")
                )
                plan = await self._next(json.loads(await reader.readexactly(length)))
                await self._reply(plan, head, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.num_open -= 1
            self._open.discard(writer)
            writer.close()

    async def _reply(
        self, plan: str, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        is_chat = _CHAT in head
        if plan == "hand on":
            events, plan = _chat_call() if is_chat else _response_call(), "answer"
        else:
            events = _chat_events() if is_chat else _response_events()
        if plan == "forgotten":
            writer.write(_answer(400, json.dumps({"error": _FORGOTTEN}).encode()))
            return
        if plan == "forgotten as an event":
            content = f"data: {json.dumps({'type': 'error', **_FLAT_FORGOTTEN})}\n\n".encode()
            writer.write(_answer(200, content))
            return
        if plan.startswith("status"):
            _, status, *more = plan.split()
            error = {"error": _told(plan)}
            writer.write(_answer(int(status), json.dumps(error).encode(), *more))
            return
        if plan == "hang before headers":
            await self._until_gone(reader)
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        if plan == "hang before the first token":
            await self._until_gone(reader)
        if plan == "page":
            writer.write(_chunk(b"<html>\n\n<p>Log in.</p>\n\n</html>\n") + b"0\r\n\r\n")
            await writer.drain()
            return
        if plan.startswith("whole"):
            writer.write(_chunk(json.dumps(_whole(is_chat, plan), indent=1).encode()))
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            return
        if plan.startswith("hang behind the"):
            *_, reason, usage = events
            if plan != "hang behind the reason":
                reason["usage"] = usage["usage"]
            for event in [*events[:-2], reason]:
                writer.write(_chunk(f"data: {json.dumps(event)}\n\n".encode()))
            await self._until_gone(reader)
        for event in events[:-2] if plan != "answer" else events:
            writer.write(_chunk(f"data: {json.dumps(event)}\n\n".encode()))
            is_text = "choices" in event or event["type"] == "response.output_text.delta"
            if plan != "answer" and is_text:
                break
        if plan == "hang midway":
            await self._until_gone(reader)
        elif plan == "garbage":
            writer.write(_chunk(b"data: {this is no JSON\n\n"))
        elif plan == "error event":
            writer.write(_chunk(_error_event(is_chat)))
        elif plan == "cut":
            raise ConnectionError
        elif plan == "answer" and is_chat:
            writer.write(_chunk(b"data: [DONE]\n\n"))
        writer.write(b"0\r\n\r\n")  # "end without a terminal" gets here too
        await writer.drain()

    async def _until_gone(self, reader: asyncio.StreamReader) -> None:
        try:
            await reader.read(1)
        finally:
            self.left.set()
        raise ConnectionError

    # -- over a socket ---------------------------------------------------------------------

    async def _socket(self, connection: ServerConnection) -> None:
        self.num_connections += 1
        self.num_open += 1
        try:
            with contextlib.suppress(ConnectionClosed):
                await self._serve(connection)
        finally:
            self.num_open -= 1

    async def _serve(self, connection: ServerConnection) -> None:
        async for message in connection:
            body = json.loads(message)
            if body["type"] == "response.cancel":
                stream_id = body["response_id"].removeprefix("resp_")
                response = {"id": body["response_id"]}
                event = {"type": "response.incomplete", "response": response}
                await connection.send(json.dumps({**event, "stream_id": stream_id}))
                self.cancelled.set()
                continue
            plan = await self._next(body)
            if plan == "too old":
                error = {"code": "websocket_connection_limit_reached", "message": "60 minutes"}
                event = {"type": "error", "status": 400, "error": error}
                await connection.send(json.dumps(event))
                return
            if plan.startswith("status"):
                _, status, *more = plan.split()
                error = _told(plan)
                if more:
                    error["headers"] = {"retry-after": more[0]}
                event = {"type": "error", "status": int(status), "error": error}
                await connection.send(json.dumps(event | _stream_of(body)))
                continue
            if plan == "forgotten":
                event = {"type": "error", "status": 400, "error": _FORGOTTEN}
                await connection.send(json.dumps(event | _stream_of(body)))
                continue
            if plan == "warm":
                first, *_, last = _response_events()
                last["response"]["usage"] = {"input_tokens": 11, "output_tokens": 0}
                for event in (first, last):
                    await connection.send(json.dumps(event | _stream_of(body)))
                continue
            if plan.startswith("hang before"):
                await connection.wait_closed()
                self.left.set()
                return
            is_call = plan == "hand on"
            plan = "answer" if is_call else plan
            for event in _response_call() if is_call else _response_events():
                if "stream_id" in body and "response" in event:
                    event["response"]["id"] = f"resp_{body['stream_id']}"
                await connection.send(json.dumps(event | _stream_of(body)))
                if plan != "answer" and event["type"] == "response.output_text.delta":
                    break
            if plan == "hang midway" and "stream_id" not in body:
                await connection.wait_closed()
                self.left.set()
            elif plan == "garbage":
                await connection.send("{this is no JSON")
            elif plan == "error event":
                error = {"message": "told to", "code": "server_error", "type": "server_error"}
                event = {"type": "error", "status": 500, "error": error}
                await connection.send(json.dumps(event | _stream_of(body)))
            elif plan == "cut":
                connection.transport.abort()
            elif plan not in ("answer", "hang midway"):
                return


def _told(plan: str) -> dict[str, Any]:
    return {"message": f"told to: {plan}", "code": None, "type": "x", "param": "temperature"}


def _answer(status: int, body: bytes, retry_after: str = "") -> bytes:
    headers = f"content-length: {len(body)}\r\ncontent-type: application/json\r\n"
    if retry_after:
        headers += f"retry-after: {retry_after}\r\n"
    return f"HTTP/1.1 {status} Told\r\n{headers}\r\n".encode() + body


def _stream_of(body: dict[str, Any]) -> dict[str, str]:
    return {"stream_id": body["stream_id"]} if "stream_id" in body else {}


def _chunk(content: bytes) -> bytes:
    return f"{len(content):x}\r\n".encode() + content + b"\r\n"


def _error_event(is_chat: bool) -> bytes:
    if is_chat:
        return b'data: {"error":{"message":"told to","type":"server_error","code":500}}\n\n'
    return b'event: error\ndata: {"type":"error","code":"server_error","message":"told to"}\n\n'
