"""Keeps lost responses going for their grace, and gives them to clients that come back.

A response that runs goes on until its grace is over or has cost too much; one that ended is kept
for longer, since a client comes back only once its running tools have ended. Both are bounded: in
number, and what has ended by its tenant's bytes in memory as well. This is an edge.
"""

import asyncio
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import Literal, Protocol

from backends.contract import ContextItem, Item
from gateway.config.sections import ServerConfig
from gateway.core.gateway import Gateway
from gateway.core.job import Ended, Job, Parent, Pause
from gateway.rejoin.held_turns import HeldTurns
from gateway.rejoin.lost_response import LostResponse
from gateway.rejoin.matching import (
    ClientHolds,
    Returning,
    anchor_of,
    has_calls,
    held_by,
    known_digests,
    may_rejoin,
    num_items_held,
    returning_by,
    settings_of,
    turn_of,
)
from gateway.rejoin.recent_responses import RecentResponses, Remembered
from gateway.rejoin.unconfirmed import Unconfirmed
from gateway.task.context import give_back_opened, load_task
from gateway.transport.byte_budgets import Memory
from gateway.wire.errors import ProtocolError
from gateway.wire.items import BYTES_PER_TOKEN
from gateway.wire.response import ResponseStream
from gateway.wire.routing import RoutedRejoin
from router.classify.task import Tenant

MAX_LOST = 1_024  # responses in a process
MAX_LOST_OF_KEY = 64
MAX_UNCONFIRMED = 1_024  # ended responses whose last event may still be under way
MAX_MEMORIES_OF_KEY = 16  # of lost connections
TICK_S = 0.25  # between two looks at what one costs in its grace

Outcome = Literal["joined", "superseded", "gone"]
Key = tuple[str, str]  # of a tenant, and of one of its keys


class Others(Protocol):
    """Stands for the other processes, which keep lost responses, too."""

    def may_have(self, key: Key, digests: frozenset[int] | None) -> bool: ...

    def announce(self, lost: LostResponse, life_s: float) -> None: ...

    def withdraw(self, lost: LostResponse) -> None: ...

    def take_back(self, key: Key, response_id: str) -> None: ...

    def announce_memory(self, ids: tuple[str, ...], life_s: float) -> None: ...

    async def recall(self, key: Key, response_id: str) -> Parent | None: ...

    async def find_named(
        self, tenant: Tenant, response_id: str, starting_after: int
    ) -> LostResponse | None: ...

    async def find(
        self, job: Job, items: tuple[ContextItem, ...] | None
    ) -> LostResponse | None: ...


class Rejoins:
    """Keeps the lost responses of a process, and what lost connections remembered."""

    others: Others | None = None  # once there is a way to them
    num_elsewhere = 0  # keys of which others keep responses, and responses that they remember

    def __init__(self, gw: Gateway, config: ServerConfig) -> None:
        self._gw = gw
        self._config = config
        self._by_key: dict[Key, list[LostResponse]] = {}
        self._order: OrderedDict[LostResponse, None] = OrderedDict()
        self._unconfirmed: deque[Unconfirmed] = deque()
        self._memories: dict[Key, deque[RecentResponses]] = {}
        self._connections: dict[Key, dict[Callable[[str], None], None]] = {}
        self.turns = HeldTurns()

    @property
    def is_empty(self) -> bool:
        """Says whether nothing was lost that can be come back to."""
        return not (self._by_key or self.num_elsewhere)

    def grace_s(self, tenant: Tenant) -> float:
        """Returns how long a tenant's responses go on, by the policy or else the configuration."""
        own = self._gw.state.policy.for_tenant(tenant.id).rejoin_grace_s
        return self._config.rejoin_grace_s if own is None else own

    # Loss

    def keep(
        self,
        job: Job,
        writer: ResponseStream,
        num_bytes: int,
        pump: "asyncio.Task[Ended | None] | None",
        ended: Ended | None = None,
    ) -> bool:
        """Keeps a response whose connection was lost; returns false if it is to stop at once.

        `pump` runs it and returns its end. `num_bytes` of its request are counted as in flight,
        and are given back once it has ended.
        """
        if job.pause is not None and job.pause.give_back is not None:
            job.pause.give_back()
            return True
        grace_s = self.grace_s(job.tenant)
        is_new = job.request is None  # it has not begun: the client's next request will
        if not grace_s or is_new or self._gw.state.draining or not may_rejoin(job.parsed):
            return False
        if pump is None and not self._is_kept(ended):
            return False
        if job.pause is None:
            job.pause = Pause()
        lost = LostResponse(job, writer, num_bytes, self._gw.clock_us(), pump, ended)
        if not self._add(lost):
            return False
        writer.leave()
        writer.resume()
        if pump is None:
            self._keep_ended(lost)
            return True
        self._begin_grace(lost, grace_s)
        lost.release_key = self._gw.key_sessions.add(job.tenant, lambda _: self._drop(lost))
        pump.add_done_callback(partial(self._ended, lost))
        return True

    def _begin_grace(self, lost: LostResponse, grace_s: float) -> None:
        assert lost.job.pause is not None
        lost.job.refuse = lambda _: None
        lost.job.pause.cost_before = self._cost(lost.job)
        lost.until_us = lost.lost_us + round(grace_s * 1e6)
        self._tick(lost)
        if self.others is not None:
            self.others.announce(lost, grace_s)

    def keep_again(self, lost: LostResponse, num_bytes: int = 0) -> bool:
        """Keeps a response that was lost again; `num_bytes` more count as in flight for it."""
        if lost.is_elsewhere:
            self._gw.budgets.in_flight.give(lost.job.tenant.id, num_bytes)
            lost.lose()
            return True
        grace_s = self.grace_s(lost.job.tenant)
        may_stay = lost.is_running or self._is_kept(lost.ended)
        if not grace_s or not may_stay or not self._add(lost):
            return False
        lost.follower = None
        lost.num_bytes += num_bytes
        lost.lost_us = self._gw.clock_us()
        lost.writer.leave()
        lost.writer.resume()
        if lost.is_running:
            self._begin_grace(lost, grace_s)
        else:
            self._gw.budgets.in_flight.give(lost.job.tenant.id, num_bytes)
            self._keep_ended(lost)
        return True

    def _add(self, lost: LostResponse) -> bool:
        own = self._by_key.get(lost.key, [])
        if len(own) >= MAX_LOST_OF_KEY or len(self._order) >= MAX_LOST:
            group = own if len(own) >= MAX_LOST_OF_KEY else list(self._order)
            oldest = next((each for each in group if not each.is_running), None)
            if oldest is None:
                return False
            self._forget(oldest)
        assert lost.job.request is not None  # only then it is kept
        lost.anchor = anchor_of(lost.job.request.items)
        self._by_key.setdefault(lost.key, []).append(lost)
        self._order[lost] = None
        self._count()
        return True

    def _tick(self, lost: LostResponse) -> None:
        """Looks at what a running response has cost, and ends it where its grace is over."""
        pause = lost.job.pause
        assert pause is not None
        pause.note_cost(self._cost(lost.job))
        is_late = self._gw.clock_us() >= lost.until_us
        if is_late or pause.grace_cost > self._config.rejoin_grace_tokens:
            self._drop(lost, "expired")
            return
        lost.timer = asyncio.get_running_loop().call_later(TICK_S, self._tick, lost)

    def _cost(self, job: Job) -> int:
        in_use = self._gw.in_use.get(job.parsed.id)
        return 0 if in_use is None else sum(in_use.used().values())

    def _ended(self, lost: LostResponse, pump: "asyncio.Task[Ended | None]") -> None:
        """Notes the end of a running response, whether or not its client has come back."""
        if not pump.cancelled() and pump.exception() is None:
            lost.ended = pump.result()
        if lost.release_key is not None:
            lost.release_key()
        if lost.job.pause is not None:
            grace_cost = lost.job.pause.grace_cost
            self._gw.metrics.counts["lanewise_rejoin_grace_tokens_total"][()].inc(grace_cost)
        self._gw.budgets.in_flight.give(lost.job.tenant.id, lost.num_bytes)
        if lost not in self._order:
            return  # dropped, or its client has come back
        if self._is_kept(lost.ended):
            self._keep_ended(lost)
        else:
            self._forget(lost)

    def _is_kept(self, ended: Ended | None) -> bool:
        """Says whether an answer is worth coming back to: a failed one is better asked again."""
        return ended is not None and ended.ending.is_final and self._config.rejoin_keep_s > 0

    def _keep_ended(self, lost: LostResponse) -> None:
        if lost.timer is not None:
            lost.timer.cancel()
        assert lost.ended is not None
        num_tokens = lost.ended.ending.usage.num_output_tokens
        num_bytes = lost.num_bytes + len(lost.writer.body) + num_tokens * BYTES_PER_TOKEN
        lost.memory = Memory(lost.job.tenant.id, num_bytes, partial(self._forget, lost))
        loop = asyncio.get_running_loop()
        lost.timer = loop.call_later(self._config.rejoin_keep_s, self._forget, lost)
        self._count()
        self._gw.budgets.memory.add(lost.memory)
        if self.others is not None:
            self.others.announce(lost, self._config.rejoin_keep_s)

    def _drop(self, lost: LostResponse, result: str = "") -> None:
        """Stops a response that nobody comes back to any more."""
        if lost.follower is None:
            self._forget(lost)
            if result:
                self._gw.metrics.counts["lanewise_rejoins_total"][(result,)].inc()
        lost.stop()

    def _forget(self, lost: LostResponse) -> None:
        """Takes a response out: a client came back to it, or none may any more."""
        if lost not in self._order:
            return
        del self._order[lost]
        own = self._by_key[lost.key]
        own.remove(lost)
        if not own:
            del self._by_key[lost.key]
        if lost.timer is not None:
            lost.timer.cancel()
            lost.timer = None
        if lost.memory is not None:
            self._gw.budgets.memory.remove(lost.memory)
            lost.memory = None
        self._count()
        if self.others is not None:
            self.others.withdraw(lost)

    def _count(self) -> None:
        num_running = sum(each.is_running for each in self._order)
        lost = self._gw.metrics.counts["lanewise_lost_responses"]
        lost[("running",)].set(num_running)
        lost[("ended",)].set(len(self._order) - num_running)

    # Return

    async def find(self, job: Job) -> LostResponse | None:
        """Returns the response that a job's client comes back to, if any.

        The job gets what it continues, where another process remembers that. The response is the
        caller's then: it joins its writer, and follows it.
        """
        key, turn, others = (job.tenant.id, job.tenant.key_id), turn_of(job.parsed), self.others
        parent_id = job.parsed.body.previous_response_id
        if parent_id is not None and job.parent is None:
            job.bring(await self.recalled(job.tenant, parent_id))
        if not may_rejoin(job.parsed):
            return None
        digests = known_digests(job.parsed, job.parent)
        is_elsewhere = others is not None and others.may_have(key, digests)
        is_here = any(
            (digests is None or each.anchor in digests) and each.turn == turn
            for each in self._by_key.get(key, ())
        )
        if not (is_elsewhere or is_here or self.turns.get(job) is not None):
            return None
        items: tuple[ContextItem, ...] | None = None
        try:
            items = (await load_task(self._gw, job)).request.items
        except ProtocolError:
            pass  # the task itself will say so
        finally:
            give_back_opened(self._gw, job)
        if items is not None:
            asked = returning_by(job.parsed, items)
            await self._free(job, asked)
            for lost in tuple(self._by_key.get(key, ())):
                if (held := _held(lost, asked)) is not None:
                    return lost if self._take(lost, asked, held) else None
        return await others.find(job, items) if others is not None and is_elsewhere else None

    async def _free(self, job: Job, asked: Returning) -> None:
        """Takes the same response of the same turn from a connection that answers no ping."""
        running = self.turns.get(job)
        if running is None or running.job.request is None:
            return
        writer = running.holder.writer_of(running.job)
        if writer is None or _held(LostResponse(running.job, writer, 0, 0), asked) is None:
            return
        if await running.holder.is_silent():
            running.holder.give(running.job.parsed.id)

    async def find_named(
        self, tenant: Tenant, response_id: str, starting_after: int
    ) -> LostResponse | None:
        """Returns a response by its name; its client has the events up to that number.

        It is the caller's then, as with `find`.
        """
        lost = self.claimed_by_name((tenant.id, tenant.key_id), response_id, starting_after)
        if lost is not None or self.others is None:
            return lost
        return await self.others.find_named(tenant, response_id, starting_after)

    def claimed_by_name(
        self, key: Key, response_id: str, starting_after: int
    ) -> LostResponse | None:
        """Gives a response of this process to whoever has its name and its key."""
        for give in tuple(self._connections.get(key, ())):
            give(response_id)
        if self.others is not None:
            self.others.take_back(key, response_id)
        own = self._by_key.get(key, ())
        lost = next((each for each in own if each.job.parsed.id == response_id), None)
        if lost is not None:
            num_items = bisect_right(lost.writer.done_numbers, starting_after)
            self._join(lost, num_items)
        return lost

    def watch(self, tenant: Tenant, give: Callable[[str], None]) -> Callable[[], None]:
        """Notes a connection, which gives a response that its client asks for on another.

        Returns its removal.
        """
        key = (tenant.id, tenant.key_id)
        gives = self._connections.setdefault(key, {})
        gives[give] = None

        def remove() -> None:
            gives.pop(give, None)
            if not gives and self._connections.get(key) is gives:
                del self._connections[key]

        return remove

    def claimed(
        self, key: Key, response_id: str, tail: tuple[ContextItem, ...], asides: frozenset[str]
    ) -> tuple[Outcome, LostResponse | None]:
        """Gives a response to another process, whose client holds `tail` besides its context."""
        own = self._by_key.get(key, ())
        lost = next((each for each in own if each.job.parsed.id == response_id), None)
        if lost is None:
            return "gone", None
        context, output, num_before = _told(lost)
        held = held_by(context + tail, context, output)
        if held is None:
            return "gone", None
        held = ClientHolds(num_before + held.num_output, held.has_outputs)
        asked = Returning(b"", lost.turn, context + tail, asides)
        return ("joined", lost) if self._take(lost, asked, held) else ("superseded", None)

    def _take(self, lost: LostResponse, asked: Returning, held: ClientHolds) -> bool:
        """Joins a client; false if its request is the turn's next model call."""
        rest = lost.writer.output[held.num_output :]
        if held.has_outputs and not (has_calls(rest) or lost.writer.calls):
            self._drop(lost, "superseded")  # the model is to see these outputs
            return False
        if held.has_outputs:
            lost.continue_from(asked, held.num_output)
        self._join(lost, num_items_held(lost.writer.done_items, held, asked.asides))
        return True

    def _join(self, lost: LostResponse, num_items: int) -> None:
        pause = lost.job.pause
        assert pause is not None
        self._forget(lost)
        lost.follower = object()
        if lost.is_running:
            pause.note_cost(self._cost(lost.job))
            pause.cost_before = None
        pause.num_joins += 1
        away_ms = (self._gw.clock_us() - lost.lost_us) // 1_000
        pause.rejoined = RoutedRejoin(pause.num_joins, num_items, away_ms)
        self._gw.metrics.counts["lanewise_rejoins_total"][("joined",)].inc()

    # What is not lost yet, or not lost any more

    def note_ended(self, unconfirmed: Unconfirmed) -> None:
        """Takes the latest ended response of a stream, to be forgotten in time."""
        unconfirmed.ended_us = self._gw.clock_us()
        self._unconfirmed.append(unconfirmed)
        unconfirmed.count(self._gw.budgets.memory)
        if len(self._unconfirmed) > MAX_UNCONFIRMED:
            self._unconfirmed.popleft().clear()

    async def sweep(self) -> None:
        """Forgets ended responses whose clients have had time to receive them."""
        while self._unconfirmed and self._is_late(self._unconfirmed[0]):
            self._unconfirmed.popleft().clear()

    def _is_late(self, last: Unconfirmed) -> bool:
        """Says whether an ended response was cleared, or its tenant's grace is over."""
        if last.job is None:
            return True
        return self._gw.clock_us() - last.ended_us > self.grace_s(last.job.tenant) * 1e6

    def keep_memory(self, tenant: Tenant, recent: RecentResponses) -> None:
        """Keeps what a lost connection remembered, for its key."""
        grace_s, key = self.grace_s(tenant), (tenant.id, tenant.key_id)
        if not grace_s:
            recent.clear()
            return
        own = self._memories.setdefault(key, deque())
        own.append(recent)
        if len(own) > MAX_MEMORIES_OF_KEY:
            own.popleft().clear()
        asyncio.get_running_loop().call_later(grace_s, self._forget_memory, key, recent)
        if self.others is not None and recent.ids:
            self.others.announce_memory(recent.ids, grace_s)

    def _forget_memory(self, key: Key, recent: RecentResponses) -> None:
        own = self._memories.get(key)
        if own is None or recent not in own:
            return
        own.remove(recent)
        recent.clear()
        if not own:
            del self._memories[key]

    def remembered(self, key: Key, response_id: str) -> Remembered | None:
        """Returns a response that a lost connection of this key remembered."""
        for recent in self._memories.get(key, ()):
            if (found := recent.to_continue(response_id)) is not None:
                return found
        return None

    async def recalled(self, tenant: Tenant, response_id: str) -> Parent | None:
        """Returns such a response, also if another process has it."""
        key = (tenant.id, tenant.key_id)
        found = self.remembered(key, response_id)
        if found is not None or self.others is None:
            return found
        return await self.others.recall(key, response_id)

    async def close(self) -> None:
        """Stops every response, and forgets all."""
        pumps = [lost.pump for lost in self._order if lost.pump is not None]
        for lost in tuple(self._order):
            self._drop(lost)
        await asyncio.gather(*pumps, return_exceptions=True)
        for key, own in list(self._memories.items()):
            for recent in tuple(own):
                self._forget_memory(key, recent)


def _held(lost: LostResponse, asked: Returning) -> ClientHolds | None:
    request = lost.job.request
    assert request is not None  # only then it was kept
    if lost.turn != asked.turn:
        return None
    if lost.settings is None:
        lost.settings = settings_of(lost.job.parsed)
    if lost.settings != asked.settings:
        return None
    context, output, num_before = _told(lost)
    if num_before:  # its client came back with more before
        held = held_by(asked.items, context, output)
        if held is not None:
            return ClientHolds(num_before + held.num_output, held.has_outputs)
    return held_by(asked.items, request.items, lost.writer.output)


def _told(lost: LostResponse) -> tuple[tuple[ContextItem, ...], tuple[Item, ...], int]:
    """Returns the context as its client has it, the output behind, and how much comes before."""
    pause, request = lost.job.pause, lost.job.request
    assert request is not None
    if pause is None or pause.context is None:
        return request.items, lost.writer.output, 0
    return pause.context, lost.writer.output[pause.num_held :], pause.num_held
