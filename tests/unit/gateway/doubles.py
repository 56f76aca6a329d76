"""Offers small real things in place of the gateway's surroundings, each true to its name."""

import asyncio
import itertools
import json
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any

from backends.contract import (
    BackendError,
    BackendGroup,
    BackendInfo,
    BackendStats,
    Delta,
    DeltaKind,
    Finish,
    FinishReason,
    GenerateRequest,
    Sink,
    Usage,
)
from gateway.store.response_store import ResponseStore
from gateway.store.stored_response import Context, Lineage, StoredResponse
from gateway.wire.events import CreateBody, decode
from gateway.wire.requests import ParsedCreate, parse_create
from gateway.wire.routing import ContextUse, RoutedBackend, RoutedClass, Routing
from router.classify.task import GroupLimits, Route, Tenant
from router.decide.decision import Reason
from router.pools.memory_pools import MemoryPools
from router.pools.pools import Demand, Grant, Renewal, Reservation
from router.pools.redis_pools import PoolsUnavailable, RedisPools
from tests.e2e.events import Event

ROUTING = Routing(
    route=Route.FAST,
    strategy=None,
    backends=(RoutedBackend("wafer", "fast", "lanewise-fast", True),),
    task_class=RoutedClass("interactive", 0.1, 0.0, ()),
    reason=Reason.CLASS,
    why="It is short.",
    policy_version="default",
    pools=(),
    ratelimit_mode="redis",
    context=ContextUse(7, 1_000, 0.7, "sharp"),
)
MANY = GroupLimits(requests_per_min=600, tokens_per_min=6_000_000, max_concurrent=64)
TENANT = Tenant(id="acme", tier="default", limits={"fast": MANY, "deep": MANY})


def numbered_ids() -> Callable[[], str]:
    """Yields 48 hex digits like the gateway's own, in counting order."""
    numbers = itertools.count(1)
    return lambda: f"{next(numbers):048x}"


def parsed_create(response_id: str = "resp_1", **fields: Any) -> ParsedCreate:
    """Returns a request as `POST /v1/responses` would bring it."""
    body = json.dumps({"model": "auto", "input": "Hi."} | fields)
    return parse_create(decode(body.encode(), CreateBody), response_id)


class Transcript:
    """Keeps every event that is emitted, decoded."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def emit(self, event_type: str, /, *frames: bytes) -> None:
        events = [json.loads(frame) for frame in frames]
        assert events[-1]["type"] == event_type
        self.events += events

    def send(self, frame: bytes) -> None:
        self.events.append(json.loads(frame))

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    def take(self) -> list[Event]:
        """Returns what came since the last time."""
        taken, self.events = self.events, []
        return taken


def text(words: str, index: int = 0, at_us: int = 0) -> Delta:
    return Delta(index, DeltaKind.TEXT, words, max(1, len(words.split())), at_us)


def call(arguments: str, index: int = 0, name: str = "look", call_id: str = "call_1") -> Delta:
    return Delta(index, DeltaKind.FUNCTION_CALL, arguments, 1, 0, call_id, name)


def stop(num_output_tokens: int = 3, num_input_tokens: int = 7) -> Finish:
    usage = Usage(num_input_tokens=num_input_tokens, num_output_tokens=num_output_tokens)
    return Finish(FinishReason.STOP, usage, 0)


def failure(backend: str = "wafer") -> Finish:
    error = BackendError(backend, "server_error", "it broke", retryable=True)
    return Finish(FinishReason.ERROR, Usage(num_input_tokens=7, num_output_tokens=1), 0, error)


class RecordingGeneration:
    """Is a generation that a test drives by hand through its `sink`."""

    def __init__(self, request: GenerateRequest, sink: Sink, used: Usage) -> None:
        self.request = request
        self.sink = sink
        self.num_cancels = 0
        self.was_silent = False
        self._used = used

    def cancel(self, *, is_silent: bool = False) -> Usage:
        self.num_cancels += 1
        self.was_silent = is_silent
        return self._used

    def pause(self) -> bool:
        return False

    def resume(self) -> None:
        pass


class RecordingBackend:
    """Is a backend that keeps what it was asked and generates what a test pushes."""

    def __init__(
        self,
        name: str,
        group: BackendGroup,
        *,
        used: Usage = Usage(num_input_tokens=7, num_output_tokens=2),  # noqa: B008 - frozen
        refusing: Exception | None = None,
        window_tokens: int = 100_000,
    ) -> None:
        self._info = BackendInfo(
            name=name,
            model=f"{name}-model",
            group=group,
            window_tokens=window_tokens,
            max_output_tokens=8_192,
            takes_predictions=True,
        )
        self._used = used
        self.refusing = refusing
        self.generations: list[RecordingGeneration] = []

    @property
    def info(self) -> BackendInfo:
        return self._info

    def start(self, request: GenerateRequest, sink: Sink) -> RecordingGeneration:
        if self.refusing is not None:
            raise self.refusing
        generation = RecordingGeneration(request, sink, self._used)
        self.generations.append(generation)
        return generation

    def stats(self) -> BackendStats:
        return BackendStats(
            info=self._info,
            healthy=True,
            num_running=0,
            num_waiting=0,
            max_num_seqs=8,
            kv_used_tokens=0,
            kv_capacity_tokens=1_000_000,
        )

    async def close(self) -> None:
        """Stops nothing: a test drives every generation."""

    @property
    def only(self) -> RecordingGeneration:
        """Returns the one generation that was started."""
        (generation,) = self.generations
        return generation


class AwaitedPools(RedisPools):
    """Puts `MemoryPools` behind the awaited methods of `RedisPools`; its clock stands still.

    Each call gives way to the loop before and after its effect, as a round trip does.
    """

    def __init__(self) -> None:  # no Redis: the parent's own would connect to one
        self.memory = MemoryPools()
        self.available = True
        self.granted: list[Reservation] = []
        self.adopted: list[str] = []
        self.settled: list[tuple[str, dict[BackendGroup, int]]] = []
        self.now_us = 1_000_000
        self.num_calls = 0

    async def reserve_first(
        self, tenant: Tenant, reservation_id: str, ranked_demands: Sequence[tuple[Demand, ...]]
    ) -> Grant:
        await self._round_trip()
        grant = self.memory.reserve_first(tenant, reservation_id, ranked_demands, self.now_us)
        if grant.reservation is not None and grant.reservation not in self.granted:
            self.granted.append(grant.reservation)  # a repeated call is granted the same one
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:  # released, as `FailoverPools` has it
            if grant.reservation is not None:
                await self.settle(grant.reservation, {})
            raise
        return grant

    def settle(
        self,
        reservation: Reservation,
        actual_tokens: Mapping[BackendGroup, int],
        nusd: int = 0,
        *,
        once: bool = False,
    ) -> Coroutine[Any, Any, bool]:
        """Settles as soon as it is called: calls of one connection are answered in order."""
        self.num_calls += 1
        if not self.available:
            return self._lost()
        known = self.memory.settle(reservation, actual_tokens, self.now_us, nusd)
        if known or actual_tokens:  # else it undoes what was never taken
            self.settled.append((reservation.id, dict(actual_tokens)))
        return self._answered(known)

    async def _answered(self, answer: bool) -> bool:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return answer

    async def _lost(self) -> bool:
        await asyncio.sleep(0)
        raise PoolsUnavailable("the test took them away")

    async def adopt(self, tenant: Tenant, reservation: Reservation) -> Grant:
        await self._round_trip()
        self.adopted.append(reservation.id)
        return self.memory.adopt(tenant, reservation, self.now_us)

    async def extend(self, reservation: Reservation) -> bool:
        await self._round_trip()
        known = self.memory.extend(reservation, self.now_us)
        await asyncio.sleep(0)
        return known

    async def renew(self, reservations: Iterable[Reservation]) -> Renewal:
        await self._round_trip()
        return self.memory.renew(reservations, self.now_us)

    async def ping(self) -> None:
        await self._round_trip()

    def on_broken(self, hear: Callable[[], None]) -> None:
        """Calls nobody: no connection ever ends."""

    async def close(self) -> None:
        """Closes nothing."""

    async def _round_trip(self) -> None:
        self.num_calls += 1
        await asyncio.sleep(0)
        if not self.available:
            raise PoolsUnavailable("the test took them away")

    def held(self, tenant: Tenant) -> int:
        """Counts the places in flight, over all groups."""
        return sum(
            balance.limit - balance.remaining
            for balance in self.memory.balances(tenant, self.now_us)
            if balance.unit == "concurrent"
        )


class DictStore(ResponseStore):
    """Keeps stored responses in a dict, with the same methods."""

    def __init__(self) -> None:  # no Redis: the parent's own needs a client
        self.records: dict[tuple[str, str], StoredResponse] = {}

    async def save(
        self, tenant_id: str, response_id: str, stored: StoredResponse, *, only_new: bool = False
    ) -> None:
        await asyncio.sleep(0)
        if not (only_new and (tenant_id, response_id) in self.records):
            self.records[tenant_id, response_id] = stored
        await asyncio.sleep(0)

    async def load(self, tenant_id: str, response_id: str) -> StoredResponse | None:
        await asyncio.sleep(0)
        return self.records.get((tenant_id, response_id))

    async def context(self, tenant_id: str, response_id: str) -> Context | None:
        last = await self.load(tenant_id, response_id)
        if last is None or not last.can_continue:
            return None
        chain = [self.records[tenant_id, ancestor] for ancestor in last.ancestors]
        items = tuple(item for record in (*chain, last) for item in (*record.input, *record.output))
        ids, sizes = (*last.ancestors, response_id), (last.num_prompt_tokens, last.num_input_tokens)
        return Context(items, last.backend, Lineage(ids, len(items), *sizes))
