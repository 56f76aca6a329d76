"""Makes back-tests in a process of its own, one at a time, so that no stream waits for one.

The process is niced, has a time limit, and gets a pickled request from this one alone.
This is an edge.
"""

import asyncio
import pickle
import sys
from collections.abc import Callable
from typing import Any

from gateway.backtest.inquiry import InquiryError

LIMIT_S = 60.0


class BacktestBusy(Exception):  # noqa: N818 - says what is the case
    """Another back-test is being made."""


class Apart:
    """Runs one call at a time in another process."""

    def __init__(self) -> None:
        self._is_busy = False

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Returns what a function of a module returns there.

        Cancelling it, and its time limit, kill the process. Raises `BacktestBusy`, and
        `InquiryError` with what went wrong.
        """
        if self._is_busy:
            raise BacktestBusy
        self._is_busy = True
        try:
            return await self._call(pickle.dumps((function, arguments)))
        finally:
            self._is_busy = False

    async def _call(self, request: bytes) -> Any:
        process = await asyncio.create_subprocess_exec(
            # -P: a folder "gateway" in the working directory must not be imported.
            *(sys.executable, "-P", "-m", "gateway.backtest.worker"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            output, _ = await asyncio.wait_for(process.communicate(request), LIMIT_S)
        except TimeoutError:
            raise InquiryError(
                f"the back-test was not done after {LIMIT_S:.0f} s: take a shorter part of the "
                "log, or make it from the command line with --log"
            ) from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0 or not output:
            raise InquiryError("the back-test's process failed; its reason is in the log")
        found = pickle.loads(output)
        if isinstance(found, InquiryError):
            raise found
        return found
