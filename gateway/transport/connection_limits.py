"""Counts a process's connections by address and by key, and knows which have had their time.

A connection is counted for its address until it shows a valid key, and then for that key. Without a
key it lives for a bounded time, and while it has asked nothing it gives way to newer ones. What is
being read has a deadline, too, which every byte of a body moves on.

Time is that of `advance`, which leaves out what the process slept through: a client is not late
because we were.
"""

from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import Literal

import msgspec

from gateway.transport.byte_budgets import Budgets, ByteBudgets

# Why a connection was cut or refused.
Cut = Literal["no_key", "head", "body", "handshake", "address", "key", "descriptors"]
FREE_BYTES = 64 << 10  # that a message may grow by before it is counted
IPV6_SITE_BITS = 64  # of an IPv6 address name the site; it hands out the others as it likes


class ConnectionBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Says how many connections there may be, and how long what they send may take."""

    max_per_key: int
    max_per_address: int  # without a key
    without_key_s: float
    head_s: float  # from the first byte of a request to the end of its headers
    body_s: float  # from there to the end of its body, and longer for each byte that came
    body_bytes_per_s: float


class HalfRead(msgspec.Struct):
    """Is a request or a message of which some has arrived."""

    began_s: float
    in_head: bool
    is_held: Callable[[], bool]  # we do not read on: its time stands still
    num_bytes: int = 0


class Visit:
    """Is one connection, as it is counted and timed."""

    __slots__ = (
        "_limits",
        "address",
        "began_s",
        "close",
        "cut",
        "held_bytes",
        "is_answering",
        "is_gone",
        "is_last_resort",
        "is_proxied",
        "key_id",
        "reading",
        "tenant_id",
    )

    def __init__(self, limits: "ConnectionLimits", began_s: float) -> None:
        self._limits = limits
        self.began_s = began_s
        self.address: str | None = None  # that it is counted for; None: for none
        self.key_id = ""
        self.held_bytes = 0  # of a message that is half read, counted for its tenant
        self.tenant_id = ""  # whose valid key it showed last
        self.is_proxied = False  # its headers may name the client's address
        self.is_gone = False  # what is left of it may still ask, and counts no more
        self.is_answering = False  # a whole head came, and its response is not complete
        self.is_last_resort = False  # it has a descriptor of the reserve
        self.reading: HalfRead | None = None
        self.cut: Callable[[], object] = _nothing  # at once
        self.close: Callable[[], object] = _nothing  # after what is written was sent

    def comes_from(self, address: str) -> bool:
        """Counts the connection for an address that a proxy named; false if that has too many."""
        return self._limits.move(self, address)

    def shows(self, key_id: str) -> bool:
        """Counts the connection for a valid key; false if that has too many."""
        return key_id == self.key_id or self._limits.unlock(self, key_id)

    def leave(self) -> None:
        """Counts the connection no more; harmless when repeated."""
        self._limits.leave(self)

    def read(self, num_bytes: int, *, in_head: bool, is_held: Callable[[], bool]) -> None:
        """Notes bytes of a request or message that is not whole; its deadline begins with it."""
        if self.is_gone:
            return
        if self.reading is None or self.reading.in_head != in_head:
            self.reading = HalfRead(self._limits.now_s, in_head, is_held)
            self._limits.reading[self] = self.reading
        self.reading.num_bytes += num_bytes

    def holds(self) -> bool:
        """Counts what is half read for its tenant; false if that has too much in flight."""
        more = 0 if self.reading is None else self.reading.num_bytes - self.held_bytes
        if more < FREE_BYTES or not self.tenant_id:
            return True
        if not self._limits.in_flight.take(self.tenant_id, more):
            return False
        self.held_bytes += more
        return True

    @property
    def max_held_bytes(self) -> int:
        """Returns what one tenant may have in flight."""
        return self._limits.in_flight.max_tenant_bytes

    def cut_for(self, why: Cut) -> None:
        """Reports why its protocol ends it."""
        self._limits.on_cut(why)

    def read_whole(self) -> None:
        """Notes that nothing is half read."""
        if self.held_bytes:
            self._limits.in_flight.give(self.tenant_id, self.held_bytes)
            self.held_bytes = 0
        if self.reading is not None:
            self.reading = None
            del self._limits.reading[self]


class ConnectionLimits:
    """Bounds the connections of a process."""

    def __init__(
        self,
        bounds: ConnectionBounds,
        on_cut: Callable[[Cut], None],
        on_count: Callable[[str, int], None] = lambda key, number: None,
        in_flight: ByteBudgets | None = None,
    ) -> None:
        """Reports why each was cut or refused, and as time passes how many there are."""
        self.in_flight = in_flight or Budgets().in_flight
        self.bounds = bounds
        self.on_cut = on_cut
        self._on_count = on_count
        self.now_s = 0.0
        self.reading: dict[Visit, HalfRead] = {}
        self._locked: dict[Visit, None] = {}  # those without a key, the oldest first
        self._by_address: dict[str, dict[Visit, None]] = {}
        self._by_key: dict[str, int] = {}

    def enter(self, address: str | None) -> Visit | None:
        """Counts a new connection; None: its address has too many, and all are being answered.

        No address: it is a proxy's, which speaks for many.
        """
        visit = Visit(self, self.now_s)
        if address is None:
            visit.is_proxied = True
        elif not self.move(visit, address):
            return None
        self._locked[visit] = None
        return visit

    def move(self, visit: Visit, address: str) -> bool:
        """Counts a connection for this address; one that waits there gives way to it."""
        site = _site(address)
        if site == visit.address or visit.key_id or visit.is_gone:
            return True
        visits = self._by_address.get(site, {})
        if len(visits) >= self.bounds.max_per_address:
            oldest = next((each for each in visits if not each.is_answering), None)
            self.on_cut("address")
            if oldest is None:
                return False
            oldest.cut()
            self.leave(oldest)
        self._forget_address(visit)
        visit.address = site
        self._by_address.setdefault(site, {})[visit] = None
        return True

    def unlock(self, visit: Visit, key_id: str) -> bool:
        """Counts a connection for this key, and no more for an address."""
        if visit.is_gone:
            return True
        if self._by_key.get(key_id, 0) >= self.bounds.max_per_key:
            self.on_cut("key")
            return False
        self._forget_address(visit)
        self._forget_key(visit)
        self._locked.pop(visit, None)
        visit.key_id = key_id
        self._by_key[key_id] = self._by_key.get(key_id, 0) + 1
        return True

    def leave(self, visit: Visit) -> None:
        """Counts a connection no more."""
        visit.is_gone = True
        visit.cut = visit.close = _nothing  # they hold the transport, which holds this
        visit.read_whole()
        self._forget_address(visit)
        self._forget_key(visit)
        self._locked.pop(visit, None)

    def make_room(self) -> bool:
        """Cuts the oldest connection without a key that waits; false: there is none."""
        oldest = next((each for each in self._locked if not each.is_answering), None)
        if oldest is None:
            return False
        self.on_cut("descriptors")
        oldest.cut()
        self.leave(oldest)
        return True

    def advance(self, elapsed_s: float) -> None:
        """Lets time pass, and cuts whoever has had theirs."""
        self.now_s += elapsed_s
        for visit, reading in list(self.reading.items()):
            if reading.is_held():
                reading.began_s += elapsed_s
            elif self.now_s - reading.began_s > self._time_to_read_s(reading):
                self._cut(visit, "head" if reading.in_head else "body")
        for visit in list(self._locked):
            age_s = self.now_s - visit.began_s
            if age_s > self.bounds.without_key_s:
                self._cut(visit, "no_key")
            elif age_s <= self.bounds.without_key_s / 2:
                break  # they stand in the order in which they came
            elif not visit.is_answering and visit.reading is None and visit.close is not _nothing:
                self.on_cut("no_key")
                visit.close()  # early, so that none is cut in the middle of an answer
                visit.close = _nothing
        self._on_count("with", sum(self._by_key.values()))
        self._on_count("without", len(self._locked))

    def _time_to_read_s(self, reading: HalfRead) -> float:
        if reading.in_head:
            return self.bounds.head_s
        return self.bounds.body_s + reading.num_bytes / self.bounds.body_bytes_per_s

    def _cut(self, visit: Visit, why: Cut) -> None:
        self.on_cut(why)
        visit.cut()
        self.leave(visit)

    def _forget_address(self, visit: Visit) -> None:
        if visit.address is None:
            return
        visits = self._by_address[visit.address]
        del visits[visit]
        if not visits:
            del self._by_address[visit.address]
        visit.address = None

    def _forget_key(self, visit: Visit) -> None:
        if not visit.key_id:
            return
        self._by_key[visit.key_id] -= 1
        if not self._by_key[visit.key_id]:
            del self._by_key[visit.key_id]
        visit.key_id = ""


def uncounted() -> Visit:
    """Returns the visit of a connection that is not bounded, as tests make them."""
    bounds = ConnectionBounds(
        max_per_key=1,
        max_per_address=1,
        without_key_s=1,
        head_s=1,
        body_s=1,
        body_bytes_per_s=1,
    )
    return Visit(ConnectionLimits(bounds, lambda why: None), 0.0)


def _site(address: str) -> str:
    """Returns what an address is counted as: of IPv6 the network that one site has."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return f"{int(parsed) >> (128 - IPV6_SITE_BITS):x}::/{IPV6_SITE_BITS}"


def _nothing() -> None:
    """Closes what is not open yet."""
