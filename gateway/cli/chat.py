"""`lanewise chat` asks a gateway from the terminal, once or as a dialogue. This is an edge."""

import argparse
import asyncio
import os
import sys

from gateway.cli.command import Command, argument, one_of
from gateway.config.command_error import CommandError
from gateway.config.development import DEVELOPMENT_KEY
from gateway.config.first_key import KEY_VARIABLE, secret_of
from gateway.config.http_address import DEFAULT_URL, http_url
from gateway.dialogue.conversation import BOTH, ROUTES, Dialogue
from gateway.dialogue.one_answer import answer_once
from gateway.dialogue.screen import Screen
from lanewise.client import connect
from lanewise.turn import LanewiseError

MAX_PIPED_BYTES = 8 << 20  # more fits no context


class ChatError(CommandError):
    """There is no dialogue with this gateway; the message says why."""

    exit_status = 1


def _chat(arguments: argparse.Namespace) -> int:
    """Asks once if a prompt is given or piped in, otherwise holds a dialogue."""
    prompt = _prompt(arguments.prompt, _piped())
    if prompt is None and not sys.stdout.isatty():
        raise CommandError("a dialogue needs a terminal; give a prompt, or pipe one in")
    if prompt is not None and not prompt.strip():
        raise CommandError("expected a prompt, got nothing but white space")
    return asyncio.run(_talk(arguments, prompt))


async def _talk(arguments: argparse.Namespace, prompt: str | None) -> int:
    url = http_url(arguments.url or os.environ.get("LANEWISE_URL") or DEFAULT_URL, "--url")
    key = arguments.key or secret_of(os.environ, KEY_VARIABLE) or DEVELOPMENT_KEY
    dialogue = Dialogue(arguments.model, arguments.route, arguments.strategy)
    is_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    try:
        async with connect(url, key) as client:
            if prompt is not None:
                asks = list(dialogue.asks())
                return await answer_once(client, prompt, asks, drawn=is_terminal)
            colour = is_terminal and not os.environ.get("NO_COLOR")
            return await Screen(client, dialogue, colour=colour).run()
    except LanewiseError as error:
        hint = " Start one with: lanewise serve" if error.code == "connection_failed" else ""
        raise ChatError(f"{url}: {error.message}{hint}") from error


def _piped() -> str:
    """Returns what stands in standard input, if that is no terminal."""
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    piped = sys.stdin.buffer.read(MAX_PIPED_BYTES + 1)
    if len(piped) > MAX_PIPED_BYTES:
        raise CommandError(f"standard input has more than {MAX_PIPED_BYTES >> 20} MiB")
    try:
        return piped.decode()
    except UnicodeDecodeError as error:
        raise CommandError(f"standard input is not UTF-8 text ({error.reason})") from None


def _prompt(given: str | None, piped: str) -> str | None:
    """Returns what to ask: the words, and what was piped in below them; None: a dialogue."""
    words = "" if given in (None, "-") else given
    if given is None and not piped:
        return None
    return "\n\n".join(filter(str.strip, (words, piped))) if words or piped else ""


COMMAND = Command(
    'lanewise chat "Write a haiku about caches."',
    (
        argument(
            "prompt",
            nargs="?",
            help="ask once and exit; without it, a dialogue",
        ),
        argument(
            "--url",
            help="the gateway's address, as HOST:PORT or http(s)://HOST:PORT (default: "
            f"$LANEWISE_URL, else {DEFAULT_URL})",
        ),
        argument("--model", default="auto", help="a model id (default: auto)"),
        one_of(
            argument("--route", choices=(*ROUTES, BOTH), help="both: each engine by itself"),
            argument("--strategy", help="how both engines work on one answer"),
        ),
        argument("--key", help="API key (default: $LANEWISE_API_KEY, else the development key)"),
    ),
    run=_chat,
    description="Ask a gateway from the terminal. Typing while it answers redirects it; Ctrl-C "
    "stops the answer, and leaves when there is none.",
    note='what is piped in is asked as well: git diff | lanewise chat "Review this."\n'
    "exit status: 0 answered; 1 refused, failed, no gateway; 2 wrong arguments; 130 stopped",
)
