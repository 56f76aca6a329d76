"""Follows the attempts of one call to Redis, also after the call has ended without them.

A late attempt may still take effect when its caller has long gone on: who must know of that hears
of it here. This is an edge.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

from router.redis.connection import LinkLost

# Hears of an attempt that the call did not end with: its reply, or None if there is none to come,
# and nobody knows whether it takes effect.
Late: TypeAlias = Callable[[object], None]


class RedisAttempts:
    """Holds the attempts of one call that had no reply in time."""

    def __init__(self, lost: list[LinkLost]) -> None:
        self.lost = lost
        self._passed_by: list[asyncio.Future[Any]] = []  # the call ended before they did

    async def first_reply(self, asking: Coroutine[Any, Any, Any]) -> Any:
        """Returns the reply of this attempt, or a late one to an earlier attempt if that is first.

        Raises `LinkLost` for this attempt. Cancelling stops the wait, and not the attempt.
        """
        earlier = [each.late for each in self.lost if each.late is not None]
        if not earlier:
            return await asking
        asked = asyncio.ensure_future(asking)
        asked.add_done_callback(_outcome)  # also if nobody asks for it any more
        self._passed_by.append(asked)
        await asyncio.wait([asked, *earlier], return_when=asyncio.FIRST_COMPLETED)
        for lost in self.lost:
            if lost.late is not None and lost.late.done():
                reply = _outcome(lost.late)
                if reply is not None and not isinstance(reply, BaseException):
                    self.lost.remove(lost)
                    return reply
        await asyncio.wait([asked])
        self._passed_by.remove(asked)
        return asked.result()

    def tell(self, late: Late) -> None:
        """Lets `late` hear of all of them, after the caller has gone on."""
        for lost in self.lost:
            if lost.late is not None:  # else it was never sent
                lost.late.add_done_callback(partial(pass_on, late))
        for asked in self._passed_by:
            asked.add_done_callback(partial(pass_on, late))


def pass_on(late: Late, attempt: "asyncio.Future[Any]") -> None:
    """Tells `late` what became of an attempt that has ended, or once its late reply is there."""
    outcome = _outcome(attempt)
    if isinstance(outcome, LinkLost):
        if outcome.late is not None:
            outcome.late.add_done_callback(partial(pass_on, late))
    else:
        late(None if isinstance(outcome, BaseException) else outcome)


def _outcome(attempt: "asyncio.Future[Any]") -> Any:
    """Returns the reply of an attempt that has ended, its error, or None if it was cancelled."""
    if attempt.cancelled():
        return None
    return attempt.exception() or attempt.result()
