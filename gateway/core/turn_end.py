"""Puts off what nobody waits for until the event loop's turn is over.

Tasks that end in the same turn then send their last events first, and what is noted of them is
noted together: code that has just run for one task runs faster for the next. This is an edge.
"""

import asyncio
import logging
from collections.abc import Callable

logger = logging.getLogger("lanewise")

Call = Callable[[], None]


class TurnEnd:
    """Makes calls at the end of a turn, in the order they came; belongs to one event loop.

    They come before anything that a client sends once it has what was written in that turn.
    """

    def __init__(self) -> None:
        self._calls: list[Call] = []

    def put_off(self, call: Call) -> None:
        """Takes a call; if it fails, that is logged, and the others are made."""
        if not self._calls:
            asyncio.get_running_loop().call_soon(self._make)
        self._calls.append(call)

    def _make(self) -> None:
        calls, self._calls = self._calls, []
        for call in calls:
            try:
                call()
            except Exception:
                logger.exception("what was to be noted at a turn's end is lost")


def at_once(call: Call) -> None:
    """Makes a call now, where nothing is gained by putting it off."""
    call()
