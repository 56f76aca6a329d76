"""Bounds how long a stop waits for a Redis that takes nothing."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Protocol

LAST_CALLS_S = 5.0  # of all parts together
ATTEMPT_S = 0.5  # that each part has all the same: where one waited, Redis may be back


class TellsTheLast(Protocol):
    """Tells Redis the last when it is closed."""

    async def close(self, within_s: float) -> None:
        """Tries for so long at most."""


class LastCalls:
    """Is the time in which all parts of a gateway tell Redis the last; it begins with the first."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._ends_s: float | None = None

    def left_s(self) -> float:
        """Returns how long the next part may try."""
        now_s = self._clock_s()
        if self._ends_s is None:
            self._ends_s = now_s + LAST_CALLS_S
        return max(self._ends_s - now_s, ATTEMPT_S)

    def close(self, stack: AsyncExitStack, part: TellsTheLast) -> None:
        """Has the stack close a part, in the time that is left then."""

        async def close() -> None:
            await part.close(self.left_s())

        stack.push_async_callback(close)
