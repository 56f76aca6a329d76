"""Shows one ask and its answer: drawn on a terminal, plain in a pipe. This is an edge."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.live import Live
from rich.segment import SegmentLines

from gateway.dialogue.conversation import Ask
from gateway.dialogue.layout import Canvas, DialogueView
from gateway.dialogue.turns import Turns
from lanewise.client import Client

REFRESH_S = 0.1
DONE, FAILED, INTERRUPTED = 0, 1, 130


async def answer_once(client: Client, prompt: str, asks: Sequence[Ask], *, drawn: bool) -> int:
    """Asks, shows what comes, and returns the exit status.

    The first Ctrl-C stops the answer and shows what there is; the second one leaves at once.
    """
    async with Turns(client, prompt, asks) as turns:
        with _interrupts(turns):
            try:
                await (_draw(turns) if drawn else _print(turns))
            except asyncio.CancelledError:
                return INTERRUPTED
        for title, answer in turns.titled:
            said = " ".join(filter(None, (title and f"{title}:", answer.route())))
            _tell(said, drawn=drawn)
            _tell(f"[{answer.summary()}]", drawn=drawn)
        if any(answer.cancelled for answer in turns.answers):
            return INTERRUPTED
        return FAILED if any(answer.error for answer in turns.answers) else DONE


async def _draw(turns: Turns) -> None:
    """Draws on the terminal: whole blocks for good, the last one again and again."""
    console = Console(highlight=False)
    view = DialogueView(Canvas(colour=True), turns.titled)
    with Live(console=console, transient=True, auto_refresh=False) as live:
        while True:
            is_last = turns.over
            width, rows = console.size
            settled = view.settled(width)
            if settled:
                console.print(SegmentLines(settled, new_lines=True), end="")
            rest = view.unsettled(width, max(1, rows - 2))
            live.update(SegmentLines(rest, new_lines=True), refresh=True)
            if is_last:
                return
            await turns.wait(REFRESH_S)


async def _print(turns: Turns) -> None:
    """Writes the answers alone, as they come, one after the other."""
    for title, answer in turns.titled:
        if title:
            print(f"## {title}\n")
        num_chars = 0
        while True:
            is_last = answer.over or turns.over
            text = answer.text
            sys.stdout.write(text[num_chars:])
            sys.stdout.flush()
            num_chars = len(text)
            if is_last:
                break
            await turns.wait(REFRESH_S)
        if num_chars and not answer.text.endswith("\n"):
            print(flush=True)


def _tell(text: str, *, drawn: bool) -> None:
    """Says something of the answer, where it does not become part of it."""
    if text:
        print(Canvas(colour=drawn and sys.stderr.isatty()).dim(text), file=sys.stderr)


@contextlib.contextmanager
def _interrupts(turns: Turns) -> Iterator[None]:
    loop, main = asyncio.get_running_loop(), asyncio.current_task()
    assert main is not None
    stops: list[asyncio.Task[None]] = []  # holds them until they ran

    def interrupt() -> None:
        if turns.cancelled:
            main.cancel()
        else:
            turns.cancelled = True
            stops.append(asyncio.create_task(turns.cancel()))

    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
