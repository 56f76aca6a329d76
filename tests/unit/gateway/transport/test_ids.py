"""Ids are of the length and the alphabet that item ids are cut from, and no two are alike."""

import re

from gateway.transport.ids import ID_CHARS, new_id


def test_ids_over_several_readings_of_randomness() -> None:
    found = [new_id() for _ in range(1_000)]
    assert len(set(found)) == 1_000
    assert all(re.fullmatch(f"[0-9a-f]{{{ID_CHARS}}}", each) for each in found)
