"""Compaction items: folded and back, and whatever else comes is left as it is."""

import pytest

from backends.contract import Compaction, Message, TextPart
from gateway.folding import MAX_UNFOLDED_BYTES, fold, unfold

TEXTS = ["", "hi", "é日本😀\x00", "line\n" * 1000]


def unfolded(content: str) -> str:
    item = unfold(Compaction(content, "cmp_1"))
    assert isinstance(item, Message)
    assert (item.role, item.id) == ("developer", "cmp_1")
    (part,) = item.content
    assert isinstance(part, TextPart)
    return part.text.partition("\n")[2]


@pytest.mark.parametrize("text", TEXTS)
def test_round_trips(text: str) -> None:
    folded = fold(text)
    assert folded.isascii()
    assert unfolded(folded) == text


@pytest.mark.parametrize(
    "content", ["", "elsewhere", "lw1.!", "lw1.é", "lw1.aGVsbG8=", "lw2." + fold("x")[4:]]
)
def test_what_is_not_ours_stays(content: str) -> None:
    item = Compaction(content, "cmp_1")
    assert unfold(item) == item


def test_a_small_item_does_not_unfold_into_a_huge_one() -> None:
    bomb = fold("é" * MAX_UNFOLDED_BYTES)
    assert len(bomb) < 10_000
    assert len(unfolded(bomb).encode()) <= MAX_UNFOLDED_BYTES


def test_a_cut_item_gives_what_it_holds() -> None:
    whole = "".join(str(number) for number in range(5000))
    folded = fold(whole)
    assert whole.startswith(unfolded(folded[: len(folded) // 8 * 4]))
