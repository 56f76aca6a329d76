"""Accepts connections ourselves: within limits, behind proxies, with descriptors left over.

asyncio's server accepts whoever comes, has no time limit for a silent client, and where descriptors
run out it drops everyone. Here each connection has its `Visit` before its first byte is read, the
header of PROXY protocol is taken off before TLS begins, and the last descriptors are kept for what
runs already and for health checks. This is an edge.
"""

import asyncio
import contextlib
import errno
import logging
import resource
import socket
import ssl
import time
from collections.abc import Callable, Sequence

from backends.drive.beats import beat
from gateway.transport.client_address import (
    MAX_HEADER_BYTES,
    Network,
    ProxyHeaderError,
    is_trusted,
    parse_proxy_header,
)
from gateway.transport.connection_limits import ConnectionLimits, Visit
from gateway.transport.refusals import BUSY, TOO_MANY_CONNECTIONS, HttpRefusal
from router.redis.cancelling import cancelled

logger = logging.getLogger("lanewise")

MAX_ACCEPTED = 64  # in one turn of the loop
PAUSE_S = 0.1  # of accepting, once there is no descriptor at all
NOTE_S = 60.0  # between two lines of the log that say so
LOOK_S = 0.01  # between two looks at a header that is not whole
MAX_TICK_S = 1.0
TLS_SHUTDOWN_S = 5.0
# Descriptors that clients leave free, for upstreams, Redis and files: an eighth, within bounds.
MIN_RESERVED, MAX_RESERVED = 16, 256
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

MakeProtocol = Callable[[Visit], asyncio.Protocol]


def raise_descriptor_limit() -> int:
    """Raises the soft limit of descriptors to the hard one, and returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with contextlib.suppress(ValueError, OSError):  # macOS has a hard limit that it refuses
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class LimitedListener:
    """Accepts on one listening socket; to uvicorn it is one of its servers."""

    def __init__(
        self,
        listening: socket.socket,
        make_protocol: MakeProtocol,
        limits: ConnectionLimits,
        *,
        tls: ssl.SSLContext | None,
        handshake_s: float,
        trusted: Sequence[Network] = (),
    ) -> None:
        """Begins to accept."""
        self.sockets = (listening,)
        self._make_protocol = make_protocol
        self._limits = limits
        self._tls = tls
        self._handshake_s = handshake_s
        self._trusted = trusted
        self._loop = asyncio.get_running_loop()
        max_descriptors = raise_descriptor_limit()
        reserved = min(max(max_descriptors // 8, MIN_RESERVED), MAX_RESERVED)
        # The kernel gives the lowest free number, so that a high one says how many are in use.
        self._first_reserved = max_descriptors - reserved
        self._first_refused = max_descriptors - reserved // 2
        self._next_note_s = 0.0  # by the limits' time
        self._is_closed = False
        self._opening: set[asyncio.Task[None]] = set()
        listening.setblocking(False)
        self._loop.add_reader(listening, self._accept)

    def close(self) -> None:
        """Accepts no more."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.remove_reader(self.sockets[0])

    async def wait_closed(self) -> None:
        """Ends what was about to begin."""
        await cancelled(*self._opening)

    def _accept(self) -> None:
        for _ in range(MAX_ACCEPTED):
            try:
                accepted, address = self.sockets[0].accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _NO_DESCRIPTORS:
                    self._pause(error)
                    return
                continue  # the client left while it waited
            if not self._admit(accepted, address[0]):
                return  # what was cut gives its descriptor back in the next turn

    def _pause(self, error: OSError) -> None:
        self._note_scarcity(str(error))
        self._limits.make_room()
        self._loop.remove_reader(self.sockets[0])
        self._loop.call_later(PAUSE_S, self._resume)

    def _resume(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self.sockets[0], self._accept)

    def _admit(self, accepted: socket.socket, address: str) -> bool:
        """Begins a connection or refuses it; returns false if descriptors are scarce."""
        is_last_resort = False
        is_scarce = accepted.fileno() >= self._first_reserved
        if is_scarce:
            self._note_scarcity(f"descriptor {accepted.fileno()} is in use")
            if not self._limits.make_room():
                is_last_resort = True
                if accepted.fileno() >= self._first_refused:
                    self._limits.on_cut("descriptors")
                    self._refuse(accepted, BUSY)
                    return False
        accepted.setblocking(False)
        with contextlib.suppress(OSError):  # it left already
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        is_proxy = bool(self._trusted) and is_trusted(address, self._trusted)
        visit = self._limits.enter(None if is_proxy else address)
        if visit is None:
            self._refuse(accepted, TOO_MANY_CONNECTIONS)
            return not is_scarce
        visit.is_last_resort = is_last_resort
        opening = self._loop.create_task(self._open(accepted, visit))
        visit.cut = opening.cancel
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)
        return not is_scarce

    def _refuse(self, accepted: socket.socket, refusal: HttpRefusal) -> None:
        """Says why, if that can be said before TLS, and closes."""
        if self._tls is None:
            with contextlib.suppress(OSError):
                accepted.send(refusal.written())
        accepted.close()

    async def _open(self, accepted: socket.socket, visit: Visit) -> None:
        """Takes off the proxy's header, shakes hands, and begins the protocol."""
        begun = False
        try:
            async with asyncio.timeout(self._handshake_s):
                if visit.is_proxied and not await self._read_proxy_header(accepted, visit):
                    return
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: self._make_protocol(visit),
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else self._handshake_s,
                ssl_shutdown_timeout=None if self._tls is None else TLS_SHUTDOWN_S,
            )
            begun = True
            visit.cut, visit.close = transport.abort, transport.close
        except (TimeoutError, ConnectionAbortedError):
            self._limits.on_cut("handshake")
        except (OSError, ProxyHeaderError):
            return  # it left, speaks no TLS, or broke the PROXY protocol
        finally:
            if not begun:
                visit.leave()
                accepted.close()

    async def _read_proxy_header(self, accepted: socket.socket, visit: Visit) -> bool:
        """Reads a trusted proxy's header, if it sends one; false: the client has too many."""
        begin = b""
        while True:
            arrived = await _peeked(accepted)
            if not arrived:
                return False
            header = parse_proxy_header(arrived)
            if header is not None:
                break
            if len(arrived) == len(begin):
                await asyncio.sleep(LOOK_S)  # the rest has not come yet
            begin = arrived
        if not header.num_bytes:
            return True
        accepted.recv(header.num_bytes)  # all of it has arrived
        if header.address is None or is_trusted(header.address, self._trusted):
            return True
        visit.is_proxied = False  # headers are the client's own
        if visit.comes_from(header.address):
            return True
        self._refuse(accepted, TOO_MANY_CONNECTIONS)
        return False

    def _note_scarcity(self, detail: str) -> None:
        if self._limits.now_s >= self._next_note_s:
            self._next_note_s = self._limits.now_s + NOTE_S
            logger.error(
                "few file descriptors are left (%s): connections without a key are cut, the oldest "
                "first; raise the limit (ulimit -n, LimitNOFILE)",
                detail,
            )


async def _peeked(accepted: socket.socket) -> bytes:
    """Returns what has arrived, at least a byte, and leaves it there; nothing at its end."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            return accepted.recv(MAX_HEADER_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            readable = asyncio.Event()
            loop.add_reader(accepted, readable.set)
            try:
                await readable.wait()
            finally:
                loop.remove_reader(accepted)


async def pass_time(limits: ConnectionLimits) -> None:
    """Lets the limits' time pass, until cancelled."""
    bounds = limits.bounds
    tick_s = min(MAX_TICK_S, bounds.without_key_s / 10, bounds.head_s / 10, bounds.body_s / 10)
    before_s = time.monotonic()
    while True:
        await beat(tick_s)
        elapsed_s = time.monotonic() - before_s
        before_s += elapsed_s
        limits.advance(min(elapsed_s, 2 * tick_s))
