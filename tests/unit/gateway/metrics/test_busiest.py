"""The busiest tenants have series of their own, and the choice does not flap."""

from gateway.metrics.busiest import OTHERS, BusiestTenants


def test_there_is_room_at_first() -> None:
    tenants = BusiestTenants(most=2, most_known=10)
    assert [tenants.label(each, 1) for each in ("a", "b", "c", "a")] == ["a", "b", OTHERS, "a"]
    assert tenants.choose() == set()
    assert tenants.shown == {"a", "b"}


def test_a_busier_one_takes_the_place_of_the_idlest() -> None:
    tenants = BusiestTenants(most=2, most_known=10)
    for tenant, num_tokens in (("a", 100), ("b", 10), ("c", 50)):
        tenants.label(tenant, num_tokens)
    assert tenants.choose() == {"b"}
    assert tenants.shown == {"a", "c"}
    assert tenants.label("b", 1) == OTHERS


def test_one_that_is_hardly_busier_does_not() -> None:
    tenants = BusiestTenants(most=1, most_known=10)
    tenants.label("a", 100)
    tenants.label("b", 110)
    assert tenants.choose() == set()
    tenants.label("b", 110)
    assert tenants.choose() == {"a"}


def test_what_is_long_past_does_not_count() -> None:
    tenants = BusiestTenants(most=1, most_known=10)
    tenants.label("a", 1_000)
    for _ in range(6):
        tenants.choose()
    tenants.label("b", 100)
    assert tenants.choose() == {"a"}


def test_no_more_are_known_than_may_be() -> None:
    tenants = BusiestTenants(most=1, most_known=2)
    for number in range(10):
        tenants.label(f"t{number}", 1_000_000 if number == 9 else 1)
    tenants.choose()
    assert tenants.shown == {"t0"}  # the last was one too many
    for _ in range(2):
        tenants.choose()  # those that do nothing are forgotten
    tenants.label("t9", 1_000)
    tenants.choose()
    assert tenants.shown == {"t9"}
