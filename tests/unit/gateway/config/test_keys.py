"""Tests the form of keys, and peppers in versions."""

import re

import pytest

from gateway.config.keys import (
    KeyRecord,
    Peppers,
    digest_of,
    is_key_of,
    key_id_of,
    new_key,
    parse_peppers,
)

OLD, NEW = "o" * 32, "n" * 32


@pytest.mark.parametrize("chance", [bytes(40), b"\xff" * 40, bytes(range(40))])
def test_a_key_carries_its_id_and_all_of_its_chance(chance: bytes) -> None:
    key_id, key = new_key("live", chance)
    assert re.fullmatch(r"lanewise_live_[0-9A-Za-z]{11}_[0-9A-Za-z]{43}", key)
    assert key_id_of(key) == key_id
    for place in range(40):
        other = bytearray(chance)
        other[place] ^= 1
        assert new_key("live", bytes(other))[1] != key


@pytest.mark.parametrize("text", ["", "sk-lanewise-dev", "lanewise_dev_short_x", "é" * 70])
def test_other_texts_are_no_keys_of_ours(text: str) -> None:
    assert key_id_of(text) is None
    key = new_key("dev", bytes(40))[1]
    assert key_id_of(key + "0") is None


def test_a_key_under_an_old_pepper_still_holds() -> None:
    key_id, key = new_key("dev", bytes(40))
    record = KeyRecord(
        id=key_id,
        tenant_id="acme",
        digest=digest_of(key, OLD.encode()),
        pepper="v1",
        created_s=0,
        created_by="ada",
    )
    assert is_key_of(record, key, parse_peppers(f"v2:{NEW}, v1:{OLD}"))
    assert not is_key_of(record, key, parse_peppers(f"v1:{NEW}"))
    assert not is_key_of(record, key, Peppers())
    assert not is_key_of(None, key, parse_peppers(f"v1:{OLD}"))


def test_the_first_pepper_is_the_current_one() -> None:
    peppers = parse_peppers(f"v2:{NEW}\n v1:{OLD}\n")
    assert peppers.current == "v2"
    assert peppers.by_version == {"v2": NEW.encode(), "v1": OLD.encode()}


@pytest.mark.parametrize("text", ["", OLD, "v1:short", f"V1:{OLD}", f"v1:{OLD} v1:{NEW}"])
def test_odd_peppers_are_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="pepper") as caught:
        parse_peppers(text)
    assert OLD not in str(caught.value)
