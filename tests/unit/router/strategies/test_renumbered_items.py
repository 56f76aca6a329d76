"""Tests items of several engines in one response: renumbered, and otherwise as they were."""

import msgspec

from backends.contract import Delta, DeltaKind
from router.strategies.items import Items


def test_a_renumbered_delta_keeps_all_else() -> None:
    items = Items()
    first = Delta(0, DeltaKind.TEXT, "One.", 1, 10)
    assert items.forward(0, first, None).delta is first
    whole = Delta(0, DeltaKind.TEXT, "No.", 2, 20, "call", "name", "sealed", "commentary", True)
    assert all(
        getattr(whole, field.name) != field.default
        for field in msgspec.structs.fields(Delta)
        if field.default is not msgspec.NODEFAULT
    ), "a new field must be named here, too"
    assert items.forward(1, whole, None).delta == msgspec.structs.replace(whole, index=1)
