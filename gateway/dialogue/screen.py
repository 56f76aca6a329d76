"""Draws the dialogue on a terminal: a prompt below, answers above it, a line of status at the end.

This is an edge.
"""

import asyncio

from prompt_toolkit import ANSI, PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from gateway.dialogue.conversation import HELP, Dialogue
from gateway.dialogue.layout import Canvas, DialogueView
from gateway.dialogue.turns import Turns, now_us
from lanewise.client import Client

REFRESH_S = 0.1
ROWS_BELOW = 4  # what is typed, the status, and room to wrap


class Screen:
    """Takes lines until /quit, the end of input, or Ctrl-C where no answer is under way."""

    def __init__(self, client: Client, dialogue: Dialogue, *, colour: bool) -> None:
        self._client = client
        self._dialogue = dialogue
        self._canvas = Canvas(colour=colour)
        self._turns: Turns | None = None
        self._asking = asyncio.Lock()  # one ask at a time
        self._saying: set[asyncio.Task[None]] = set()  # lines that are not through yet
        self._unsettled = ""  # drawn above the prompt until it is finished
        self._session: PromptSession[str] = PromptSession(
            message=lambda: ANSI(f"{self._unsettled}> "),
            bottom_toolbar=self._status,
            refresh_interval=REFRESH_S,
            key_bindings=self._bindings(),
            history=InMemoryHistory(),
        )

    async def run(self) -> int:
        """Runs the dialogue and returns its exit status; leaving cancels what runs."""
        print(self._canvas.dim(HELP))
        try:
            while await self._take((await self._session.prompt_async()).strip()):
                pass
        except EOFError:
            pass
        finally:
            for line in self._saying:
                line.cancel()
            await asyncio.gather(*self._saying, return_exceptions=True)
        return 0

    async def _take(self, line: str) -> bool:
        """Handles a typed line; returns false to end the dialogue."""
        if line.startswith("/"):
            said = self._dialogue.command(line)
            if said:
                await self._print(f"{self._canvas.dim(said)}\n")
            return said is not None
        if line:  # while it is on its way, the next one may be typed
            saying = asyncio.create_task(self._say(line))
            self._saying.add(saying)
            saying.add_done_callback(self._saying.discard)
        return True

    async def _say(self, line: str) -> None:
        """Redirects the answer under way; without one it asks, after the last line did."""
        if self._turns is not None and await self._turns.steer(line):
            return
        async with self._asking:
            await self._answer(line)

    async def _answer(self, prompt: str) -> None:
        """Asks, and draws what comes until it is over."""
        async with Turns(self._client, prompt, list(self._dialogue.asks())) as turns:
            self._turns = turns
            view = DialogueView(self._canvas, turns.titled)
            while True:
                is_last = turns.over
                size = self._session.app.output.get_size()
                settled = self._canvas.text(view.settled(size.columns))
                rows = max(1, size.rows - ROWS_BELOW)
                self._unsettled = self._canvas.text(view.unsettled(size.columns, rows))
                await self._print(settled)
                if is_last:
                    break
                await turns.wait(REFRESH_S)
            self._turns = None
            for title, answer in turns.titled:
                ended = " · ".join(filter(None, (title, answer.summary(), answer.route())))
                await self._print(f"{self._canvas.dim(f'[{ended}]')}\n")
                if answer.response is not None:
                    self._dialogue.answered(answer.response)

    async def _print(self, text: str) -> None:
        """Prints above the prompt, which is drawn again below."""
        if text:
            await run_in_terminal(lambda: print(text, end="", flush=True))
        self._session.app.invalidate()

    def _status(self) -> str:
        if self._turns is None:
            return f" {self._dialogue.wishes()}   /fast /deep /both /auto /help /quit"
        one = next((a for a in self._turns.answers if not a.over), self._turns.answers[-1])
        return f" {one.status(now_us())}"

    def _bindings(self) -> KeyBindings:
        """Lets Ctrl-C stop the answer, else clear the line, else leave; the second one leaves."""
        bindings = KeyBindings()

        @bindings.add("c-c")
        async def _(event: KeyPressEvent) -> None:
            turns = self._turns
            if turns is not None and not turns.cancelled:
                await turns.cancel()
            elif turns is None and event.app.current_buffer.text:
                event.app.current_buffer.reset()
            else:
                event.app.exit(exception=EOFError)

        @bindings.add("enter")
        def _(event: KeyPressEvent) -> None:
            self._unsettled = ""  # else it stays where the line is, and comes again below
            event.app.current_buffer.validate_and_handle()

        return bindings
