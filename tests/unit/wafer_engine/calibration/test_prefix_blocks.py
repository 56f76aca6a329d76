"""Tests the blocks that a trace's prompts share, as prefixes."""

import pytest

from wafer_engine.calibration.prefix_blocks import MAX_IDS, Prefix, prefix_of


@pytest.mark.parametrize(
    ("text", "prompt_tokens", "prefix"),
    [
        ("", 700, ()),
        ("7", 300, ((7, 300),)),
        ("0-1 9", 1_300, ((0, 512), (1, 1_024), (9, 1_300))),
        ("0-5", 600, ((0, 512), (1, 600))),
    ],
)
def test_hash_ids(text: str, prompt_tokens: int, prefix: Prefix) -> None:
    assert prefix_of(text, prompt_tokens) == prefix


@pytest.mark.parametrize(
    ("text", "why"), [("1 x", "'x'"), ("0-9999999999", f"{MAX_IDS}"), ("3-", "'3-'")]
)
def test_other_texts_are_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        prefix_of(text, 1_000)
