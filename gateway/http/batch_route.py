"""Answers `POST /v1/route`: decides about many prompts, and runs and reserves nothing.

This is an edge.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable

from gateway.core.gateway import Gateway
from gateway.wire.errors import ProtocolError
from router.classify.task import Task, TaskClass, Tenant
from router.classify.text_features import Reading
from router.decide.continuity import NEW
from router.decide.weighing import Facts
from router.record.batch import Desk, decide_line

NDJSON = "application/x-ndjson"

MAX_LINES = 50_000  # of one request; its bytes are bounded as every body's are
MAX_AT_ONCE = 2  # batches in one process: they share its core with the streams
MAX_OF_TENANT = 2  # that run or wait
MAX_HELD = 16  # of all tenants, that run or wait: each holds its body
SLICE_NS = 2_000_000  # decided in one go; then whatever streams has its turn
RETRY_US = 1_000_000


def live_desk(gw: Gateway, tenant: Tenant) -> Desk:
    """Decides as this gateway would now, for a new conversation of the tenant."""

    def facts(task: Task, task_class: TaskClass, reading: Reading) -> Facts:
        return gw.experience.facts(task, task_class, reading, NEW, gw.clock_us())

    return Desk(
        policy=gw.state.policy,
        tenant=tenant,
        stats=gw.backend_stats(),
        facts=facts,
        unix_s=gw.wall_s(),
    )


class RouteBatches:
    """Decides batches, a few at once; of the others some wait, and the first to come is the next.

    A tenant that sends one after the other stands behind those of others each time.
    """

    def __init__(self, desk_for: Callable[[Tenant], Desk]) -> None:
        self._desk_for = desk_for
        self._places = asyncio.Semaphore(MAX_AT_ONCE)
        self._num_held: Counter[str] = Counter()  # tenant id -> its batches that run or wait

    async def decide(self, tenant: Tenant, body: bytes) -> bytes:
        """Returns a line of JSON for each line of the body that is not blank.

        Cancelling it leaves nothing behind.

        Raises:
            ProtocolError: No lines, too many, or too many batches at once.
        """
        if not body:
            message = 'Expected lines of {"id": ..., "text": ...}, got an empty body.'
            raise ProtocolError("invalid_value", message)
        num_lines = _num_lines(body)  # without making them: a body may have millions
        if num_lines > MAX_LINES:
            message = f"Expected at most {MAX_LINES} lines, got {num_lines}: send several requests."
            raise ProtocolError("message_too_large", message)
        if self._num_held[tenant.id] >= MAX_OF_TENANT or self._num_held.total() >= MAX_HELD:
            message = (
                f"At most {MAX_OF_TENANT} batches of a tenant are decided at once, and {MAX_HELD} "
                "of all tenants wait or run. Try again in 1s."
            )
            raise ProtocolError("server_is_overloaded", message, retry_after_us=RETRY_US)
        self._num_held[tenant.id] += 1
        try:
            async with self._places:
                return b"".join(await _decide(self._desk_for(tenant), body.splitlines()))
        finally:
            self._num_held -= Counter((tenant.id,))  # which forgets who has none


def _num_lines(body: bytes) -> int:
    """Counts what `splitlines` would make, of which the last may have no end."""
    num_ends = body.count(b"\n") + body.count(b"\r") - body.count(b"\r\n")
    return num_ends + (not body.endswith((b"\n", b"\r")))


async def _decide(desk: Desk, lines: list[bytes]) -> list[bytes]:
    decided: list[bytes] = []
    slice_ends_ns = time.perf_counter_ns() + SLICE_NS
    for number, line in enumerate(lines, start=1):
        if line.strip():
            decided += (decide_line(line, number, desk, time.perf_counter_ns), b"\n")
        if time.perf_counter_ns() > slice_ends_ns:
            await asyncio.sleep(0)
            slice_ends_ns = time.perf_counter_ns() + SLICE_NS
    return decided
