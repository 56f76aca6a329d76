"""`lanewise chat`: runs the dialogue of `chat_state` on a terminal, over one WebSocket.

This is an edge.
"""

import argparse
import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from gateway.cli.chat_state import PINS, ChatState, ChatStep
from gateway.cli.command import Command, argument
from gateway.config.development import DEVELOPMENT_KEY

REFRESH_S = 0.1  # of the toolbar
OPEN_TIMEOUT_S = 10.0

HELP = "/fast /deep /parallel: ask for that route; /auto: let the router choose; /new; /quit"


class ChatError(Exception):
    """The conversation cannot begin or go on; the message says why."""


def _chat(arguments: argparse.Namespace) -> int:
    """Runs one turn if a prompt is given or piped in, otherwise a dialogue."""
    prompt: str | None = arguments.prompt
    key = arguments.key or os.environ.get("LANEWISE_API_KEY", DEVELOPMENT_KEY)
    if prompt == "-" or (prompt is None and not sys.stdin.isatty()):
        prompt = sys.stdin.read()
    chat = ChatState(arguments.model)
    try:
        if prompt is not None:
            return asyncio.run(_take_turn(arguments.url, key, chat, prompt))
        return asyncio.run(_Terminal(arguments.url, key, chat).run())
    except ChatError as error:
        print(f"lanewise chat: {error}", file=sys.stderr)
        return 1


async def _open(url: str, key: str) -> ClientConnection:
    """Connects to the gateway whose HTTP address is `url`.

    Raises `ChatError` if it cannot be reached, or refuses the key.
    """
    base = url.rstrip("/").removesuffix("/v1")
    socket_url = f"ws{base.removeprefix('http')}/v1/responses"
    headers = {"authorization": f"Bearer {key}"}
    try:
        return await connect(
            socket_url,
            additional_headers=headers,
            max_size=None,
            compression=None,
            open_timeout=OPEN_TIMEOUT_S,
        )
    except InvalidStatus as error:
        reason = json.loads(error.response.body or b"{}").get("error", {}).get("message", "")
        raise ChatError(f"{url} answered {error.response.status_code}. {reason}") from error
    except (OSError, InvalidHandshake, InvalidURI, TimeoutError) as error:
        raise ChatError(f"no gateway at {url} ({error}). Start one with: make run") from error


async def _take_turn(url: str, key: str, chat: ChatState, prompt: str) -> int:
    """Runs one turn. Ctrl-C closes the socket, which ends the generation."""
    async with await _open(url, key) as socket:
        step = chat.say(prompt, _now_us())
        while True:
            for frame in step.frames:
                await socket.send(json.dumps(frame))
            if step.ended:
                print("\n" if step.text.startswith("\n") else "", end="", flush=True)
                print(step.text.strip("\n"), file=sys.stderr)
                return 1 if step.failed else 0
            sys.stdout.write(step.text)
            sys.stdout.flush()
            try:
                step = chat.receive(json.loads(await socket.recv()), _now_us())
            except ConnectionClosed as error:
                raise ChatError(f"the connection was lost ({error})") from error


class _Terminal:
    """The interactive dialogue: a prompt below, the answer above it, a toolbar at the bottom."""

    def __init__(self, url: str, key: str, chat: ChatState) -> None:
        self._url = url
        self._key = key
        self._chat = chat
        self._socket: ClientConnection | None = None
        self._reader: asyncio.Task[None] | None = None
        self._open_line = ""  # printed so far of the last line; shown above the prompt

    async def run(self) -> int:
        """Runs until /quit or the end of input. Cancelling closes the socket."""
        await self._connect()
        session: PromptSession[str] = PromptSession(
            message=lambda: f"{self._open_line}\n> " if self._open_line else "> ",
            bottom_toolbar=lambda: self._chat.status(_now_us()),
            refresh_interval=REFRESH_S,
            key_bindings=_bindings(self._interrupt),
            history=InMemoryHistory(),
        )
        print(HELP)
        try:
            with patch_stdout():
                while True:
                    line = (await session.prompt_async()).strip()
                    self._open_line = ""
                    if line and not await self._take(line):
                        return 0
        except EOFError:
            return 0
        finally:
            await self._disconnect()

    async def _take(self, line: str) -> bool:
        """Handles a typed line; returns false to end the dialogue."""
        command = line.removeprefix("/")
        if not line.startswith("/"):
            await self._connect()
            await self._do(self._chat.say(line, _now_us()))
        elif command in PINS:
            self._chat.pinned = command
        elif command == "auto":
            self._chat.pinned = None
        elif command == "new":
            self._chat.restart()
            self._print("(a new conversation)\n")
        elif command in ("quit", "exit", "q"):
            return False
        else:
            self._print(f"{HELP}\n")
        return True

    async def _do(self, step: ChatStep) -> None:
        """Prints and sends; a closed connection is noticed by the reader, not here."""
        self._print(step.text)
        if self._socket is not None:
            with contextlib.suppress(ConnectionClosed):
                for frame in step.frames:
                    await self._socket.send(json.dumps(frame))

    def _print(self, text: str) -> None:
        """Prints whole lines; the unfinished last one is shown above the prompt."""
        lines, newline, rest = (self._open_line + text).rpartition("\n")
        if newline:
            print(lines)
        self._open_line = rest
        get_app().invalidate()

    async def _connect(self) -> None:
        if self._socket is not None:
            return
        self._socket = await _open(self._url, self._key)
        self._reader = asyncio.create_task(self._read(self._socket))

    async def _read(self, socket: ClientConnection) -> None:
        try:
            async for frame in socket:
                await self._do(self._chat.receive(json.loads(frame), _now_us()))
        except ConnectionClosed:
            pass  # reported below, like a clean close
        self._socket = None
        await self._do(self._chat.lost())

    async def _disconnect(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        if self._socket is not None:
            await self._socket.close()

    async def _interrupt(self) -> bool:
        """Stops the response under way; returns false if there is none."""
        if not self._chat.busy:
            return False
        await self._do(self._chat.cancel())
        return True


def _bindings(interrupt: Callable[[], Awaitable[bool]]) -> KeyBindings:
    """Lets Ctrl-C stop the response, else clear the line, else quit."""
    bindings = KeyBindings()

    @bindings.add("c-c")
    async def _(event: KeyPressEvent) -> None:
        if await interrupt():
            return
        if event.app.current_buffer.text:
            event.app.current_buffer.reset()
        else:
            event.app.exit(exception=EOFError)

    return bindings


def _now_us() -> int:
    return time.monotonic_ns() // 1000


COMMAND = Command(
    'lanewise chat --model auto "Write a haiku about caches."',
    (
        argument("prompt", nargs="?", help="ask once and exit; without it, a dialogue"),
        argument("--url", default="http://127.0.0.1:8080", help="the gateway's address"),
        argument("--model", default="auto", help="a model id (default: auto)"),
        argument("--key", help="API key (default: $LANEWISE_API_KEY, else the development key)"),
    ),
    run=_chat,
)
