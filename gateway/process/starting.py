"""Says what a start needs; lets it be stopped, and takes back what it has made by then.

This is an edge.
"""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

from gateway.config.command_error import CommandError
from gateway.transport.listener import raise_descriptor_limit

# A gateway at rest holds 31 descriptors. An embedded Redis, which has the same limit, holds 23
# then, and keeps 32 for itself.
MIN_DESCRIPTORS = 64
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def check_descriptors() -> None:
    """Raises `CommandError` if this process may have too few descriptors open at once to serve.

    Its soft limit is raised to the hard one before.
    """
    allowed = raise_descriptor_limit()
    if 0 <= allowed < MIN_DESCRIPTORS:  # less than 0: any number
        raise CommandError(
            f"this process may have {allowed} file descriptors open at once, and needs "
            f"{MIN_DESCRIPTORS} at least: raise the limit (ulimit -n, LimitNOFILE)"
        )


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
