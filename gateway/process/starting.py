"""Lets a start be stopped, and takes back what it has made by then. This is an edge."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


async def stoppable(serving: Coroutine[Any, Any, int]) -> int:
    """Runs it, and cancels it upon a signal to stop, which it handles itself once it serves.

    By default such a signal ends the process, and leaves the embedded Redis's folder behind.
    Returns its exit status: 0 if it was stopped.
    """
    loop = asyncio.get_running_loop()
    running = asyncio.create_task(serving)
    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, running.cancel)
    try:
        return await running
    except asyncio.CancelledError:
        return 0
