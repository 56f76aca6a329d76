"""Uses any OpenAI-compatible server as a backend, with retries, timeouts and health checks.

A generation has time limits, is retried if it fails before its first token, and finishes exactly
once. Cancelling it stops the server within a turn of the event loop. This is an edge.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from backends.configuration import BackendKind
from backends.contract import (
    BackendError,
    BackendStats,
    Delta,
    Finish,
    FinishReason,
    GenerateRequest,
    More,
    Sink,
    Usage,
)
from backends.drive.driver import monotonic_us
from backends.net.read_hold import ReadHold
from backends.net.server_keys import ServerKeys, read_keys
from backends.service_tiers import TierRead, as_served, asked_tier, passed_on
from backends.tokenizer import split
from backends.upstream.addresses import check_addresses
from backends.upstream.answer.chat_reader import ChatReader
from backends.upstream.answer.errors import Failure, broken
from backends.upstream.answer.reader import Bounds, Reader
from backends.upstream.answer.responses_reader import ResponsesReader
from backends.upstream.chain import Turn
from backends.upstream.health import Health
from backends.upstream.http_exchange import HttpTransport, Probe
from backends.upstream.keeper import Keeper
from backends.upstream.options import UpstreamOptions, check_options
from backends.upstream.request_body import DRAFTED_TOKENS, NOTHING_WRAPPED, wrapped_tools
from backends.upstream.retry import Attempts
from backends.upstream.socket_exchange import SocketTransport

logger = logging.getLogger("lanewise")

MAX_WARMING = 8  # warm-ups at once; more are refused
USAGE_GRACE_S = 1.0  # for the usage, once the answer has its finish reason
MAX_LOGGED_CHARS = 300  # of what an upstream says of its failure


class UpstreamBackend:
    """Satisfies `backends.contract.Backend`."""

    def __init__(self, *, name: str, options: UpstreamOptions) -> None:
        """Starts unhealthy, until the first probe succeeds; must run inside the event loop.

        Raises ValueError if an option is invalid, or the environment lacks the key.
        """
        check_options(options)
        keys = ServerKeys(options)
        self.name = name
        self.options = options
        self.health = Health(options)
        self.info = options.info(
            name,
            options.group,
            accepts_images=options.accepts_images,
            accepts_files=options.accepts_files,
            takes_predictions=options.prediction is not None,
            prediction_tokens=DRAFTED_TOKENS if options.prediction == "prompt" else 0,
            simulated=False,
            prefills=options.prefill != "none",
            first_token_timeout_us=int(options.first_token_timeout_s * 1e6),
            service_tiers=tuple(map(as_served, options.service_tiers)),
            fixed_tier=as_served(options.extra_body.get("service_tier")),
        )
        kind = SocketTransport if options.protocol == "responses-ws" else HttpTransport
        self.transport: HttpTransport | SocketTransport = kind(name, options, keys)
        self.hidden: Callable[[str], str] = keys.hidden
        self.chance = random.Random()  # of the jitter in pauses
        self.warms = True  # False once the server has rejected a warm-up
        self._generations: set[UpstreamGeneration] = set()
        self._warming: set[UpstreamGeneration] = set()
        self.num_speaking = 0  # of the generations, those with tokens
        self._pumps: set[asyncio.Task[None]] = set()
        self._is_open = True
        self._warned_of_tier = False
        # As `BackendStats` has them.
        self._num_generated_tokens = self._num_prompt_tokens = self._num_cached_tokens = 0
        self._num_bounded = self.num_overruns = 0
        self.loop = asyncio.get_running_loop()
        # A generation's first look whether its time is up; a first token so moves no timer.
        limits_s = (options.first_token_timeout_s, options.idle_timeout_s, options.total_timeout_s)
        self.first_check_s = max(0.001, min(limits_s))
        probe = Probe(options, keys) if options.probe_path is not None else None
        self._keeper = Keeper(self, probe)

    def start(self, request: GenerateRequest, sink: Sink) -> "UpstreamGeneration":
        now_us = monotonic_us()
        health = self.health.state(now_us)
        room = health.room if self._is_open else 0
        num_here = len(self._generations)
        is_full = num_here >= room
        if not request.generate:  # it leaves a slot for other requests
            num_warming = len(self._warming)
            is_full = num_here + num_warming + 1 >= room or num_warming >= MAX_WARMING
        if is_full:
            message = "is not available now" if room == 0 else f"has {room} generations already"
            is_limited = health.out_for == "limit"
            raise BackendError(
                self.name,
                "rate_limit_exceeded" if is_limited else "server_is_overloaded",
                "the upstream's rate limit is reached" if is_limited else f"the upstream {message}",
                retryable=True,
                retry_after_us=health.out_us or None,
            )
        check_addresses(request, self.name, self.options)
        self.health.on_request()
        generation = UpstreamGeneration(self, request, sink, now_us)
        (self._generations if request.generate else self._warming).add(generation)
        self._pumps.add(generation.pump)
        generation.pump.add_done_callback(self._pumps.discard)
        return generation

    def make_reader(self, request: GenerateRequest, turn: Turn) -> Reader:
        options = self.options
        wrapped = wrapped_tools(request, options) if request.tools else NOTHING_WRAPPED
        bounds = Bounds(options.max_answer_bytes, turn.max_input_tokens)
        tier = request.extras.service_tier
        if tier is not None:
            tier = passed_on(tier, options.service_tiers)
        tier = options.extra_body.get("service_tier", tier)
        read = TierRead() if tier is None else asked_tier(tier)
        if options.protocol == "chat":
            echo = request.prefill if options.echoes_prefill else ""
            return ChatReader(self.name, request, wrapped, bounds, read, echo=echo)
        sealing = options.model if options.seals_reasoning else None
        return ResponsesReader(self.name, request, wrapped, sealing, bounds, read)

    def over(
        self, generation: "UpstreamGeneration", usage: Usage, unknown_tier: str | None
    ) -> None:
        """Counts a generation that has ended; `unknown_tier` is one that its server named."""
        self.num_speaking -= generation.has_tokens
        self._generations.discard(generation)
        self._warming.discard(generation)
        self._num_generated_tokens += usage.num_output_tokens
        self._num_prompt_tokens += usage.num_input_tokens
        self._num_cached_tokens += usage.num_cached_tokens
        self._num_bounded += usage.bounded
        if unknown_tier is not None and not self._warned_of_tier:
            self._warned_of_tier = True
            logger.warning(
                "upstream %s says that it served the tier %r, which is not known: what it serves "
                "under such names is charged as it was asked for",
                self.name,
                self.hidden(unknown_tier),
            )

    def failed(self, failure: Failure) -> None:
        """Records a failed attempt against the upstream's health, by `failure.blame`.

        The log has the upstream's own words, unless they are about a client's request.
        """
        now_us = monotonic_us()
        if failure.blame in ("upstream", "limit"):
            code, words = failure.error.code, failure.told[:MAX_LOGGED_CHARS]
            once = {"once": ("upstream failed", self.name, code)}
            logger.warning("upstream %s failed: %s (%s)", self.name, words, code, extra=once)
        if failure.blame == "upstream":
            self.health.on_failure(now_us)
            self._keeper.wake()  # it is probed at once
        elif failure.blame == "limit":
            self.health.on_limit(now_us, failure.error.retry_after_us)

    def stats(self) -> BackendStats:
        """Returns our own counts: servers do not report their load or their cache."""
        health = self.health.steady or self.health.state(monotonic_us())
        num_speaking = self.num_speaking
        return BackendStats(
            info=self.info,
            healthy=self._is_open and health.healthy,
            num_running=num_speaking,
            num_waiting=len(self._generations) - num_speaking,
            num_warming=len(self._warming),
            max_num_seqs=health.room or 1,
            num_generated_tokens=self._num_generated_tokens,
            num_prompt_tokens=self._num_prompt_tokens,
            num_cached_tokens=self._num_cached_tokens,
            out_for=health.out_for,
            out_us=health.out_us,
            num_continued=self.transport.num_continued,
            num_chains_lost=self.transport.num_chains_lost,
            num_bounded=self._num_bounded,
            num_overruns=self.num_overruns,
        )

    async def close(self) -> None:
        self._is_open = False
        self._keeper.stop()
        for generation in [*self._generations, *self._warming]:
            generation.fail("the gateway is shutting down")
        for pump in list(self._pumps):
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        await self._keeper.close()
        await self.transport.close()


def _drop_more(text: str, num_tokens: int, at_us: int) -> None:
    """Takes what nobody waits for."""


class UpstreamGeneration:
    """Is a generation under way at an upstream."""

    has_tokens = False
    _usage: Usage | None = None  # once it is over
    _more: More = staticmethod(_drop_more)  # for the item of the latest delta

    def __init__(
        self, backend: UpstreamBackend, request: GenerateRequest, sink: Sink, now_us: int
    ) -> None:
        self._backend = backend
        self._request = request
        self._sink = sink
        self._started_us = self._heard_us = now_us
        self._turn = Turn(request, backend.options)
        self._attempts = Attempts(backend.options, request.has_spare)
        self._reader = backend.make_reader(request, self._turn)
        self._reading = ReadHold()
        self._loop = loop = backend.loop
        self._timer = loop.call_later(backend.first_check_s, self._check)
        self.pump = loop.create_task(self._run())  # cancelling it stops the upstream

    def cancel(self, *, is_silent: bool = False) -> Usage:
        if self._usage is None:
            if is_silent:
                name = self._backend.name
                self._backend.failed(broken(name, "the upstream said nothing for too long"))
            self._over(self._reader.usage())
            self.pump.cancel()
        assert self._usage is not None
        return self._usage

    def pause(self) -> bool:
        return self._usage is not None or self._reading.pause()

    def resume(self) -> None:
        self._heard_us = monotonic_us()  # its silence was our doing
        self._reading.resume()

    def fail(self, message: str) -> None:
        self._fail(broken(self._backend.name, message))
        self.pump.cancel()

    async def _run(self) -> None:
        try:
            is_over = False
            while not is_over:
                failure: Failure | None = None
                try:
                    if self._turn.generate:
                        transport = self._backend.transport
                        await transport.exchange(self._turn, self._receive, self._reading)
                    else:
                        await self._warm_up()
                except Failure as error:
                    failure = error
                # A connection that broke after a complete response does no harm to it.
                is_over = self._usage is not None or not await self._tries_again(failure)
        except Exception as error:  # ours, not the upstream's
            self._report(error)
            self._fail(broken(self._backend.name, "the gateway failed"))

    async def _warm_up(self) -> None:
        transport = self._backend.transport
        if self._backend.warms:
            await transport.warm_up(self._turn, self._receive, self._reading)
        else:
            await transport.warm()

    async def _tries_again(self, failure: Failure | None) -> bool:
        """Returns whether there is another attempt, for which it waits; else it has ended."""
        backend = self._backend
        if failure is not None:
            failure = failure.hiding(backend.hidden)
            if failure.overrun and self._turn.generate:
                backend.num_overruns += 1
                self._end(self._reader.cut(monotonic_us()))
        if self._usage is not None or self._end_if_complete():
            return False
        if failure is None:
            if not self._turn.generate:
                self._end(Finish(FinishReason.STOP, Usage(), monotonic_us()))
                return False
            failure = broken(backend.name, "the upstream ended its answer midway")
        if failure.blame == "request" and not self.has_tokens and self._drops_prediction():
            return True
        backend.failed(failure)
        pause_s = self._attempts.pause_s(
            failure,
            # A warm-up is not retried: the turn itself will find out.
            has_tokens=self.has_tokens or not self._turn.generate,
            chance=backend.chance.random(),
        )
        if pause_s is None or not backend.health.take_retry():
            self._fail(failure)
            return False
        once = {"once": f"again: {backend.name}"}
        logger.info("upstream %s: again after: %s", backend.name, failure, extra=once)
        await asyncio.sleep(pause_s)
        self._turn.begin()
        self._reader = backend.make_reader(self._request, self._turn)
        return True

    def _drops_prediction(self) -> bool:
        """Drops a prediction, which only makes answers come sooner; returns if one was sent."""
        self._request = msgspec.structs.replace(self._request, prediction=None)
        sent, self._turn = self._turn.whole(), Turn(self._request, self._backend.options)
        self._reader = self._backend.make_reader(self._request, self._turn)
        return self._turn.whole() != sent

    def _receive(self, events: list[Any]) -> bool:
        """Passes on the deltas of events; returns True once no more events are wanted.

        Raises `Failure` that an event reports or is; the deltas before it were passed on.
        """
        if self._usage is not None:
            return True
        now_us = monotonic_us()
        reader, turn = self._reader, self._turn
        turn.go_on = self._reading.take_one = None
        had_reason = reader.reason is not None
        deltas = reader.read(events, now_us)
        finish = reader.finish
        if deltas or not had_reason:
            self._heard_us = now_us
        if finish is not None and turn.continues:
            turn.finished(finish, reader)
        if deltas and not self.has_tokens:
            if not turn.generate:
                # It generates, so it does not know warm-ups. Its output is dropped for good.
                self._backend.warms = False
                self._end(Finish(FinishReason.STOP, Usage(), now_us))
                return True
            self.has_tokens = True
            self._backend.num_speaking += 1  # until `over`
        try:
            for delta in deltas:
                more = self._sink.push(delta)
                self._more = more or partial(_push_more, self._sink, delta)
                if self._usage is not None:
                    return True  # the sink cancelled
        except Exception as error:  # a fault in one stream must not reach the others
            self.cancel()
            self._report(error)
            return True
        failure = reader.failure
        if failure is not None:
            reader.failure = None  # its transport may ask once more
            raise failure
        if finish is not None:
            self._end(finish)
            if reader.meter.is_over:
                self._backend.num_overruns += 1
                self.pump.cancel()  # nothing more is read, and the upstream learns to stop
            else:
                self._backend.health.on_success(now_us)
            return True
        if reader.reason is not None and not had_reason:
            self._timer.cancel()
            self._timer = self._loop.call_later(USAGE_GRACE_S, self._check)
        if reader.goes_on:
            turn.go_on, self._reading.take_one = self._go_on, self._take_one
        return False

    def _take_one(self, message: bytes) -> bool:
        """Passes on a message that only goes on with the open text: does what `_receive` would.

        Returns false if it does not, and nothing was done.
        """
        reader = self._reader
        text = reader.text_of(message)
        num_tokens = len(split(text))
        items = reader.items
        num_passed_tokens = items.num_tokens + num_tokens
        if not text or num_passed_tokens > items.max_unmeasured_tokens:
            return False
        items.num_tokens = num_passed_tokens
        items.unmeasured.append(text)
        now_us = self._heard_us = monotonic_us()
        try:
            self._more(text, num_tokens, now_us)
        except Exception as error:
            self.cancel()
            self._report(error)
        return True

    def _go_on(self, events: list[Any]) -> bool:
        """Does for events that came together what `_take_one` does for one."""
        more = self._reader.more(events)
        if more is None:
            return False
        now_us = self._heard_us = monotonic_us()
        try:
            self._more(*more, now_us)
        except Exception as error:
            self.cancel()
            self._report(error)
        return True

    def _end_if_complete(self) -> bool:
        finish = self._reader.ended(monotonic_us())
        if finish is not None and self._usage is None:
            self._backend.health.on_success(finish.at_us)
            self._end(finish)
        return finish is not None

    def _end(self, finish: Finish) -> None:
        if self._usage is None:
            self._over(finish.usage)
            try:
                self._sink.finish(finish)
            except Exception as error:
                self._report(error)

    def _fail(self, failure: Failure) -> None:
        was_used = self.has_tokens or not failure.unused
        usage = self._reader.usage() if was_used else Usage()
        self._end(Finish(FinishReason.ERROR, usage, monotonic_us(), failure.error))

    def _over(self, usage: Usage) -> None:
        self._usage = usage
        self._turn.go_on = self._reading.take_one = None
        self._more = _drop_more
        self._timer.cancel()
        self._backend.over(self, usage, self._reader.tier.unknown)

    def _patience_us(self, now_us: int) -> float:
        options = self._backend.options
        until_us = self._started_us + options.first_token_timeout_s * 1e6
        if self._reader.reason is not None:
            until_us = self._heard_us + USAGE_GRACE_S * 1e6
        elif self.has_tokens:
            until_us = self._heard_us + options.idle_timeout_s * 1e6
        return min(until_us, self._started_us + options.total_timeout_s * 1e6) - now_us

    def _check(self) -> None:
        """Ends the attempt if its time is up, and fails it unless the answer is whole."""
        if self._reading.is_paused:
            self._heard_us = monotonic_us()  # nothing can come, and its client is timed, too
        patience_us = self._patience_us(monotonic_us())
        if patience_us > 0:
            delay_s = min(patience_us / 1e6, self._backend.options.idle_timeout_s)
            self._timer = self._loop.call_later(max(delay_s, 0.001), self._check)
            return
        if not self._end_if_complete():
            what = "its next" if self.has_tokens else "a first"
            failure = broken(self._backend.name, f"the upstream did not send {what} token in time")
            self._backend.failed(failure)
            self._fail(failure)
        self.pump.cancel()

    def _report(self, error: Exception) -> None:
        self._loop.call_exception_handler(
            {"message": "a generation broke inside the gateway", "exception": error}
        )


class UpstreamBackendConfig(BackendKind, frozen=True, kw_only=True, tag="upstream"):
    """Configures a server that we did not write, as a backend of the group it names."""

    name: str = "upstream"
    options: UpstreamOptions

    def make(self) -> UpstreamBackend:
        return UpstreamBackend(name=self.name, options=self.options)

    def secrets(self) -> tuple[str, ...]:
        return read_keys(self.options)


def _push_more(sink: Sink, latest: Delta, text: str, num_tokens: int, at_us: int) -> None:
    """Pushes what goes on with the latest delta's text, to a sink that has no shorter way."""
    more = {"text": text, "num_tokens": num_tokens, "at_us": at_us, "sealed": ""}
    sink.push(msgspec.structs.replace(latest, **more))
