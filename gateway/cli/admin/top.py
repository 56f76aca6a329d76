"""`lanewise top` shows in a terminal what the console shows live. This is an edge."""

import argparse
import sys
import time
from collections.abc import Iterator

import msgspec

from gateway.cli.admin_client import ADMIN_ARGUMENTS, AdminError, admin_events
from gateway.cli.command import Command, argument
from gateway.top.picture import Picture, Sections, events
from gateway.top.terminal import print_once, shown

RETRY_S = 1.0


def _top(arguments: argparse.Namespace) -> int:
    if arguments.json:
        for name, sections in _events(arguments):
            line = msgspec.json.encode({"event": name, **sections})
            print(line.decode(), flush=True)
            if arguments.once:
                return 0
        return 0
    picture = Picture()
    if arguments.once or not sys.stdout.isatty():
        for told in _events(arguments):
            picture.take(*told)
            print_once(picture)
            return 0
    shown(picture, _kept_up(arguments, picture))
    return 0


def _events(arguments: argparse.Namespace) -> Iterator[tuple[str, Sections]]:
    with admin_events(arguments) as lines:
        yield from events(lines)


def _kept_up(arguments: argparse.Namespace, picture: Picture) -> Iterator[str]:
    """Takes events for ever; yields after each why nothing comes, or an empty text."""
    try_first = True
    while True:
        try:
            for told in _events(arguments):
                try_first = False
                picture.take(*told)
                yield ""
            lost = "the gateway ended the stream"
        except AdminError as error:
            if try_first or error.status is not None:
                raise
            lost = str(error)
        yield lost
        time.sleep(RETRY_S)


COMMAND = Command(
    "lanewise top --url http://127.0.0.1:8081",
    (
        argument("--once", action="store_true", help="print it once, as where output is piped"),
        *ADMIN_ARGUMENTS,
    ),
    _top,
    description="""\
Watch a gateway: what is wrong, throughput, engines, pools and the latest decisions. It reads
`GET /admin/events`, as the console's page Live does; --json prints those events, a line each.
Ctrl-C ends it.
""",
)
