"""Runs responses that outlive their request: `background: true` over HTTP.

A run lives in the process that took it; its stored object is what every process answers with. It
is written when it begins and when it ends. Events are kept while it runs and a while after, so that
a stream can be taken up again with `starting_after`, where it ran: those of a tenant's oldest runs
go first where its bytes in memory are too many, be they running; they are counted once a second.

Once a second a process says in Redis which runs it has, and hears which of them another process was
asked to cancel. A run whose process has fallen silent has failed: nobody polls it for ever.
This is an edge.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial

import msgspec
from litestar.response.base import ASGIResponse
from litestar.types import Receive

from gateway.core.gateway import Gateway
from gateway.core.job import Ended, Job
from gateway.http.streams import EventStream, Exchange, json_response, sse_event
from gateway.store.stored_response import StoredResponse
from gateway.task.own_input import parse_request
from gateway.transport.byte_budgets import Memory
from gateway.transport.outbox import Outbox, no_frames
from gateway.wire.errors import ProtocolError, too_many_bytes
from gateway.wire.events import CreateBody
from gateway.wire.response import ResponseStream
from gateway.wire.response_json import ResponseError, failed_json, queued_json
from router.classify.task import Tenant
from router.redis.cancelling import cancelled

logger = logging.getLogger("lanewise")

MAX_RUNS = 256  # per process, running or kept for their events
BEAT_INTERVAL_S = 1.0
CANCEL_WAIT_S = 5.0  # for another process to stop a run
CANCEL_LOOK_S = 0.1  # between two looks whether it has
_RUNNING = ("queued", "in_progress")
_GONE = ResponseError("server_error", "The gateway that ran it stopped. Send it again.")


class _Run:
    """Is a background response, with the events it has sent so far."""

    def __init__(self, tenant: Tenant, num_bytes: int) -> None:
        """Begins with a request of so many bytes."""
        self.tenant = tenant
        self.num_bytes = num_bytes  # of the request and the events
        self.memory: Memory | None = None  # as it is counted for its tenant
        self.events: list[bytes] = []
        self.keeps_events = True
        self.num_events = 0  # that were sent, kept or not
        self.readers: dict[Outbox, int] = {}  # and the first event that each is sent
        self.stream: ResponseStream
        self.exchange: Exchange

    def emit(self, _kind: str, /, *events: bytes) -> None:
        for data in events:
            if self.keeps_events:
                self.events.append(data)
                self.num_bytes += len(data)
            for reader, first in self.readers.items():
                if self.num_events >= first:
                    reader.send(sse_event(data))
            self.num_events += 1

    @property
    def running(self) -> bool:
        return not self.exchange.pump.done()


class BackgroundRuns:
    """Holds the background responses of this process."""

    def __init__(self, gw: Gateway, max_per_tenant: int) -> None:
        """Gives a tenant at most `max_per_tenant` of the places."""
        self._gw = gw
        self._max_per_tenant = max_per_tenant
        self._runs: OrderedDict[str, _Run] = OrderedDict()
        self._flusher = Outbox(gw.flush_timer)  # flushes the streams; has no frames of its own
        self._flushing = asyncio.create_task(self._flusher.run(no_frames))
        self._keeping = asyncio.create_task(self._keep())

    async def create(
        self, tenant: Tenant, body: CreateBody, num_bytes: int, receive: Receive
    ) -> ASGIResponse:
        """Begins a run of a request of so many bytes; returns its object, or its events.

        Raises `ProtocolError`: `store: false`, too many runs, or refused at once.
        """
        max_tokens = self._gw.max_context_tokens
        parsed = await parse_request(body, max_tokens=max_tokens, store=tenant.store)
        if not parsed.store:
            message = "'background' needs 'store': it is read back later. Leave 'store' out."
            if tenant.store == "never":
                message = "'background' stores what it is read back from, and this tenant may not."
            raise ProtocolError("invalid_value", message, param="background")
        self._make_room(tenant)
        run = self._runs[parsed.id] = _Run(tenant, num_bytes)
        run.stream = ResponseStream(parsed, run.emit, on_dirty=self._flusher.mark)
        run.exchange = Exchange(self._gw, tenant, parsed, run.stream)
        run.exchange.pump.add_done_callback(lambda _: self._ended(parsed.id))
        try:
            await run.exchange.until_open(receive)  # a client that leaves before it begins ends it
        except BaseException:
            self._forget(parsed.id)
            raise
        answer = queued_json(parsed, self._gw.wall_s())
        if run.running:
            try:
                await self._store_begun(run.exchange.job, run.stream.body or answer)
            except BaseException as error:
                if isinstance(error, ProtocolError):
                    run.exchange.job.turned_away = error
                run.keeps_events = False  # nobody will know its id
                run.exchange.pump.cancel()
                raise
        if body.stream:
            return self._follow(tenant, run, 0)
        return json_response(answer, headers=run.exchange.headers())

    async def _store_begun(self, job: Job, body: bytes) -> None:
        """Stores a run that has begun; its input can be listed, and outlives its gateway."""
        items = job.request.items if job.request is not None else ()
        begun = StoredResponse(
            response=body,
            ancestors=job.lineage.ids,
            input=items[job.lineage.num_items :],
            output=(),
            num_own=len(job.parsed.input.items),
            can_continue=False,
        )
        await self._gw.store.save(job.tenant.id, job.parsed.id, begun, only_new=True)
        await self._gw.store.beat(job.tenant.id, [job.parsed.id])

    def _make_room(self, tenant: Tenant) -> None:
        """Drops the events of an ended run if there is no place, the tenant's own above its share.

        Raises `ProtocolError` if only running ones are left.
        """
        own = {key: run for key, run in self._runs.items() if run.tenant.id == tenant.id}
        if len(own) >= self._max_per_tenant:
            if not self._drop_ended(own):
                raise ProtocolError(
                    "rate_limit_exceeded",
                    f"{len(own)} background responses of this tenant are running, which is its "
                    "share of this gateway's places. Wait for one to end, or cancel one. Please "
                    "try again in 10s.",
                    retry_after_us=10_000_000,
                )
        elif len(self._runs) >= MAX_RUNS and not self._drop_ended(self._runs):
            raise ProtocolError(
                "server_is_overloaded",
                f"{MAX_RUNS} background responses are running. Try again in 10s.",
                retry_after_us=10_000_000,
            )

    def _drop_ended(self, runs: Mapping[str, _Run]) -> bool:
        """Drops the oldest of these runs that has ended; returns false if all are running."""
        ended = next((key for key, run in runs.items() if not run.running), None)
        if ended is not None:
            self._forget(ended)
        return ended is not None

    def _remember(self, response_id: str) -> None:
        """Counts what is kept of a run; the tenant's oldest goes where that is much."""
        run = self._runs.get(response_id)
        if run is None or not run.keeps_events:
            return
        if run.memory is not None:
            self._gw.budgets.memory.remove(run.memory)
        run.memory = Memory(run.tenant.id, run.num_bytes, partial(self._drop, response_id))
        self._gw.budgets.memory.add(run.memory)

    def _ended(self, response_id: str) -> None:
        run = self._runs.get(response_id)
        if run is not None and not run.keeps_events:
            self._forget(response_id)
        self._remember(response_id)

    def _drop(self, response_id: str) -> None:
        """Drops what is kept of a run; one that runs goes on without."""
        run = self._runs.get(response_id)
        if run is not None and run.running:
            run.keeps_events = False
            run.events.clear()
        else:
            self._forget(response_id)

    def _forget(self, response_id: str) -> None:
        """Drops a run, if it is still kept."""
        run = self._runs.pop(response_id, None)
        if run is not None and run.memory is not None:
            self._gw.budgets.memory.remove(run.memory)

    def _run_of(self, tenant: Tenant, response_id: str) -> _Run | None:
        run = self._runs.get(response_id)
        return run if run is not None and run.tenant.id == tenant.id else None

    async def read(self, tenant: Tenant, response_id: str) -> bytes | None:
        """Reads the object of any stored response, as it stands; None if there is none.

        A run whose process is gone has failed.
        """
        run = self._run_of(tenant, response_id)
        if run is not None and run.running:
            return run.stream.body
        stored = await self._gw.store.load(tenant.id, response_id)
        if stored is None:
            return None
        store = self._gw.store
        if _is_running(stored.response) and not await store.runs(tenant.id, response_id):
            # It may have ended between the two questions.
            stored = await store.load(tenant.id, response_id) or stored
            if _is_running(stored.response):
                return failed_json(stored.response, _GONE)
        return stored.response

    async def follow(self, tenant: Tenant, response_id: str, starting_after: int) -> ASGIResponse:
        """Sends the events of a run after that number, then those to come.

        Raises `ProtocolError`: This process has no such run, or its response was deleted; or what
        the tenant's readers have not read is too much.
        """
        run = self._run_of(tenant, response_id)
        # Another process may have deleted it.
        if run is not None and not run.running and await self.read(tenant, response_id) is None:
            self._forget(response_id)
            run = None
        if run is None or not run.keeps_events:
            message = (
                f"No background response '{response_id[:80]}' can be streamed here: its events are "
                "kept where it ran, and a while only. Retrieve it without 'stream'."
            )
            raise ProtocolError("response_not_found", message, param="response_id")
        first = max(0, starting_after + 1)
        # A reader asks for megabytes in a hundred bytes, and may take none of them.
        num_bytes = sum(map(len, run.events[first:]))
        in_flight = self._gw.budgets.in_flight
        if not in_flight.take(tenant.id, num_bytes):
            raise too_many_bytes(in_flight.max_tenant_bytes)
        return self._follow(tenant, run, first, num_bytes)

    def _follow(
        self, tenant: Tenant, run: _Run, first: int, num_counted_bytes: int = 0
    ) -> ASGIResponse:
        """Follows a run for a reader whose bytes are counted as in flight, if they are."""
        outbox = Outbox(self._gw.flush_timer)
        run.stream.flush()
        for data in run.events[first:]:
            outbox.send(sse_event(data))
        run.readers[outbox] = first  # which it may not have reached yet
        watcher = asyncio.create_task(_until(run, outbox))

        def stop(_: ProtocolError) -> None:  # the run ends with its own key, a reader with his
            watcher.cancel()

        release = self._gw.key_sessions.add(tenant, stop)
        watcher.add_done_callback(lambda _: release())
        give_back = partial(self._gw.budgets.in_flight.give, tenant.id, num_counted_bytes)
        return EventStream(self._gw, outbox, watcher, run.exchange.headers(), on_end=give_back)

    async def cancel(self, tenant: Tenant, response_id: str) -> bytes | None:
        """Stops a run, wherever it is; returns its object, or None if this tenant has no such run.

        One that has ended is left as it is. A sub-task's id stops that alone.
        """
        run = self._run_of(tenant, response_id)
        if run is not None and run.running:
            run.exchange.job.stop("cancelled")
            await asyncio.shield(run.exchange.pump)
            return run.stream.body
        whole_id, _, number = response_id.rpartition("-d")
        run = self._run_of(tenant, whole_id)
        if run is not None and number.isdecimal():
            job = run.exchange.job
            if job.redirect is None or int(number[:4]) not in job.delegations:
                return None
            job.redirect(int(number[:4]), None)
            return run.stream.body
        return await self._cancel_elsewhere(tenant, response_id)

    async def delete(self, tenant: Tenant, response_id: str) -> bool:
        """Deletes any stored response, and stops it if it runs; says whether there was one."""
        await self.cancel(tenant, response_id)
        is_deleted = await self._gw.store.delete(tenant.id, response_id)
        if self._run_of(tenant, response_id) is not None:
            self._forget(response_id)
        return is_deleted

    async def _cancel_elsewhere(self, tenant: Tenant, response_id: str) -> bytes | None:
        body = await self.read(tenant, response_id)
        if body is None or not msgspec.json.decode(body, type=_Stored).background:
            return None
        if not _is_running(body):
            return body
        await self._gw.store.ask_cancel(tenant.id, response_id)
        for _ in range(round(CANCEL_WAIT_S / CANCEL_LOOK_S)):
            await asyncio.sleep(CANCEL_LOOK_S)
            body = await self.read(tenant, response_id)
            if body is None or not _is_running(body):
                break
        return body

    async def erase(self, tenant_id: str) -> None:
        """Stops a tenant's runs here, and drops their events."""
        own = {key: run for key, run in self._runs.items() if run.tenant.id == tenant_id}
        pumps = [run.exchange.pump for run in own.values()]
        for run in own.values():
            run.exchange.job.stop("cancelled")
        if pumps:
            await asyncio.wait(pumps)
        for key in own:
            self._forget(key)

    async def close(self) -> None:
        """Stops every run; each ends and is settled."""
        self._flusher.close()
        await cancelled(self._keeping)
        pumps = [run.exchange.pump for run in self._runs.values() if run.running]
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, self._flushing, return_exceptions=True)

    async def _keep(self) -> None:
        """Says which runs are here, and stops those that were asked to stop; for ever."""
        while True:
            await asyncio.sleep(BEAT_INTERVAL_S)
            by_tenant: dict[str, list[str]] = {}
            for response_id, run in list(self._runs.items()):
                if run.running:
                    by_tenant.setdefault(run.tenant.id, []).append(response_id)
                    self._remember(response_id)
            for tenant_id, response_ids in by_tenant.items():
                try:
                    asked = await self._gw.store.beat(tenant_id, response_ids)
                except ProtocolError as error:
                    logger.warning("background responses could not be kept: %s", error)
                    continue
                for run in filter(None, map(self._runs.get, asked)):
                    run.exchange.job.stop("cancelled")


class _Stored(msgspec.Struct):
    """Holds the fields that matter of a stored object."""

    status: str
    background: bool = False


def _is_running(body: bytes) -> bool:
    return msgspec.json.decode(body, type=_Stored).status in _RUNNING


async def _until(run: _Run, outbox: Outbox) -> Ended | None:
    """Feeds a reader until the run ends; cancelling takes the reader away, not the run."""
    pump = run.exchange.pump
    try:
        await asyncio.wait((pump,))
        return None if pump.cancelled() else pump.result()
    finally:
        run.readers.pop(outbox, None)
