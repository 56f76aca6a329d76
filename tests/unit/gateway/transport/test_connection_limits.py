"""Connections are counted by address and by key, and have their time."""

from gateway.transport.connection_limits import ConnectionBounds, ConnectionLimits, Visit

BOUNDS = ConnectionBounds(
    max_per_key=2,
    max_per_address=2,
    without_key_s=30.0,
    head_s=10.0,
    body_s=20.0,
    body_bytes_per_s=100.0,
)


class Counted:
    """Holds limits, with what was cut and closed."""

    def __init__(self) -> None:
        self.why: list[str] = []
        self.cut: list[str] = []
        self.closed: list[str] = []
        self.limits = ConnectionLimits(BOUNDS, self.why.append)

    def enter(self, name: str, address: str | None = "192.0.2.1") -> Visit:
        visit = self.limits.enter(address)
        assert visit is not None
        visit.cut = lambda: self.cut.append(name)
        visit.close = lambda: self.closed.append(name)
        return visit


def test_the_oldest_that_waits_gives_way_at_its_address() -> None:
    world = Counted()
    world.enter("a").is_answering = True
    world.enter("b")
    world.enter("c").is_answering = True
    assert world.cut == ["b"]

    assert world.limits.enter("192.0.2.1") is None  # both are being answered
    world.enter("d", "192.0.2.2")
    assert world.cut == ["b"]
    assert world.why == ["address", "address"]


def test_one_ipv6_site_is_one_address() -> None:
    world = Counted()
    for number in range(3):
        world.enter(str(number), f"2001:db8::{number}")
    world.enter("other", "2001:db8:0:1::1")
    assert world.cut == ["0"]


def test_a_key_counts_instead_of_the_address() -> None:
    world = Counted()
    first, second, third = (world.enter(name, f"192.0.2.{name}") for name in "123")
    assert first.shows("k")
    assert first.shows("k")  # again: counted once
    assert second.shows("k")
    assert not third.shows("k")
    assert world.why == ["key"]
    first.leave()
    first.leave()
    assert third.shows("k")
    assert first.shows("k")  # it is gone, and counts no more
    assert not world.enter("4").shows("k")

    world.limits.advance(31.0)
    assert world.cut == ["4"]  # not those with a key


def test_without_a_key_a_connection_is_closed_early_and_cut_in_the_end() -> None:
    world = Counted()
    busy, idle = world.enter("busy"), world.enter("idle")
    busy.is_answering = True
    world.limits.advance(16.0)
    world.limits.advance(1.0)
    assert world.closed == ["idle"]
    idle.leave()
    world.limits.advance(15.0)
    assert world.cut == ["busy"]
    assert world.why == ["no_key", "no_key"]


def test_a_head_has_its_time() -> None:
    world = Counted()
    visit = world.enter("a")
    visit.shows("k")
    for _ in range(11):  # bytes do not help
        visit.read(1, in_head=True, is_held=lambda: False)
        world.limits.advance(1.0)
    assert world.cut == ["a"]
    assert world.why == ["head"]


def test_each_byte_of_a_body_gives_it_more_time() -> None:
    world = Counted()
    for name, rate in (("slow", 50), ("fast", 100)):
        visit = world.enter(name)
        visit.shows(name)
        visit.read(0, in_head=False, is_held=lambda: False)
        for _ in range(60):
            visit.read(rate, in_head=False, is_held=lambda: False)
            world.limits.advance(1.0)
    assert world.cut == ["slow"]


def test_while_we_do_not_read_the_time_of_a_body_stands_still() -> None:
    world = Counted()
    visit = world.enter("a")
    visit.shows("k")
    visit.read(1, in_head=False, is_held=lambda: True)
    world.limits.advance(100.0)
    assert world.cut == []
    visit.read_whole()
    world.limits.advance(100.0)
    assert world.cut == []


def test_a_proxys_connection_counts_for_whom_it_speaks_for() -> None:
    world = Counted()
    proxied = [world.enter(str(number), None) for number in range(5)]
    assert all(visit.is_proxied for visit in proxied)
    assert proxied[0].comes_from("192.0.2.1")
    assert proxied[1].comes_from("192.0.2.1")
    assert proxied[1].comes_from("192.0.2.1")
    assert world.cut == []
    assert proxied[1].comes_from("192.0.2.2")
    assert proxied[2].comes_from("192.0.2.1")
    assert world.cut == []


def test_room_is_made_by_the_oldest_without_a_key() -> None:
    world = Counted()
    world.enter("a").shows("k")
    world.enter("b").is_answering = True
    world.enter("c")
    assert world.limits.make_room()
    assert not world.limits.make_room()
    assert world.cut == ["c"]
