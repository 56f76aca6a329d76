"""Offers an upstream as strict as any chat template, which breaks and stalls where told.

It refuses what Mistral's template and llama.cpp refuse: a system message that is not the first,
roles that do not alternate, an output that is no answer to a call, an end that is the assistant's
without a prefill. Each refusal is kept in `refusals`.

What it says is fixed: `TEXT` in `TOKENS`, whoever is asked; a sub-task and advice where an ask says
`delegate` or `advise` and the gateway's tool is offered; `verdict=WORD` where a verdict is asked
for. A client's latest message may ask for faults, `fault=GROUP:PART:KIND:PLACE`: the first
generation for that part of that group breaks, closes or stalls behind so many tokens.
"""

import asyncio
import contextlib
import json
import re
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

_WORDS = (
    "Rain fell on green hills above our town while cows slept under old trees and birds sang until "
    "sunrise came with warm light."
)
TOKENS = [f"{word} " for word in _WORDS.split()[:-1]] + ["end."]
TEXT = "".join(TOKENS)
NUM_REJECTED = 7  # tokens of every prediction
PLAN = ["1. ", "Think. ", "2. ", "Answer."]
SO_FAR = ["So ", "far."]
ASIDE = ["Let ", "me ", "ask. "]
_FAULT = re.compile(r"fault=(fast|deep):([a-z]+):(break|stall|close):(\d+)")
_VERDICT = re.compile(r"verdict=(\w+)")
_BACKEND = """
[[backends]]
kind = "upstream"
name = "{name}"

[backends.options]
group = "{group}"
model = "{name}-model"
upstream_model = "{group}"
base_url = "{url}/{group}/v1"
system_messages = "first"
pads_tool_turns = true
probe_path = "/models"
eject_after = 1000000
max_retries = 0
{more}
"""

Messages = list[dict[str, Any]]


class Asked(NamedTuple):
    """Is one request that was taken."""

    group: str
    part: str
    body: dict[str, Any]


def refusal(messages: Messages, *, prefills: bool) -> str | None:
    """Says what a strict template has against a conversation."""
    begun = prefills and messages[-1]["role"] == "assistant"
    if messages[-1]["role"] not in ("user", "tool") and not begun:
        return f"the last message is the {messages[-1]['role']}'s"
    before, open_calls = "", set[str]()
    for number, message in enumerate(messages):
        role = message["role"]
        if role == "system":
            if number:
                return "a system message behind others"
            continue
        follows = {"": "user", "user": "assistant", "assistant": "user tool", "tool": "assistant"}
        if role == "tool":
            if message["tool_call_id"] not in open_calls:
                return "an output without its call"
            open_calls.remove(message["tool_call_id"])
        elif open_calls:
            return "a call without its output"
        if role not in (*follows[before].split(), "tool" if before == "tool" else role[:0]):
            return f"{role} behind {before or 'the beginning'}"
        if not message.get("content") and not message.get("tool_calls"):
            return "an empty message"
        open_calls |= {call["id"] for call in message.get("tool_calls") or ()}
        before = role
    return None


def part_of(messages: Messages) -> str:
    """Names what a request is for, by its words."""
    last = messages[-1]
    begun = last["role"] == "assistant"
    ask = next(m for m in reversed(messages) if m["role"] in ("user", "tool"))
    words = str(ask["content"])
    for part, mark in (
        ("verdict", "Reply with one word"),
        ("judge", "independent answers by a smaller model"),
        ("advice", "You advise a smaller model"),
        ("subtask", "SUBTASK"),
    ):
        if mark in words:
            return part
    if ask["role"] == "tool" and any("lanewise_" in json.dumps(m) for m in messages):
        return "meanwhile" if '"running"' in words else "closing"
    return "answer" if not begun else "rest"


class StrictUpstream:
    """Serves both groups on loopback; keeps what it was asked."""

    def __init__(self, token_s: float = 0.0, *, prefills: bool = True) -> None:
        self.asked: list[Asked] = []
        self.refusals: list[str] = []
        self.num_open = 0
        self._token_s = token_s
        self._prefills = prefills
        self._faulted: set[str] = set()  # asks whose fault has come
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._url = ""

    @classmethod
    @contextlib.contextmanager
    def running(cls, token_s: float = 0.0, *, prefills: bool = True) -> Iterator["StrictUpstream"]:
        """Serves it on a loop and a thread of its own."""
        server, loop = cls(token_s, prefills=prefills), asyncio.new_event_loop()
        listener = loop.run_until_complete(asyncio.start_server(server._serve, "127.0.0.1", 0))
        server._url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        thread = threading.Thread(target=loop.run_forever)
        thread.start()

        async def close() -> None:
            listener.close()
            for writer in server._writers:
                writer.transport.abort()
            await asyncio.gather(*server._tasks)

        try:
            yield server
        finally:
            asyncio.run_coroutine_threadsafe(close(), loop).result(timeout=30)
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def config(self, more: str = "") -> str:
        """Returns the backends of a gateway before it, with further options."""
        prefill = 'prefill = "last_message"\n' if self._prefills else ""
        return "".join(
            _BACKEND.format(
                name=name, group=group, url=self._url, more=prefill + more + _PREDICTS[group]
            )
            for name, group in (("quick", "fast"), ("slow", "deep"))
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                if head.startswith("get"):
                    writer.write(_whole(200, {"data": []}))
                    continue
                (length,) = re.findall(r"content-length: (\d+)", head)
                body = json.loads(await reader.readexactly(int(length)))
                wrong = refusal(body["messages"], prefills=self._prefills)
                if wrong is not None:
                    self.refusals.append(f"{wrong}: {json.dumps(body['messages'])}")
                    writer.write(_whole(400, {"error": {"message": wrong}}))
                    continue
                self.num_open += 1
                try:
                    await self._answer(reader, writer, head.split("/")[1], body)
                finally:
                    self.num_open -= 1
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # it left
        finally:
            self._writers.discard(writer)
            self._tasks.discard(task)
            writer.close()

    async def _answer(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        group: str,
        body: dict[str, Any],
    ) -> None:
        """Says the words behind those of the last message, as far as a fault lets it."""
        messages, part = body["messages"], part_of(body["messages"])
        self.asked.append(Asked(group, part, body))
        begun = messages[-1]["content"] if messages[-1]["role"] == "assistant" else ""
        ask = json.dumps([m["content"] for m in messages if m["role"] == "user"])
        words, call = _script(part, ask, body)
        assert "".join(words).startswith(begun), begun
        left = words[len(begun.split()) :]
        said = left[: body.get("max_completion_tokens", 1 << 30)]
        kind, place = self._fault(group, part, ask) or ("", -1)
        head = b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        writer.write(b"HTTP/1.1 200 OK\r\n" + head)
        for number, word in enumerate(said):
            if number == place:
                await _break(kind, reader, writer)
            await _send(writer, {"content": word})
            await asyncio.sleep(self._token_s)
        if place >= len(said):
            await _break(kind, reader, writer)
        is_cut = len(said) < len(left)
        if call is not None and not is_cut:
            function = {"name": call[0], "arguments": call[1]}
            calls = [{"index": 0, "id": "call_ours", "function": function}]
            await _send(writer, {"tool_calls": calls})
        await _send(writer, {}, "length" if is_cut else "tool_calls" if call else "stop")
        await _write(writer, {"choices": [], "usage": _usage(body, len(said))})
        writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        await writer.drain()

    def _fault(self, group: str, part: str, ask: str) -> tuple[str, int] | None:
        for found in _FAULT.finditer(ask):
            if (group, part) == (found[1], found[2]) and ask + part not in self._faulted:
                self._faulted.add(ask + part)
                return found[3], int(found[4])
        return None


_PREDICTS = {"fast": "", "deep": 'prediction = "field"\n'}


def _usage(body: dict[str, Any], num_said: int) -> dict[str, Any]:
    num_input = len(json.dumps([body["messages"], body.get("tools")])) // 4
    if "prediction" not in body:
        return {"prompt_tokens": num_input, "completion_tokens": num_said}
    counts = {"accepted_prediction_tokens": num_said // 2}
    counts["rejected_prediction_tokens"] = NUM_REJECTED
    used = {"prompt_tokens": num_input, "completion_tokens": num_said + NUM_REJECTED}
    return used | {"completion_tokens_details": counts}


def _script(part: str, ask: str, body: dict[str, Any]) -> tuple[list[str], tuple[str, str] | None]:
    offered = {tool["function"]["name"] for tool in body.get("tools", ())}
    if part == "verdict":
        found = _VERDICT.findall(ask)
        return [found[-1] if found else "yes"], None
    if part == "advice":
        return PLAN, None
    if part in ("answer", "rest") and body.get("tool_choice") != "none":
        for name, field in (("advise", "question"), ("delegate", "task")):
            if f"lanewise_{name}" in offered and f"please {name}" in ask:
                arguments = json.dumps({field: "SUBTASK of it" if field == "task" else "How?"})
                return ASIDE, (f"lanewise_{name}", arguments)
    if part == "meanwhile":
        return SO_FAR, None
    return TOKENS, None


def _whole(status: int, body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(data)}\r\n\r\n".encode() + data


async def _break(kind: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> NoReturn:
    if kind == "stall":
        await reader.read(1)  # until the other side leaves
    if kind == "close":
        writer.close()
    else:
        writer.transport.abort()
    raise ConnectionError


async def _send(
    writer: asyncio.StreamWriter, delta: dict[str, Any], reason: str | None = None
) -> None:
    await _write(writer, {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})


async def _write(writer: asyncio.StreamWriter, chunk: dict[str, Any]) -> None:
    data = b"data: " + json.dumps(chunk).encode() + b"\n\n"
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))
    await writer.drain()
