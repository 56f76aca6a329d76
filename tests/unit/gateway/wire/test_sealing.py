"""Tests sealed compactions: only their tenant and the fleet's secrets open them, unchanged."""

import base64

import pytest

from backends.contract import FunctionCall, FunctionCallOutput, Message, TextPart
from gateway.config.keys import Peppers, parse_peppers
from gateway.wire.sealing import Folded, SealError, Seals, folded_from, is_sealed_here, make_seals

NEW, OLD = "n1:" + "n" * 32, "o1:" + "o" * 32
FOLDED = Folded(
    number=2,
    summary="é日本😀\x00 " + "line\n" * 1000,
    covers_all=True,
    pinned=(Message("user", (TextPart("My goal."),), "msg_1"),),
    tail=(FunctionCall("c", "look", "{}"), FunctionCallOutput("c", (TextPart("sun"),))),
)
SEALS = make_seals(parse_peppers(NEW), ["sk-one", "sk-two"])
SEALED = SEALS.seal("acme", FOLDED)


def opened(seals: Seals, tenant_id: str, content: str) -> Folded:
    return folded_from(seals.unseal(tenant_id, content))


def test_round_trips() -> None:
    assert SEALED.isascii()
    assert is_sealed_here(SEALED)
    assert "goal" not in SEALED
    assert len(SEALED) < 1_000, "it is compressed"
    assert opened(SEALS, "acme", SEALED) == FOLDED
    empty = Folded(number=0, summary="", covers_all=False)
    assert opened(SEALS, "acme", SEALS.seal("acme", empty)) == empty


def test_any_gateway_of_a_fleet_opens_it() -> None:
    """It opens with a newer pepper in front, and from before there were peppers at all."""
    rotated = make_seals(parse_peppers(f"{OLD} {NEW}"), ["sk-other"])
    assert opened(rotated, "acme", SEALED) == FOLDED
    before = make_seals(Peppers(), ["sk-two", "sk-one"]).seal("acme", FOLDED)
    assert opened(SEALS, "acme", before) == FOLDED


def damaged() -> list[str]:
    head, _, body = SEALED.rpartition(".")
    whole = bytearray(base64.urlsafe_b64decode(body))
    found = []
    for place in (0, 31, 32, len(whole) - 1):
        changed = bytearray(whole)
        changed[place] ^= 1
        found.append(f"{head}.{base64.urlsafe_b64encode(changed).decode()}")
    return [*found, f"{head}.{body[: len(body) // 8 * 4]}", f"{head}.", f"{head}.!é", "lw2.", head]


@pytest.mark.parametrize("content", damaged())
def test_what_was_changed_does_not_open(content: str) -> None:
    with pytest.raises(SealError):
        opened(SEALS, "acme", content)


@pytest.mark.parametrize(
    ("tenant_id", "seals"),
    [
        ("globex", SEALS),
        ("acme", make_seals(parse_peppers(OLD), ["sk-one", "sk-two"])),
        ("acme", make_seals(Peppers(), ["sk-one", "sk-two"])),
        ("acme", make_seals(parse_peppers("n1:" + "x" * 32), ["sk-one"])),
    ],
)
def test_nobody_else_opens_it(tenant_id: str, seals: Seals) -> None:
    with pytest.raises(SealError):
        opened(seals, tenant_id, SEALED)


@pytest.mark.parametrize("content", ["", "elsewhere", "lw1.aGVsbG8=", "gAAAAABl"])
def test_other_servers_content_is_not_ours(content: str) -> None:
    assert not is_sealed_here(content)


def test_a_turns_state_names_its_backend_to_who_signed_it() -> None:
    state = SEALS.sign_turn("acme", "gpu-0")
    assert state.isascii()
    assert len(state) < 200
    assert SEALS.turn_backend("acme", state) == "gpu-0"
    assert SEALS.turn_backend("other", state) is None, "another tenant's"
    rotated = make_seals(parse_peppers(f"{OLD} {NEW}"), ["sk-other"])
    assert rotated.turn_backend("acme", state) == "gpu-0", "any gateway of the fleet reads it"
    stranger = make_seals(parse_peppers(OLD), ["sk-one"])
    assert stranger.turn_backend("acme", state) is None


@pytest.mark.parametrize(
    "state", ["", "lt1.", "lt1.n1.", "lt1.n1.é", "lt1.n1.Z3B1LTA=", "gpu-0", SEALED, "lt1.-.AAAA"]
)
def test_what_is_no_state_of_ours_names_none(state: str) -> None:
    assert SEALS.turn_backend("acme", state) is None
    signed = SEALS.sign_turn("acme", "gpu-0")
    assert SEALS.turn_backend("acme", signed[:-8] + "AAAAAAAA") is None


def test_what_it_opens_to_is_bounded() -> None:
    whole = SEALS.unseal("acme", SEALED)
    assert SEALS.unseal("acme", SEALED, len(whole) + 1) == whole
    with pytest.raises(SealError, match="may hold 64 MiB"):
        SEALS.unseal("acme", SEALED, len(whole) - 1)
    with pytest.raises(SealError, match="may hold 64 MiB"):
        SEALS.unseal("acme", SEALED, 0)
