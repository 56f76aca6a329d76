"""Calls Redis on one server, a Sentinel's master, or the nodes of a Cluster.

Every call has at most two attempts, each with a budget, the second on a fresh connection by the
current topology: after a failover no call fails, and during one calls fail soon. Calls must be safe
to repeat, since one without a reply may have taken effect, or may do so later: `on_late` hears of
every attempt of a script that its call did not end with. While the second attempt is under way, a
late reply to the first ends the call as well.

Errors that a server replies with are handled as follows:

    NOSCRIPT                         load the script, then retry
    MOVED                            retry on the slot's new node; read the slot map again
    ASK                              retry once on the node that the slot is migrating to
    READONLY, MASTERDOWN, LOADING    pause, reconnect (to the master that Sentinels name), retry
    CLUSTERDOWN, TRYAGAIN            pause, then retry
    anything else (OOM, NOPERM)      fail at once

This is an edge.
"""

import asyncio
import hashlib
import ssl
from binascii import crc_hqx
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

from router.redis.attempts import RedisAttempts, pass_on
from router.redis.connection import (
    TICK_S,
    LinkLost,
    RedisError,
    RedisLink,
    done_within,
    pack,
)
from router.redis.url import Address, RedisTarget

MAX_ATTEMPTS = 2  # that wait for a reply
MAX_REDIRECTS = 5  # replies that say where or when to retry
PAUSE_S = 0.01  # before a retry during a failover
RECONNECT_PAUSE_S = 0.02  # between attempts to connect; calls meanwhile fail at once
NUM_SLOTS = 16_384
MAX_RETIRED = 4  # connections of a server that wait for late replies; the oldest goes first
MAX_NODES = 1_000  # of a Cluster, that are asked for the slot map

Arguments: TypeAlias = tuple[str | int, ...]  # a script's keys, then its ARGV

_ELSEWHERE = {"READONLY", "MASTERDOWN", "LOADING"}
_IN_BETWEEN = {"CLUSTERDOWN", "TRYAGAIN", "LOADING"}


class RedisAway(Exception):  # noqa: N818 - says what is the case, as TimeoutError does
    """Redis did not reply in time, or with an error that a retry does not help."""


class Script:
    """Holds a Lua script, which is called by its digest and loaded where it is missing."""

    def __init__(self, source: str, num_keys: int) -> None:
        self.source = source
        self.num_keys = num_keys
        self.sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
        self.load_command = pack(("SCRIPT", "LOAD", source))


class RedisServers:
    """Calls Redis from one event loop; it connects at the first call.

    Every awaited call may raise `RedisAway`, and then may or may not have taken effect.
    """

    def __init__(
        self, target: RedisTarget, *, budget_us: int, away: type[RedisAway] = RedisAway
    ) -> None:
        """Takes as `away` the kind of `RedisAway` that calls raise."""
        self._target = target
        self._away = away
        self.budget_s = budget_us / 1e6  # for one attempt
        self._tls = _tls(target)
        self._servers: dict[Address, _Server] = {}
        self._main = _Server(self, None) if target.kind == "sentinel" else None
        if target.kind == "single":
            self._main = self._server(target.addresses[0])
        self._slots: list[_Server | None] = [None] * NUM_SLOTS
        self._nodes: frozenset[Address] = frozenset(target.addresses)  # replicas included
        # Hears of a script's late attempt, after its caller has gone on: the arguments, and the
        # reply (None: none can come, and it may or may not take effect).
        self.on_late: Callable[[Script, Arguments, object], None] = lambda *_: None
        self.on_broken: Callable[[], None] = lambda: None  # when a server ends a connection
        self._mapping: asyncio.Task[None] | None = None
        self._mapped_s = 0.0
        self._closing: set[asyncio.Task[None]] = set()  # connections to nodes that lead no more
        self.is_closed = False

    def run(self, script: Script, arguments: Arguments) -> Coroutine[Any, Any, Any]:
        """Runs a script with keys, then ARGV, on the first key's server; it must be safe to repeat.

        Over an open connection the call is sent before this returns, and so takes effect before
        later calls, whenever it is awaited.
        """
        command = pack(("EVALSHA", script.sha, script.num_keys, *arguments))
        server = self._main
        if server is None:
            server = self._slots[slot_of(str(arguments[0]))]
        link = None if server is None else server.latest
        if link is None or not link.is_open:
            return self._ask(command, script, arguments)
        try:
            sent = link.call(command, link.now_s() + self.budget_s)
        except LinkLost as error:
            return self._ask(command, script, arguments, error)
        return self._answer(link, sent, command, script, arguments)

    async def _answer(
        self,
        link: RedisLink,
        sent: "asyncio.Future[Any]",
        command: bytes,
        script: Script,
        arguments: Arguments,
    ) -> Any:
        """Awaits the reply of a sent call, and retries if that is lost or an error."""
        try:
            reply = await sent
        except LinkLost as error:
            return await self._ask(command, script, arguments, error)
        except asyncio.CancelledError:
            late = partial(self.on_late, script, arguments)
            link.heard(sent).add_done_callback(partial(pass_on, late))
            raise
        if isinstance(reply, RedisError):
            return await self._ask(command, script, arguments)
        return reply

    async def call(self, key: str, *arguments: str | int) -> Any:
        """Runs any command on `key` that is safe to repeat."""
        return await self._attempt(RedisAttempts([]), pack(arguments), key)

    async def ping(self) -> None:
        """Checks that every server in use replies, on a Cluster by the slot map as it is now."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + MAX_ATTEMPTS * self.budget_s
        if self._main is None and not any(self._slots):
            await self._map(deadline_s)
        for is_last in (False, True):
            servers = [self._main] if self._main else list({s for s in self._slots if s})
            asked = (server.ask(pack(("PING",)), deadline_s) for server in servers)
            replies = await asyncio.gather(*asked, return_exceptions=True)
            failed = [reply for reply in replies if isinstance(reply, BaseException)]
            if servers and not failed:
                return
            if not is_last:  # a replica may lead by now
                await self._map(deadline_s)
        raise self._away(f"Redis: {failed[0] if failed else 'no node of the Cluster answers'}")

    async def close(self) -> None:
        """Closes every connection; pending and later calls fail."""
        self.is_closed = True
        if self._mapping is not None:
            self._mapping.cancel()
            await asyncio.gather(self._mapping, return_exceptions=True)
        servers = {*self._servers.values(), *([self._main] if self._main else [])}
        await asyncio.gather(*(server.close() for server in servers), *self._closing)
        await asyncio.sleep(0)  # the turn of the loop in which sockets are really closed

    async def _ask(
        self,
        command: bytes,
        script: Script,
        arguments: Arguments,
        lost: LinkLost | None = None,
    ) -> Any:
        """Makes the attempts, and tells `on_late` of those that the call did not end with."""
        attempts = RedisAttempts([] if lost is None else [lost])
        try:
            return await self._attempt(attempts, command, str(arguments[0]), script)
        finally:
            attempts.tell(partial(self.on_late, script, arguments))

    async def _attempt(
        self, attempts: RedisAttempts, command: bytes, key: str, script: Script | None = None
    ) -> Any:
        """Finds the server, connects, and follows redirects."""
        loop = asyncio.get_running_loop()
        reply: object = attempts.lost[0] if attempts.lost else None
        deadline_s = loop.time() + (MAX_ATTEMPTS - len(attempts.lost)) * self.budget_s
        server: _Server | None = None
        is_asking = False
        for _ in range(MAX_ATTEMPTS + MAX_REDIRECTS):
            try:
                if server is None:
                    server = await self._server_for(key, deadline_s, is_lost=reply is not None)
                reply = await attempts.first_reply(
                    server.ask(command, deadline_s, is_asking=is_asking)
                )
                if isinstance(reply, RedisError) and reply.code == "NOSCRIPT" and script:
                    try:
                        await server.ask(script.load_command, deadline_s)
                    except LinkLost as error:  # its late reply is none to the call
                        raise LinkLost(str(error)) from error
                    continue
            except LinkLost as error:
                attempts.lost.append(error)
                reply, server, is_asking = error, None, False
                if len(attempts.lost) >= MAX_ATTEMPTS:
                    break
                continue
            if not isinstance(reply, RedisError):
                return reply
            is_asking = reply.code == "ASK"
            if reply.code in ("MOVED", "ASK"):
                server = self._server(_redirected(reply, server))
                if not is_asking:
                    self._slots[slot_of(key)] = server
                    self._map_soon()
                continue
            if reply.code not in _ELSEWHERE | _IN_BETWEEN or loop.time() + PAUSE_S >= deadline_s:
                break
            if reply.code in _ELSEWHERE:
                server.disconnect(str(reply))
            server = None
            await asyncio.sleep(PAUSE_S)
        raise self._away(f"Redis: {reply}")

    async def _server_for(self, key: str, deadline_s: float, *, is_lost: bool) -> "_Server":
        """Returns a key's server, after a lost attempt by a new slot map, or raises `LinkLost`."""
        if self._main is not None:
            return self._main
        slot = slot_of(key)
        if is_lost or self._slots[slot] is None:
            await self._map(deadline_s)
        server = self._slots[slot]
        if server is None:
            raise LinkLost("no node of the Cluster has that slot")
        return server

    def _server(self, address: Address) -> "_Server":
        return self._servers.setdefault(address, _Server(self, address))

    def _map_soon(self) -> "asyncio.Task[None] | None":
        """Starts to read the slot map, once for all callers and per `RECONNECT_PAUSE_S`."""
        if self._main is not None:
            return None
        loop = asyncio.get_running_loop()
        if self._mapping is None or self._mapping.done():
            if self._mapped_s and loop.time() - self._mapped_s < RECONNECT_PAUSE_S:
                return None
            self._mapping = asyncio.create_task(self._read_map())
        return self._mapping

    async def _map(self, deadline_s: float) -> None:
        mapping = self._map_soon()
        if mapping is not None:
            await done_within(mapping, deadline_s - asyncio.get_running_loop().time())

    async def _read_map(self) -> None:
        """Requests the slots from every known node at once, and takes what most of them say.

        A node that the others have given up knows nothing of it: the first reply may be an old one.
        """
        loop = asyncio.get_running_loop()
        command = pack(("CLUSTER", "SLOTS"))
        known = sorted({*self._servers, *self._target.addresses, *self._nodes})[:MAX_NODES]
        deadline_s = loop.time() + self.budget_s
        questions = ((a, self._server(a).ask(command, deadline_s)) for a in known)
        asked = {asyncio.ensure_future(question): address for address, question in questions}
        pending = set(asked)
        votes: Counter[str] = Counter()
        maps: dict[str, tuple[list[Any], Address]] = {}
        try:
            while pending and max(votes.values(), default=0) <= len(asked) // 2:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for answer in done:
                    if answer.exception() is None and isinstance(answer.result(), list):
                        ranges = sorted(answer.result(), key=lambda each: int(each[0]))
                        said = str([each[:3] for each in ranges])
                        votes[said] += 1
                        maps[said] = (ranges, asked[answer])
        finally:
            self._mapped_s = loop.time()
            for answer in pending:
                answer.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        if votes:
            self._take_map(*maps[votes.most_common(1)[0][0]])

    def _take_map(self, ranges: list[Any], asked: Address) -> None:
        slots: list[_Server | None] = [None] * NUM_SLOTS
        nodes: set[Address] = set()
        for first, last, *of_slots in ranges:
            addresses = [(each[0].decode() if each[0] else asked[0], each[1]) for each in of_slots]
            nodes.update(addresses)
            slots[first : last + 1] = [self._server(addresses[0])] * (last + 1 - first)
        self._nodes = frozenset(nodes)
        self._slots = slots
        masters = set(slots)
        for address in [a for a, server in self._servers.items() if server not in masters]:
            closing = asyncio.create_task(self._servers.pop(address).close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def open_link(self, address: Address | None) -> RedisLink:
        """Opens a connection, without an address to the Sentinels' master, or raises `LinkLost`."""
        target = self._target
        server = await self._masters_address() if address is None else address
        link = await self._connect(server, target.username, target.password)
        link.on_broken = lambda: self.on_broken()
        if target.db:
            await self._greet(link, "SELECT", target.db)
        if address is None and (await self._greet(link, "ROLE"))[0] != b"master":
            link.close("it is not the master")
            raise LinkLost(f"the Sentinels name {server}, which is no master yet")
        return link

    async def _masters_address(self) -> Address:
        """Returns the first address that a Sentinel replies with, or raises `LinkLost`."""
        asked = [asyncio.ensure_future(self._ask_sentinel(a)) for a in self._target.addresses]
        try:
            for answer in asyncio.as_completed(asked):
                address = await answer
                if address is not None:
                    return address
        finally:
            for each in asked:
                each.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        raise LinkLost(f"no Sentinel answers or knows a master {self._target.master!r}")

    async def _ask_sentinel(self, sentinel: Address) -> Address | None:
        target = self._target
        try:
            link = await self._connect(sentinel, target.sentinel_username, target.sentinel_password)
            try:
                question = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", target.master)
                found = await self._greet(link, *question)
            finally:
                link.close("the Sentinel has answered")
        except LinkLost:
            return None
        return None if found is None else (found[0].decode(), int(found[1]))

    async def _connect(
        self, address: Address, username: str | None, password: str | None
    ) -> RedisLink:
        loop = asyncio.get_running_loop()
        host, port = address
        name = f"{host}:{port}" if port else host
        connecting: asyncio.Future[tuple[Any, RedisLink]]
        if self._target.is_unix:
            connecting = asyncio.ensure_future(loop.create_unix_connection(RedisLink, host))
        else:
            made = loop.create_connection(RedisLink, host, port, ssl=self._tls)
            connecting = asyncio.ensure_future(made)
        try:
            is_in_time = await done_within(connecting, self.budget_s)
        except asyncio.CancelledError:
            await _drop(connecting)
            raise
        if not is_in_time:
            await _drop(connecting)
            raise LinkLost(f"{name}: no connection in time")
        try:
            _, link = connecting.result()
        except OSError as error:
            raise LinkLost(f"{name}: {error}") from error
        if password is not None:
            await self._greet(link, "AUTH", *((username, password) if username else (password,)))
        return link

    async def _greet(self, link: RedisLink, *command: str | int) -> Any:
        """Sends one command of a connection's handshake."""
        deadline_s = asyncio.get_running_loop().time() + self.budget_s
        try:
            reply = await link.call(pack(command), deadline_s)
        except asyncio.CancelledError:
            link.close("nobody waits for it any more")
            raise
        if isinstance(reply, RedisError):
            link.close(str(reply))
            raise LinkLost(f"{command[0]}: {reply}")
        return reply


class _Server:
    """Connects to one server when it is needed."""

    def __init__(self, servers: RedisServers, address: Address | None) -> None:
        self._servers = servers
        self.address = address  # None: the Sentinels' master
        self.latest: RedisLink | None = None  # open or not
        self._retired: deque[RedisLink] = deque()
        self._opening: asyncio.Task[None] | None = None
        self._failed_s = 0.0
        self._why = ""

    @property
    def link(self) -> RedisLink | None:
        """Returns the connection, if it is open."""
        link = self.latest
        return link if link is not None and link.is_open else None

    async def ask(self, command: bytes, deadline_s: float, *, is_asking: bool = False) -> Any:
        """Returns the reply, errors included, or raises `LinkLost`; connects first if necessary."""
        link = self.link
        if link is None:
            link = await self._opened(deadline_s)
        now_s = asyncio.get_running_loop().time()
        by_s = max(now_s + TICK_S, min(deadline_s, now_s + self._servers.budget_s))
        if is_asking:  # in the same write, with nothing between; what fails it fails the call, too
            asking = link.call(pack(("ASKING",)), by_s)
            asking.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await link.call(command, by_s)

    def disconnect(self, why: str) -> None:
        """Closes the connection; the next call opens a new one."""
        if self.latest is not None:
            self.latest.close(why)
            self.latest = None

    async def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        self.disconnect("it is not used any more")
        while self._retired:
            self._retired.popleft().close("it is not used any more")

    async def _opened(self, deadline_s: float) -> RedisLink:
        """Shares one attempt to connect among all callers, each within its deadline."""
        if self._servers.is_closed:
            raise LinkLost("the connections are closed")
        loop = asyncio.get_running_loop()
        if self._opening is None or self._opening.done():
            if self._failed_s and loop.time() - self._failed_s < RECONNECT_PAUSE_S:
                raise LinkLost(self._why)
            self._opening = asyncio.create_task(self._open())
        await done_within(self._opening, deadline_s - loop.time())
        link = self.link
        if link is None:
            raise LinkLost(self._why or "no connection within the budget")
        return link

    async def _open(self) -> None:
        self._why = ""
        try:
            link = await self._servers.open_link(self.address)
            if self.latest is not None:
                self._retired.append(self.latest)
                if len(self._retired) > MAX_RETIRED:
                    self._retired.popleft().close("its replies are too late")
            self.latest = link
            self._failed_s = 0.0
        except LinkLost as error:
            self._failed_s = asyncio.get_running_loop().time()
            self._why = str(error)


async def _drop(connecting: "asyncio.Future[tuple[Any, RedisLink]]") -> None:
    """Closes a connection that nobody waits for any more, whether or not it is made by now."""
    connecting.cancel()
    await asyncio.wait([connecting])
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result()[1].close("nobody waits for it any more")


def slot_of(key: str) -> int:
    """Returns the Cluster's slot of a key, by its hash tag if it has one."""
    first = key.find("{")
    if first >= 0:
        last = key.find("}", first + 1)
        if last > first + 1:
            key = key[first + 1 : last]
    return crc_hqx(key.encode(), 0) % NUM_SLOTS


def _redirected(reply: RedisError, server: _Server) -> Address:
    """Returns the address in `MOVED slot host:port`; an empty host means the same host."""
    host, _, port = str(reply).split(" ")[2].rpartition(":")
    return host or (server.address or ("", 0))[0], int(port)


def _tls(target: RedisTarget) -> ssl.SSLContext | None:
    if not target.tls:
        return None
    context = ssl.create_default_context(cafile=target.tls_ca_path)
    if not target.tls_verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if target.tls_cert_path is not None:
        context.load_cert_chain(target.tls_cert_path, target.tls_key_path)
    return context
