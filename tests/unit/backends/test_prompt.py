"""Tests sizes and identities of prompts."""

import pytest

from backends import prompt
from backends.contract import (
    Compaction,
    CustomToolCall,
    FilePart,
    FunctionCall,
    FunctionCallOutput,
    FunctionTool,
    ImagePart,
    Item,
    Message,
    Reasoning,
    TextFormat,
    TextPart,
)
from backends.prompt import (
    FILE_TOKENS,
    IMAGE_LOW_TOKENS,
    IMAGE_TOKENS,
    ITEM_OVERHEAD_TOKENS,
    cache_salt,
    end_prefix,
    measure,
    prompt_size,
)
from backends.tokenizer import count

TEXT = TextFormat()


def message(text: str, role: str = "user", **fields: str) -> Message:
    return Message(role, (TextPart(text),), **fields)  # type: ignore[arg-type]


def sized(*items: Item, instructions: str | None = None) -> tuple[int, tuple[tuple[int, int], ...]]:
    return prompt_size(instructions, (), TEXT, [measure(item) for item in items])


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (message("a"), message("a", id="msg_1", phase="final_answer"), True),
        (message("a"), message("b"), False),
        (message("a"), message("a", role="assistant"), False),
        (FunctionCall("c", "f", "{}"), FunctionCall("c", "f", "{}", id="fc_1"), True),
        (FunctionCall("c", "f", "{}"), FunctionCall("d", "f", "{}"), False),
        (FunctionCall("c", "f", "{}"), FunctionCall("c", "f", "{}", namespace="n"), False),
        (FunctionCall("c", "f", "x"), CustomToolCall("c", "f", "x"), False),
        (Compaction("x"), Compaction("x", id="cmp_1"), True),
        (Compaction("x"), Compaction("y"), False),
        (Message("user", (ImagePart("u"),)), Message("user", (ImagePart("v"),)), False),
    ],
)
def test_equal_items_have_equal_digests(one: Item, other: Item, same: bool) -> None:
    assert (measure(one).digest == measure(other).digest) is same


@pytest.mark.parametrize(
    ("part", "num_tokens"),
    [
        (ImagePart("https://example.com/a.png"), IMAGE_TOKENS),
        (ImagePart("https://example.com/a.png", detail="low"), IMAGE_LOW_TOKENS),
        (FilePart(file_id="file_1"), FILE_TOKENS),
        (FilePart(filename="a.txt", file_data="A" * 1_600), 300),
    ],
)
def test_attachments_weigh_a_fixed_amount(part: ImagePart | FilePart, num_tokens: int) -> None:
    plain = measure(Message("user", (TextPart("look"),))).num_tokens
    both = measure(Message("user", (TextPart("look"), part))).num_tokens
    assert num_tokens <= both - plain <= num_tokens + 20  # and its name in brackets


def test_inline_data_weighs_by_its_size_not_its_address() -> None:
    small = measure(Message("user", (ImagePart("data:image/png;base64," + "A" * 500),)))
    large = measure(Message("user", (ImagePart("data:image/png;base64," + "B" * 900_000),)))
    assert abs(large.num_tokens - small.num_tokens) < 10
    assert large.digest != small.digest


def test_the_prompt_is_the_sum_of_its_items() -> None:
    num_tokens, prefix = sized(message("one two"), message("three"))
    assert num_tokens == 2 * ITEM_OVERHEAD_TOKENS + count("user\none two") + count("user\nthree")
    assert [tokens for _, tokens in prefix] == [ITEM_OVERHEAD_TOKENS + 4, num_tokens]


def test_instructions_tools_and_format_come_first_and_count() -> None:
    plain = prompt_size(None, (), TEXT, [measure(message("x"))])
    tool = FunctionTool("f", "does it", {"type": "object"})
    for head in (
        prompt_size("be brief", (), TEXT, [measure(message("x"))]),
        prompt_size(None, (tool,), TEXT, [measure(message("x"))]),
        prompt_size(None, (), TextFormat("json_object"), [measure(message("x"))]),
    ):
        assert head[0] > plain[0]
        assert len(head[1]) == 2
        assert head[1][1][0] != plain[1][0][0]


def test_a_prefix_is_shared_as_far_as_items_agree() -> None:
    _, one = sized(message("a"), message("b"), message("c"), instructions="i")
    _, other = sized(message("a"), message("b"), message("d"), instructions="i")
    assert one[:3] == other[:3]
    assert one[3] != other[3]
    _, elsewhere = sized(message("a"), instructions="j")
    assert elsewhere[1][0] != one[1][0]


def test_the_next_turns_prefix_has_the_end_of_this_one() -> None:
    _, prefix = sized(message("a"), instructions="i")
    answer: list[Item] = [message("b", "assistant"), FunctionCall("c", "f", "{}")]
    _, following = sized(
        message("a"),
        message("b", "assistant", id="msg_9", phase="final_answer"),
        FunctionCall("c", "f", "{}", id="fc_9"),
        FunctionCallOutput("c", (TextPart("3"),)),
        instructions="i",
    )
    assert end_prefix(prefix, answer) == following[3]


def test_reasoning_is_not_fed_back() -> None:
    without = sized(message("a"), message("b", "assistant"))
    thought = Reasoning("rs_1", ("thinking",))
    assert sized(message("a"), thought, message("b", "assistant")) == without
    assert measure(thought).num_tokens == 0


def test_an_empty_prompt() -> None:
    assert sized() == (0, ())
    assert end_prefix((), []) == (0, 0)


@pytest.mark.parametrize("instructions", [None, "Be brief."])
def test_prompts_of_two_tenants_share_no_prefix_and_one_tenant_continues_its_own(
    instructions: str | None,
) -> None:
    items = [measure(message("a")), measure(message("b"))]
    plain, one, other = (
        dict(prompt_size(instructions, (), TEXT, items, salt)[1])
        for salt in (0, cache_salt("one"), cache_salt("other"))
    )
    assert list(plain.values()) == list(one.values()) == list(other.values())
    assert not plain.keys() & one.keys()
    assert not one.keys() & other.keys()
    start = prompt_size(instructions, (), TEXT, items[:1], cache_salt("one"))[1]
    assert end_prefix(start, [message("b")], cache_salt("one")) == list(one.items())[-1]


def test_a_text_that_is_counted_again_has_as_many_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its limit is then, and however many were counted between."""
    monkeypatch.setattr(prompt, "MAX_KNOWN_COUNTS", 8)
    texts = [f"{number} words, and some [more]. " * 100 for number in range(20)]
    for text in (*texts, *texts, *reversed(texts)):
        num_tokens = ITEM_OVERHEAD_TOKENS + count(f"user\n{text}")
        with pytest.raises(prompt.TooLongError):
            measure(message(text), num_tokens - 1)
        assert measure(message(text), num_tokens).num_tokens == num_tokens
        with pytest.raises(prompt.TooLongError):
            measure(message(text), num_tokens - ITEM_OVERHEAD_TOKENS - 1)
        assert measure(message(text)).num_tokens == num_tokens
        assert len(prompt._known_counts) <= 8
