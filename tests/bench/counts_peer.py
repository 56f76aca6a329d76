"""Runs client and upstream of `counts.py` in their own process: one task at a time, in steps.

    python tests/bench/counts_peer.py CONTROL_FD      # started by counts.py, never by hand

It hears over the control socket where the gateway is and what to run, and marks where each task
begins and ends there. As the upstream it sends an event only when the gateway has come to rest
after the one before, so that no two are ever read together, however busy the machine is.
"""

import argparse
import asyncio
import itertools
import socket
import sys
from functools import partial
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench import fake_upstream, task_load  # noqa: E402
from tests.bench.paced_upstream import Answer, answer_of  # noqa: E402


class Series(msgspec.Struct, frozen=True):
    """Describes tasks that are all alike."""

    mode: str  # of task_load.py
    model: str
    tokens: int
    warm_up: int  # tasks before the first that counts
    kinds: list[str]  # of counting, each so often
    repeat: int
    together: bool = False  # an answer's events come in one read, and each prompt is the same


class Orders(msgspec.Struct, frozen=True):
    """Says what the gateway's process says once it serves."""

    url: str
    key: str
    series: list[Series]


class Control:
    """Asks the gateway's process, and waits for its answer."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._turn = asyncio.Lock()

    async def say(self, message: bytes) -> bytes:
        """Returns once the gateway is at rest."""
        loop = asyncio.get_running_loop()
        async with self._turn:
            await loop.sock_sendall(self._end, message)
            return await loop.sock_recv(self._end, 65_536)


class Stepped(fake_upstream.Connection):
    """Sends an answer's events one by one, each when the gateway has dealt with the last."""

    together = False  # all of them at once instead, on every connection

    def __init__(self, control: Control) -> None:
        super().__init__(("fake",))
        self._control = control
        self._steps: asyncio.Task[None] | None = None

    def respond(self, path: bytes, body: bytes) -> None:
        """Answers one request over HTTP."""
        if path.endswith(b"/chat/completions"):
            self._begin("chat", body)
        elif path.endswith(b"/responses"):
            self._begin("sse", body)
        else:
            super().respond(path, body)

    def _answer(self, payload: bytes) -> None:
        """Answers one message over a WebSocket."""
        self._begin("socket", payload)

    def _begin(self, kind: str, body: bytes) -> None:
        asked = fake_upstream.asked_of(body)
        limit = asked.max_output_tokens or asked.max_completion_tokens or asked.max_tokens
        assert limit is not None, body
        self._steps = asyncio.create_task(self._send(answer_of(kind, asked.model, 0, limit)))

    async def _send(self, answer: Answer) -> None:
        if Stepped.together:
            whole = b"".join((answer.head, *answer.deltas, answer.tail))
            self.send(fake_upstream.numbered(whole))
            return
        self.send(fake_upstream.numbered(answer.head))
        for delta in answer.deltas:
            await self._control.say(b"rest")
            self.send(delta)
        await self._control.say(b"rest")
        self.send(fake_upstream.numbered(answer.tail))


async def run_series(control: Control, orders: Orders, series: Series) -> None:
    """Warm up, then task by task, each between two marks."""
    Stepped.together = series.together
    number = "" if series.together else " #NUMBER#"
    load = task_load.Load(
        argparse.Namespace(
            url=orders.url, key=orders.key, header=[], model=series.model, mode=series.mode,
            concurrency=1, streams_per_socket=1, tokens=series.tokens, limit_field=None,
            text=f"Write a guide of {series.tokens} tokens.{number}", store=False, timeout_s=60.0,
        )
    )  # fmt: skip
    await load.connect()
    for _ in range(series.warm_up):
        await load.run(1)
        await control.say(b"begin warm-up")
        await control.say(b"end")
    for kind in series.kinds * series.repeat:
        await control.say(b"begin " + kind.encode())
        await load.run(1)
        await control.say(b"end " + msgspec.json.encode(series))
    load.close()
    await control.say(b"begin warm-up")  # it has noticed that the connection is gone
    await control.say(b"end")


async def main(control_fd: int) -> None:
    """Serve, say where, and run what is asked for."""
    end = socket.socket(fileno=control_fd)
    end.setblocking(False)
    control = Control(end)
    task_load._numbers = itertools.count(1)  # the same prompts in every run, and none twice
    loop = asyncio.get_running_loop()
    server = await loop.create_server(partial(Stepped, control), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    orders = msgspec.json.decode(await control.say(b"%d" % port), type=Orders)
    for series in orders.series:
        await run_series(control, orders, series)
    await control.say(b"over")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
