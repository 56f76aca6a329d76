"""Calls to Redis wherever it is: one server, a Sentinel's master, or the nodes of a Cluster.

Every call has a budget for one attempt and makes two at most, the second on a fresh connection to
wherever the topology then points: a failover that is over costs no call, and one that is not fails
at once. Only what is safe to repeat may be called: it may have been carried out without an answer.

What a server answers instead of a result is seen to where something can be done:

    NOSCRIPT                         the script is sent along
    MOVED                            the node that has the slot now; the map is read anew
    ASK                              the node that is taking the slot over, this once
    READONLY, MASTERDOWN, LOADING    no master, or not yet: connect anew, asking Sentinels first
    CLUSTERDOWN, TRYAGAIN            in between: a pause, then again
    anything else (OOM, NOPERM)      the call's failure, at once

An edge: it uses the event loop.
"""

import asyncio
import hashlib
import ssl
from binascii import crc_hqx
from collections.abc import Coroutine
from typing import Any

from router.redis.connection import LinkLost, RedisError, RedisLink, pack
from router.redis.url import Address, RedisTarget

MAX_ATTEMPTS = 2  # that may wait for an answer
MAX_REDIRECTS = 5  # answers that say where or when to ask again
PAUSE_S = 0.01  # before asking again what is in between
RECONNECT_PAUSE_S = 0.02  # between two attempts to connect; calls in it fail at once
NUM_SLOTS = 16_384

_ELSEWHERE = {"READONLY", "MASTERDOWN", "LOADING"}
_IN_BETWEEN = {"CLUSTERDOWN", "TRYAGAIN", "LOADING"}


class RedisAway(Exception):  # noqa: N818 - says what is the case, as TimeoutError does
    """No answer in time, or an error that nothing can be done about here."""


class Script:
    """A Lua script, called by its digest and sent along where a server does not know it."""

    def __init__(self, source: str, num_keys: int) -> None:
        self.source = source
        self.num_keys = num_keys
        self.sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
        self.load_command = pack(("SCRIPT", "LOAD", source))


class RedisServers:
    """See the module. Connects at the first call; for one event loop.

    Raises:
        RedisAway: Every call, when awaited; nothing is known about its effect.
    """

    def __init__(self, target: RedisTarget, *, budget_us: int) -> None:
        self._target = target
        self.budget_s = budget_us / 1e6  # for one attempt
        self._tls = _tls(target)
        self._servers: dict[Address, _Server] = {}
        self._main = _Server(self, None) if target.kind == "sentinel" else None
        if target.kind == "single":
            self._main = self._server(target.addresses[0])
        self._slots: list[_Server | None] = [None] * NUM_SLOTS
        self._mapping: asyncio.Task[None] | None = None
        self._mapped_s = 0.0
        self._is_closed = False

    def run(self, script: Script, arguments: tuple[str | int, ...]) -> Coroutine[Any, Any, Any]:
        """Call a script that is safe to repeat; its first key says where. To be awaited.

        `arguments` are its keys, then its ARGV. Over an open connection the call is sent before
        this returns, so its effect comes before that of later calls, whenever it is awaited.
        """
        command = pack(("EVALSHA", script.sha, script.num_keys, *arguments))
        server = self._main
        if server is None:
            server = self._slots[slot_of(str(arguments[0]))]
        link, key = None if server is None else server.link, str(arguments[0])
        if link is None:
            return self._ask(command, key, script)
        try:
            sent = link.call(command, link.now_s() + self.budget_s)
        except LinkLost as error:
            return self._ask(command, key, script, error)
        return self._answer(sent, command, key, script)

    async def _answer(
        self, sent: "asyncio.Future[Any]", command: bytes, key: str, script: Script
    ) -> Any:
        """What was sent has this answer; as good as every call goes this way."""
        try:
            reply = await sent
        except LinkLost as error:
            return await self._ask(command, key, script, error)
        return await self._ask(command, key, script) if isinstance(reply, RedisError) else reply

    async def call(self, key: str, *arguments: str | int) -> Any:
        """Any command on that key that is safe to repeat."""
        return await self._ask(pack(arguments), key)

    async def ping(self) -> None:
        """Returns if every server that was in use, or else the first, answers."""
        now_s = asyncio.get_running_loop().time
        if self._main is None and not any(self._slots):
            await self._map(now_s() + self.budget_s)
        servers = [self._main] if self._main else list({s for s in self._slots if s is not None})
        deadline_s = now_s() + MAX_ATTEMPTS * self.budget_s
        try:
            replies = await asyncio.gather(*(s.ask(pack(("PING",)), deadline_s) for s in servers))
        except LinkLost as error:
            raise RedisAway(str(error)) from error
        for reply in replies:
            if isinstance(reply, RedisError):
                raise RedisAway(str(reply))

    async def close(self) -> None:
        """Close every connection; what waits fails, and so does what comes later."""
        self._is_closed = True
        if self._mapping is not None:
            self._mapping.cancel()
            await asyncio.gather(self._mapping, return_exceptions=True)
        servers = {*self._servers.values(), *([self._main] if self._main else [])}
        await asyncio.gather(*(server.close() for server in servers))

    # -- asking again --------------------------------------------------------------------------

    async def _ask(
        self, command: bytes, key: str, script: Script | None = None, lost: LinkLost | None = None
    ) -> Any:
        """The whole way: find the server, connect, follow what it answers. `lost`: one attempt."""
        loop = asyncio.get_running_loop()
        reply: object = lost
        num_attempts = 0 if lost is None else 1
        deadline_s = loop.time() + (MAX_ATTEMPTS - num_attempts) * self.budget_s
        server: _Server | None = None
        is_asking = False
        for _ in range(MAX_ATTEMPTS + MAX_REDIRECTS):
            if self._is_closed:
                reply = "the connections are closed"
                break
            try:
                if server is None:
                    server = await self._server_for(key, deadline_s, is_lost=reply is not None)
                reply = await server.ask(command, deadline_s, is_asking=is_asking)
                if isinstance(reply, RedisError) and reply.code == "NOSCRIPT" and script:
                    await server.ask(script.load_command, deadline_s)
                    continue
            except LinkLost as error:
                num_attempts += 1
                reply, server, is_asking = error, None, False
                if num_attempts >= MAX_ATTEMPTS:
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
        raise RedisAway(str(reply))

    # -- where things are ----------------------------------------------------------------------

    async def _server_for(self, key: str, deadline_s: float, *, is_lost: bool) -> "_Server":
        """The server of a key; in a Cluster from a new map if the last attempt failed.

        Raises:
            LinkLost: The map could not be read.
        """
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
        """Read the map anew, once for all who ask; not again within `RECONNECT_PAUSE_S`."""
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
            await asyncio.wait([mapping], timeout=deadline_s - asyncio.get_running_loop().time())

    async def _read_map(self) -> None:
        """Ask every known node at once for the slots; the first whole answer counts."""
        loop = asyncio.get_running_loop()
        command = pack(("CLUSTER", "SLOTS"))
        known = {*self._servers, *self._target.addresses}
        deadline_s = loop.time() + self.budget_s
        questions = ((a, self._server(a).ask(command, deadline_s)) for a in known)
        asked = {asyncio.ensure_future(question): address for address, question in questions}
        pending = set(asked)
        try:
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for answer in done:
                    if answer.exception() is None and isinstance(answer.result(), list):
                        self._take_map(answer.result(), asked[answer])
                        return
        finally:
            self._mapped_s = loop.time()
            for answer in pending:
                answer.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    def _take_map(self, ranges: list[Any], asked: Address) -> None:
        slots: list[_Server | None] = [None] * NUM_SLOTS
        for first, last, master, *_ in ranges:
            host = master[0].decode() if master[0] else asked[0]
            server = self._server((host, master[1]))
            slots[first : last + 1] = [server] * (last + 1 - first)
        self._slots = slots
        masters = set(slots)
        for address in [a for a, server in self._servers.items() if server not in masters]:
            self._servers.pop(address).disconnect("the Cluster has no such master any more")

    # -- making connections --------------------------------------------------------------------

    async def open_link(self, address: Address | None) -> RedisLink:
        """A connection that is ready for commands; without an address to the Sentinels' master.

        Raises:
            LinkLost: Nobody is there, or does not let us in.
        """
        target = self._target
        server = await self._masters_address() if address is None else address
        link = await self._connect(server, target.username, target.password)
        if target.db:
            await self._greet(link, "SELECT", target.db)
        if address is None and (await self._greet(link, "ROLE"))[0] != b"master":
            link.close("it is not the master")
            raise LinkLost(f"the Sentinels name {server}, which is no master yet")
        return link

    async def _masters_address(self) -> Address:
        """What the first Sentinel says that knows; `LinkLost` if none does."""
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
        try:
            async with asyncio.timeout(self.budget_s):
                if self._target.is_unix:
                    _, link = await loop.create_unix_connection(RedisLink, host)
                else:
                    _, link = await loop.create_connection(RedisLink, host, port, ssl=self._tls)
        except (OSError, TimeoutError) as error:
            name = f"{host}:{port}" if port else host
            raise LinkLost(f"{name}: {error or 'no connection in time'}") from error
        if password is not None:
            await self._greet(link, "AUTH", *((username, password) if username else (password,)))
        return link

    async def _greet(self, link: RedisLink, *command: str | int) -> Any:
        """One of the first commands on a connection."""
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
    """One server, connected to when it is needed."""

    def __init__(self, servers: RedisServers, address: Address | None) -> None:
        self._servers = servers
        self.address = address  # None: the Sentinels' master
        self._link: RedisLink | None = None
        self._opening: asyncio.Task[None] | None = None
        self._failed_s = 0.0
        self._why = ""

    @property
    def link(self) -> RedisLink | None:
        """The connection, if there is one."""
        link = self._link
        return link if link is not None and link.is_open else None

    async def ask(self, command: bytes, deadline_s: float, *, is_asking: bool = False) -> Any:
        """The answer, an error included, or `LinkLost`; connects first if need be."""
        link = self.link
        if link is None:
            link = await self._opened(deadline_s)
        now_s = asyncio.get_running_loop().time()
        by_s = min(deadline_s, now_s + self._servers.budget_s)
        if is_asking:
            hello = link.call(pack(("ASKING",)), by_s)
            answer = link.call(command, by_s)  # in the same write, with nothing between
            await hello
            return await answer
        return await link.call(command, by_s)

    def disconnect(self, why: str) -> None:
        """The next call connects anew."""
        if self._link is not None:
            self._link.close(why)
            self._link = None

    async def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        self.disconnect("the pools are closed")

    async def _opened(self, deadline_s: float) -> RedisLink:
        """One attempt for all who wait; they wait no longer than their calls may."""
        loop = asyncio.get_running_loop()
        if self._opening is None or self._opening.done():
            if self._failed_s and loop.time() - self._failed_s < RECONNECT_PAUSE_S:
                raise LinkLost(self._why)
            self._opening = asyncio.create_task(self._open())
        await asyncio.wait([self._opening], timeout=deadline_s - loop.time())
        link = self.link
        if link is None:
            raise LinkLost(self._why or "no connection within the budget")
        return link

    async def _open(self) -> None:
        self._why = ""
        try:
            self._link = await self._servers.open_link(self.address)
            self._failed_s = 0.0
        except LinkLost as error:
            self._failed_s = asyncio.get_running_loop().time()
            self._why = str(error)


def slot_of(key: str) -> int:
    """The key's slot in a Cluster: of its hash tag, if it has one."""
    first = key.find("{")
    if first >= 0:
        last = key.find("}", first + 1)
        if last > first + 1:
            key = key[first + 1 : last]
    return crc_hqx(key.encode(), 0) % NUM_SLOTS


def _redirected(reply: RedisError, server: _Server) -> Address:
    """Where `MOVED slot host:port` points; without a host to the same one's other port."""
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
