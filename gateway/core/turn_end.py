"""Puts off what nobody waits for until the event loop's turn is over.

Tasks that end in the same turn then send their last events first, and what is noted of them is
noted together, step by step: code that has just run for one task runs faster for the next.
This is an edge.
"""

import asyncio
import logging
from collections.abc import Iterator
from itertools import zip_longest

logger = logging.getLogger("lanewise")

Steps = Iterator[None]  # a generator's, which yields after each step


class TurnEnd:
    """Takes steps at the end of a turn, in the order they came; belongs to one event loop.

    All take their first step, then their second, and so on, before anything that a client sends
    once it has what was written in that turn.
    """

    def __init__(self) -> None:
        self._all: list[Steps] = []

    def put_off(self, steps: Steps) -> None:
        """Takes steps to make; if one fails, that is logged, and the others are made."""
        if not self._all:
            asyncio.get_running_loop().call_soon(self._make)
        self._all.append(steps)

    def _make(self) -> None:
        every, self._all = self._all, []
        is_over = False
        while not is_over:
            try:
                for _ in zip_longest(*every):
                    pass
                is_over = True
            except Exception:  # that one is over, and the others go on where they are
                logger.exception("what was to be noted at a turn's end is lost")


def at_once(steps: Steps) -> None:
    """Takes all steps now, where nothing is gained by putting them off."""
    for _ in steps:
        pass
