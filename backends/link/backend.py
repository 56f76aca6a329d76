"""Uses a remote engine as a backend: one persistent WebSocket, one frame per step.

The link is opened when the backend is made and reopened, with growing pauses, whenever it is lost.
While it is down the backend refuses requests, and generations under way fail at once.
This is an edge.
"""

import asyncio
import logging
import random
from collections import deque
from dataclasses import dataclass

import msgspec
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus, InvalidURI, WebSocketException

from backends.bounds import OutputMeter, bounded_usage
from backends.configuration import BackendKind, BackendOptions, Seconds
from backends.contract import (
    BackendError,
    BackendGroup,
    BackendStats,
    Delta,
    DeltaKind,
    Finish,
    FinishReason,
    GenerateRequest,
    Sink,
    Usage,
)
from backends.drive.driver import monotonic_us
from backends.link.frames import (
    MAX_FRAME_BYTES,
    VERSION,
    Cancel,
    Hello,
    Start,
    Step,
    encode,
    engine_frames,
    finish_of,
)
from backends.net.quick_connection import QuickConnection

logger = logging.getLogger("lanewise")

_KINDS = tuple(DeltaKind)  # by value: indexing costs a tenth of calling the enum
CLOSE_TIMEOUT_S = 1.0  # for the other side's close; who answers no ping will send none
MAX_UNSENT_BYTES = 32 << 20  # to the engine; more means that it has stopped reading


class LinkOptions(BackendOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Holds the engine's address, and what is assumed of it until it connects."""

    url: str = "ws://127.0.0.1:9100/v1/link"
    key: str = ""  # sent as the bearer key
    group: BackendGroup = "fast"
    model: str = "lanewise-linked"  # the id clients pin it by
    open_timeout_s: Seconds = 5.0
    retry_min_s: Seconds = 0.2
    retry_max_s: Seconds = 5.0
    ping_interval_s: Seconds = 5.0  # a peer that is silent for twice as long is gone


class LinkBackend:
    """Satisfies `backends.contract.Backend`."""

    def __init__(self, *, name: str, options: LinkOptions) -> None:
        """Starts connecting and returns at once; must run inside the event loop."""
        self._options = options
        self.info = options.info(name, options.group)
        self._stats = BackendStats(  # as the engine last reported
            info=self.info, healthy=False, num_running=0, num_waiting=0, max_num_seqs=1
        )
        self._generations: dict[int, LinkGeneration] = {}
        self._warming: set[int] = set()  # those of them that are warm-ups
        self._next_key = 1
        self.num_bounded = self.num_overruns = 0  # as `BackendStats` has them
        self._connection: QuickConnection | None = None  # None while the link is down
        self._unread: deque[bytes] = deque()  # frames of one read, all but the first
        self._is_reading = False  # a frame in each turn of the event loop
        self._fault: Exception | None = None  # for which it was cut: later frames are ignored
        self._refusal = ""  # why it cannot connect, as last logged
        self._offset_us = 0  # added to the engine's clock gives ours
        self._keeper = asyncio.create_task(self._keep())

    def start(self, request: GenerateRequest, sink: Sink) -> "LinkGeneration":
        connection = self._connection
        if connection is None or connection.unsent_bytes > MAX_UNSENT_BYTES:
            what = "is down" if connection is None else "does not keep up"
            message = f"the link to engine {self.info.name!r} {what}"
            raise BackendError(self.info.name, "server_is_overloaded", message, retryable=True)
        key, self._next_key = self._next_key, self._next_key + 1
        generation = self._generations[key] = LinkGeneration(
            self, key, request, sink, OutputMeter(request.max_output_tokens)
        )
        if not request.generate:
            self._warming.add(key)
        connection.send_now(encode(Start(key, request)))
        return generation

    def drop(self, key: int) -> None:
        """Cancels a generation; the frame is sent within this turn of the event loop."""
        self._warming.discard(key)
        connection = self._connection
        if self._generations.pop(key, None) is None or connection is None:
            return
        if connection.unsent_bytes > MAX_UNSENT_BYTES:
            what = "does not read what it is sent"
            self._fault = ConnectionError(what)
            self._lost(what)
            connection.transport.abort()
        else:
            connection.send_now(encode(Cancel(key)))

    def stats(self) -> BackendStats:
        """Returns the engine's load as last reported."""
        num_mine = len(self._generations) - len(self._warming)
        return msgspec.structs.replace(
            self._stats,
            info=self.info,
            healthy=self._connection is not None,
            num_running=max(num_mine, self._stats.num_running),
            num_bounded=self.num_bounded,
            num_overruns=self.num_overruns,
        )

    async def close(self) -> None:
        """Ends the link; what still runs fails, and only that is worth a warning."""
        if not self._generations:
            self._connection = None
        self._lost("was closed: the gateway is shutting down")
        self._keeper.cancel()
        await asyncio.gather(self._keeper, return_exceptions=True)

    async def _keep(self) -> None:
        pause_s = self._options.retry_min_s
        while True:
            try:
                async with self._connect() as connection:
                    assert isinstance(connection, QuickConnection)
                    async with asyncio.timeout(self._options.open_timeout_s):
                        hello = await connection.recv()
                    self._greet(hello, connection)
                    pause_s = self._options.retry_min_s
                    await self._talk(connection)
            except (OSError, TimeoutError, WebSocketException, InvalidURI) as error:
                self._fell("broke", error)
            except (msgspec.DecodeError, ValueError, IndexError) as error:
                self._fell("does not speak the link's protocol", error)
            finally:
                self._lost("is down")
            # Jitter, so that many gateways do not come back in step.
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, self._options.retry_max_s)

    def _connect(self) -> connect:
        options = self._options
        return connect(
            options.url,
            additional_headers={"authorization": f"Bearer {options.key}"} if options.key else None,
            compression=None,
            max_size=MAX_FRAME_BYTES,
            create_connection=QuickConnection,
            open_timeout=options.open_timeout_s,
            close_timeout=CLOSE_TIMEOUT_S,
            ping_interval=options.ping_interval_s,
            ping_timeout=options.ping_interval_s,
            proxy=None,
        )

    def _greet(self, message: str | bytes, connection: QuickConnection) -> None:
        hello = engine_frames.decode(message if isinstance(message, bytes) else message.encode())
        if not isinstance(hello, Hello) or hello.version != VERSION:
            got = f"version {hello.version}" if isinstance(hello, Hello) else "another frame"
            raise msgspec.DecodeError(f"expected a hello of version {VERSION}, got {got}")
        own = self.info
        self.info = msgspec.structs.replace(
            hello.info, name=own.name, model=own.model, group=own.group
        )
        self._stats = hello.stats
        self._offset_us = monotonic_us() - hello.now_us
        self._connection = connection
        self._unread.clear()
        self._fault = None
        self._refusal = ""
        logger.info("the link to engine %r (%s) is up", self.info.name, self._options.url)

    async def _talk(self, connection: QuickConnection) -> None:
        """Reads until the link breaks; messages that `listen` does not pass on come here."""
        connection.listen(self._arrived, MAX_FRAME_BYTES)
        try:
            async for message in connection:
                if isinstance(message, bytes):
                    self._take(message)
                    await asyncio.sleep(0)  # its output is sent before the next frame is read
        except WebSocketException:
            if self._fault is None:
                raise
        if self._fault is not None:
            raise self._fault

    def _arrived(self, contents: list[bytes]) -> None:
        """Takes the first frame at once and each later one in a turn of the loop of its own.

        So the output of a frame is sent before the next is read. Until then nothing more is read,
        and the engine's side joins rows of one generation into one longer row.
        """
        self._unread.extend(contents)
        if not self._is_reading:
            self._is_reading = True
            self._read_on()
        if self._unread and self._connection is not None:
            self._connection.transport.pause_reading()

    def _read_on(self) -> None:
        if self._unread:
            self._take(self._unread.popleft())
            asyncio.get_running_loop().call_soon(self._read_on)
            return
        self._is_reading = False
        if self._connection is not None and not self._connection.transport.is_closing():
            self._connection.transport.resume_reading()

    def _take(self, content: bytes) -> None:
        """Takes one frame; an invalid one ends the connection, and later frames are ignored."""
        if self._fault is not None or self._connection is None:
            return
        try:
            frame = engine_frames.decode(content)
            if isinstance(frame, Step):
                self._hand_out(frame)
        except (msgspec.DecodeError, ValueError, IndexError) as error:
            self._fault = error
            self._connection.transport.abort()

    def _hand_out(self, step: Step) -> None:
        if step.stats is not None:
            self._stats = step.stats
        rows = zip(
            step.keys,
            step.indexes,
            step.kinds,
            step.texts,
            step.num_tokens,
            step.at_us,
            strict=True,
        )
        generations, offset_us = self._generations, self._offset_us
        has_more = bool(step.calls or step.sealed or step.phases)  # few steps have any
        for row, (key, index, kind, text, num_tokens, at_us) in enumerate(rows):
            generation = generations.get(key)
            if generation is None:
                continue
            delta = Delta(index, _KINDS[kind], text, num_tokens, at_us + offset_us)
            if has_more:
                delta = step.with_more(row, delta)
            try:
                generation.push(delta)
            except Exception as error:  # a fault in one stream must not reach the others
                generation.cancel()
                _report(error)
        for end in step.ends:
            self._warming.discard(end.key)
            generation = self._generations.pop(end.key, None)
            if generation is not None:
                generation.finish(finish_of(end, self.info.name, self._offset_us))

    def _fell(self, what: str, error: Exception) -> None:
        """Logs a link that was lost, or once for each cause why it does not connect."""
        if self._connection is not None:
            self._lost(what, str(error))
            return
        if error is self._fault:
            return  # it was told when the link was cut
        refusal = _refusal_of(error)
        if refusal != self._refusal:
            self._refusal = refusal
            name, url = self.info.name, self._options.url
            logger.warning("the link to engine %r (%s) does not come up: %s", name, url, refusal)

    def _lost(self, what: str, why: str = "") -> None:
        """Marks the link as down and fails every generation under way.

        Clients learn which engine; the address and the network's error are for the operator.
        """
        message = f"the link to engine {self.info.name!r} {what}"
        if self._connection is not None:
            url, num_ended = self._options.url, len(self._generations)
            logger.warning("%s (%s): %s; %d generations end", message, url, why or "-", num_ended)
        self._connection = None
        self._unread.clear()
        # Its load is over; its totals stay, as they go on from there if the engine still lives.
        self._stats = msgspec.structs.replace(
            self._stats, num_running=0, num_waiting=0, num_warming=0, kv_used_tokens=0
        )
        self._warming.clear()
        generations, self._generations = self._generations, {}
        error = BackendError(self.info.name, "server_error", message, retryable=True)
        for generation in generations.values():
            usage = generation.usage()
            generation.finish(Finish(FinishReason.ERROR, usage, monotonic_us(), error))


@dataclass(slots=True, eq=False)
class LinkGeneration:
    """Is a generation under way on the engine."""

    _backend: LinkBackend
    _key: int
    _request: GenerateRequest
    _sink: Sink
    _meter: OutputMeter
    _num_tokens: int = 0
    _usage: Usage | None = None

    def cancel(self, *, is_silent: bool = False) -> Usage:
        if self._usage is None:
            self._usage = self.usage()
            self._backend.drop(self._key)
        return self._usage

    def pause(self) -> bool:
        return False  # the link carries others

    def resume(self) -> None:
        pass  # it never pauses

    def usage(self) -> Usage:
        """Returns the usage so far; the engine may be one frame ahead."""
        return self._usage or Usage(
            num_input_tokens=self._request.num_prompt_tokens,
            num_output_tokens=self._num_tokens,
            exact=False,
        )

    def push(self, delta: Delta) -> None:
        """Passes a delta on; one that goes on beyond the request's limit ends the generation."""
        meter = self._meter
        num_bytes = len(delta.name) + len(delta.call_id) + len(delta.sealed)
        if num_bytes and not meter.take_bytes(num_bytes):
            delta = msgspec.structs.replace(delta, text="", sealed="")
        text = meter.take(delta.text)
        num_tokens = max(0, min(delta.num_tokens, meter.max_tokens - self._num_tokens))
        if num_tokens != delta.num_tokens or len(text) != len(delta.text):
            delta = msgspec.structs.replace(delta, text=text, num_tokens=num_tokens)
        self._num_tokens += num_tokens
        self._sink.push(delta)
        if meter.is_over and self._usage is None:
            self._backend.num_overruns += 1
            self._backend.drop(self._key)
            self.finish(Finish(FinishReason.LENGTH, self.usage(), delta.at_us))

    def finish(self, finish: Finish) -> None:
        """Passes the finish on, once; an exception of one sink must not reach the others."""
        if self._usage is None:
            max_input = self._request.num_prompt_tokens
            usage = self._usage = bounded_usage(
                finish.usage, self._meter, max_input, prediction=self._request.prediction
            )
            if usage is not finish.usage:
                self._backend.num_bounded += 1
                finish = msgspec.structs.replace(finish, usage=usage)
            try:
                self._sink.finish(finish)
            except Exception as error:
                _report(error)


def _refusal_of(error: Exception) -> str:
    """Explains why a link does not connect, and what to do; the same words for the same cause."""
    why = str(error)
    match error:
        case InvalidStatus():
            status = error.response.status_code
            why = f"HTTP {status}"
            if status in (401, 403):
                return f"{why}: the engine wants another key; set options.key to the engine's"
            if status == 404:
                return f"{why}: no engine is offered there; is options.url its /v1/link?"
            return f"{why}; see the engine's own log"
        case InvalidURI():
            return f"{why}; set options.url, such as ws://127.0.0.1:9100/v1/link"
        case TimeoutError():
            return "no answer within options.open_timeout_s; is it an engine, and does it keep up?"
        case OSError():
            return f"{why}; is the engine (lanewise engine --listen) started, is options.url right?"
        case WebSocketException():
            return f"{why}; is options.url an engine's /v1/link?"
        case _:
            return f"{why}; run the gateway's version of Lanewise on the engine's side too"


def _report(error: Exception) -> None:
    asyncio.get_running_loop().call_exception_handler(
        {"message": "a sink raised; its generation is dropped", "exception": error}
    )


class LinkBackendConfig(BackendKind, frozen=True, tag="link"):
    """Configures an engine in another process or host (`lanewise engine`) as a backend."""

    name: str = "link"
    options: LinkOptions = LinkOptions()

    def make(self) -> LinkBackend:
        return LinkBackend(name=self.name, options=self.options)
