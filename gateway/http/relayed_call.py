"""Passes one request on: says what it reserves, what comes back, and what it costs.

This is an edge.
"""

import asyncio
from typing import Any

import msgspec

from backends.contract import BackendError, Usage
from backends.net.sse import EventParser, EventTooLongError
from backends.relay.addresses import check_relayed, names_media
from backends.relay.options import RelayedPath
from backends.relay.relay import Relay
from backends.upstream.answer.errors import Failure, error_in, event_failure
from backends.upstream.answer.reported_usage import SPARE_INPUT_TOKENS, Reported
from gateway.core.budget_answers import budget_headers
from gateway.core.gateway import Gateway
from gateway.core.job import Ended
from gateway.core.ratelimit import rate_limit_headers
from gateway.core.spending import note_budgets
from gateway.run.settlement import start_settlement
from gateway.store.ledger_entry import LedgerEntry, line_of
from gateway.task.admit import refused
from gateway.transport.ids import new_id
from gateway.transport.outbox import Outbox
from gateway.wire.errors import ProtocolError
from gateway.wire.events import decode
from gateway.wire.response import Ending
from router.classify.durations import LEAST_WAIT_US
from router.classify.task import Tenant
from router.decide.admission import refusal_of
from router.decide.decision import Refusal
from router.money.cost import EVEN, cost_tokens
from router.money.prices import cost_nusd
from router.pools.pools import Demand, Grant, Reservation
from router.pools.redis_pools import PoolsUnavailable

BYTES_PER_TOKEN = 4  # of English text, to reserve by; what is charged is reported
DEFAULT_MAX_TOKENS = 16  # of a completion that names no limit (OpenAI)

_NULL = msgspec.Raw(b"null")


class Asked(msgspec.Struct, frozen=True):
    """Holds what of a request matters here; all else is the server's."""

    model: str
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    max_tokens: int | None = None
    n: int | None = None
    best_of: int | None = None
    prompt: Any = None

    def num_output_tokens(self, path: RelayedPath) -> int:
        """Returns the most that all completions come to; embeddings have none.

        A request without a prompt is one: servers begin a new text then.
        """
        if path == "embeddings":
            return 0
        prompts = self.prompt if isinstance(self.prompt, list) else [self.prompt]
        num_prompts = 1 if all(isinstance(each, int) for each in prompts) else len(prompts)
        limit = DEFAULT_MAX_TOKENS if self.max_tokens is None else max(0, self.max_tokens)
        return limit * max(1, self.n or 1, self.best_of or 1) * num_prompts


class _Piece(msgspec.Struct, frozen=True):
    choices: msgspec.Raw = _NULL


class RelayedCall:
    """Is one request on its way to its server: what it reserved, what came back, what it cost."""

    def __init__(
        self,
        gw: Gateway,
        tenant: Tenant,
        relay: Relay,
        asked: Asked,
        content: bytes,
        outbox: Outbox | None,
    ) -> None:
        """Streams to an outbox; raises `ProtocolError` if the request is not valid."""
        self._gw = gw
        self._tenant = tenant
        self._relay = relay
        self._asked = asked
        self._arrived_us = gw.clock_us()
        self._num_bytes = len(content)
        options = relay.options
        self._max_output_tokens = asked.num_output_tokens(options.path)
        if self._max_output_tokens > options.max_output_tokens:
            message = (
                f"'max_tokens' of all completions together come to {self._max_output_tokens}: "
                f"expected at most {options.max_output_tokens}."
            )
            raise ProtocolError("invalid_value", message, param="max_tokens")
        self._body = self._forwarded(content)
        self._estimate = Usage(
            num_input_tokens=1 + self._num_bytes // BYTES_PER_TOKEN,
            num_output_tokens=self._max_output_tokens,
            exact=False,
        )
        self._usage = self._estimate
        self._grant: Grant | None = None
        self._kept: list[bytes] = []
        self._parser = EventParser()
        self._outbox = outbox
        self._wants_usage = bool((asked.stream_options or {}).get("include_usage"))
        self._has_begun = False  # events have been passed on
        self.opened = asyncio.Event()  # so they have, or it is over
        self.body = b""  # of a whole answer

    def _forwarded(self, content: bytes) -> bytes:
        body: dict[str, Any] = decode(content, dict[str, msgspec.Raw])
        if names_media(content):  # as read here, since a server may read a repeated name otherwise
            body = decode(content, dict[str, Any])
            try:
                check_relayed(body, self._relay.name, self._relay.options)
            except BackendError as error:
                raise _told(error) from error
        body["model"] = self._relay.upstream_model
        if self._asked.stream:  # its last event then says what it cost
            body["stream_options"] = (self._asked.stream_options or {}) | {"include_usage": True}
        return msgspec.json.encode(body)

    async def reserve(self) -> None:
        """Takes one request and the expected tokens from the tenant's pools.

        Raises `ProtocolError` if they are not the tenant's to use, too empty, or away.
        """
        gw, tenant, group = self._gw, self._tenant, self._relay.options.group
        if group not in tenant.limits:
            message = f"This key may not use the {group} engines, which this model counts among."
            raise ProtocolError("insufficient_permissions", message, param="model")
        most = self._nusd(self._estimate) if tenant.accounts else 0
        demand = Demand(group, self._cost(self._estimate), most)
        try:
            grant = await gw.pools.reserve_first(tenant, f"relay_{new_id()}", ((demand,),))
        except PoolsUnavailable as error:
            message = f"The rate-limit pools do not answer: {error}. Try again in 1s."
            raise ProtocolError(
                "server_is_overloaded", message, retry_after_us=LEAST_WAIT_US
            ) from error
        self._grant = grant
        if grant.accounts:
            note_budgets(gw, tenant, grant)
        limited_by = grant.limited_by
        if grant.reservation is None:
            assert limited_by is not None, "a refused grant names its pool"
            gw.metrics.ratelimit(
                group=group,
                tier=tenant.tier,
                result="reject",
                mode=grant.mode,
                limited_by=limited_by[1],
            )
            waits = msgspec.structs.replace(grant, wait_us=max(LEAST_WAIT_US, grant.wait_us))
            refusal = refusal_of(waits, ((demand,),))
            raise refused(refusal, self.headers(refusal))
        gw.metrics.ratelimit(group=group, tier=tenant.tier, result="admit", mode=grant.mode)
        gw.metrics.reserved((demand,))

    def headers(self, refusal: Refusal | None = None) -> dict[str, str]:
        """Returns what is left in the pools, and when to come again after a refusal."""
        assert self._grant is not None
        group = self._relay.options.group
        headers = rate_limit_headers(self._grant.balances, (group,), self._grant.mode, refusal)
        return headers | budget_headers(self._grant.accounts)

    async def run(self) -> Ended | None:
        """Asks the server, and settles however that ends.

        Returns nothing if it did not come to its own end. Raises `ProtocolError` if it failed; if
        events were passed on by then, it is one more event.
        """
        gw, pump = self._gw, asyncio.current_task()
        assert self._grant is not None
        assert self._grant.reservation is not None
        assert pump is not None
        gw.state.num_tasks += 1

        key_errors: list[ProtocolError] = []

        def stop(error: ProtocolError) -> None:
            key_errors.append(error)
            pump.cancel()

        release = gw.key_sessions.add(self._tenant, stop)
        outcome = "error"
        try:
            try:
                await self._ask()
            except asyncio.CancelledError:
                if not key_errors:
                    raise
                pump.uncancel()
                raise key_errors[0] from None
            outcome = "ok"
        except ProtocolError as error:
            if not self._has_begun:
                raise
            self._emit(msgspec.json.encode(error.body()))
            return None
        finally:
            release()
            gw.state.num_tasks -= 1
            self._settle(self._grant.reservation, outcome)
        ending = Ending(status="completed", usage=self._usage)
        return Ended(ending=ending, items=(), backend=self._relay.name)

    async def _ask(self) -> None:
        try:
            take = self._keep if self._outbox is None else self._pass_on
            await self._relay.post(self._body, take)
            self._end()
        except Failure as failure:
            if failure.unused and not self._has_begun:
                self._usage = Usage()
            raise _told(failure.hiding(self._relay.hidden).error) from failure
        except EventTooLongError as error:
            raise ProtocolError("server_error", f"The upstream failed: {error}.") from error

    def _end(self) -> None:
        """Takes what came as a whole, which some servers send in place of events, too."""
        if self._outbox is None:
            self.body = self._own(b"".join(self._kept))
        elif not self._has_begun:
            if not self._parser.whole:
                raise ProtocolError("server_error", "The upstream failed: it sent no event.")
            self._emit(self._own(self._parser.whole))
            self._emit(b"[DONE]")

    def _settle(self, reservation: Reservation, outcome: str) -> None:
        gw, tenant, options = self._gw, self._tenant, self._relay.options
        cost, nusd = self._cost(self._usage), self._nusd(self._usage)
        start_settlement(gw, reservation, {options.group: cost}, nusd)
        line = line_of(
            self._relay.name, options.group, options.model, self._usage, gw.weights, nusd
        )
        gw.record_usage(
            LedgerEntry(
                task_id=reservation.id,
                tenant_id=tenant.id,
                key_id=tenant.key_id,
                tier=tenant.tier,
                route=options.group,
                outcome=outcome,
                ended_s=gw.wall_s(),
                duration_ms=(gw.clock_us() - self._arrived_us) // 1_000,
                lines=(line,),
            )
        )

    def _nusd(self, usage: Usage) -> int:
        price = self._gw.prices.of(self._relay.info, self._gw.wall_s())
        return 0 if price is None else cost_nusd(usage, price)

    def _cost(self, usage: Usage) -> int:
        return cost_tokens(usage, self._gw.weights.get(self._relay.options.group, EVEN))

    def _keep(self, arrived: bytes) -> bool:
        self._kept.append(arrived)
        return False

    def _pass_on(self, arrived: bytes) -> bool:
        for data in self._parser.feed(arrived):
            # The event of the usage is left out where the client did not ask for it.
            if data == b"[DONE]":
                self._emit(data)
            elif (piece := self._own(data)) and (self._wants_usage or not _is_bare(data)):
                self._emit(piece)
        return False

    def _emit(self, data: bytes) -> None:
        assert self._outbox is not None
        if b"\n" in data or b"\r" in data:  # the server's own layout, which would end the event
            data = msgspec.json.format(data, indent=-1)
        self._outbox.send(b"data: " + data + b"\n\n")
        self._has_begun = True
        self.opened.set()

    def _own(self, data: bytes) -> bytes:
        """Puts our name of the model into what the server said, and notes what it cost."""
        try:
            said = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            message = "The upstream failed: its answer is no JSON object."
            raise ProtocolError("server_error", message) from error
        if said.get("error", _NULL) != _NULL and not said.keys() & {"choices", "data"}:
            raise event_failure(self._relay.name, error_in(data))  # its status said 200
        usage = msgspec.json.decode(said.get("usage", b"null"))
        if usage is not None:
            self._usage = self._bounded(Reported(usage))
        if "model" in said:
            said["model"] = msgspec.Raw(msgspec.json.encode(self._relay.options.model))
        return msgspec.json.encode(said)

    def _bounded(self, reported: Reported) -> Usage:
        """Returns the reported usage, at most what the request can cost."""
        most_input = self._num_bytes + self._num_bytes // 10 + SPARE_INPUT_TOKENS
        num_input, num_output = map(reported.figure, ("prompt_tokens", "completion_tokens"))
        cached = reported.figure("prompt_tokens_details", "cached_tokens") or 0
        is_known = num_input is not None and not reported.is_odd
        num_input = self._estimate.num_input_tokens if num_input is None else num_input
        num_output = self._max_output_tokens if num_output is None else num_output
        return Usage(
            num_input_tokens=min(num_input, most_input),
            num_cached_tokens=min(cached, num_input, most_input),
            num_output_tokens=min(num_output, self._max_output_tokens),
            exact=is_known,
            bounded=num_input > most_input or num_output > self._max_output_tokens,
        )


def _is_bare(data: bytes) -> bool:
    """Says whether an event has no words: only the usage."""
    choices = bytes(msgspec.json.decode(data, type=_Piece).choices)
    return b"".join(choices.split()) == b"[]"


def _told(error: BackendError) -> ProtocolError:
    wait_us = error.retry_after_us
    if error.retryable and error.code in ("rate_limit_exceeded", "server_is_overloaded"):
        wait_us = wait_us or LEAST_WAIT_US
    # It was told in the words of Responses, and what is asked here is OpenAI's older protocol.
    param = "max_tokens" if error.param == "max_output_tokens" else error.param
    return ProtocolError(error.code, error.message, param=param, retry_after_us=wait_us)
