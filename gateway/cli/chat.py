"""`lanewise chat`.

An edge: it uses the operating system.
"""

import argparse
import os

from gateway.cli.parser import Commands, add_command
from gateway.cli.terminal import run
from gateway.config.development import DEVELOPMENT_KEY


def add(commands: Commands) -> None:
    """Add `chat`."""
    parser = add_command(
        commands,
        "chat",
        "Talk to a gateway from the terminal; typing while it answers redirects it.",
        'lanewise chat --model auto "Write a haiku about caches."',
    )
    parser.add_argument("prompt", nargs="?", help="ask once and exit; without it, a dialogue")
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="the gateway's address")
    parser.add_argument("--model", default="auto", help="a model id (default: auto)")
    parser.add_argument(
        "--key",
        default=os.environ.get("LANEWISE_API_KEY", DEVELOPMENT_KEY),
        help="API key (default: $LANEWISE_API_KEY, else the development key)",
    )
    parser.set_defaults(run=_chat)


def _chat(arguments: argparse.Namespace) -> int:
    return run(url=arguments.url, key=arguments.key, model=arguments.model, prompt=arguments.prompt)
