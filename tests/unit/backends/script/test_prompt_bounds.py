"""What reading a prompt and its context costs is bounded; counted in characters and words."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from backends.contract import FinishReason, FunctionTool
from backends.script import dialogue, facts, last_message, tool_calls
from backends.script.answering import answer_script
from backends.script.facts import MAX_READ_CHARS, find_facts, recall
from backends.script.last_message import EXCERPT_CHARS, read_last_message
from backends.script.scripted_answer import ScriptedAnswer, message_item
from backends.simulated import playback
from backends.simulated.playback import Playback
from backends.tokenizer import MAX_TOKEN_CHARS
from tests.unit.backends.script.requests import assistant, request, user

SCRIPT = answer_script(0, reasons=False)


def test_of_a_long_prompt_only_both_ends_are_read() -> None:
    made = request("Explain herons. " + "word number seven " * 20_000 + "In Go.")
    excerpt = read_last_message(made).excerpt
    assert len(excerpt) == 2 * EXCERPT_CHARS + 1
    assert excerpt.startswith("Explain herons.")
    assert excerpt.endswith("In Go.")


def first_arguments(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> list[str]:
    """Returns the first arguments that a module's function is called with from now on."""
    seen: list[str] = []
    called: Callable[..., Any] = getattr(module, name)

    def recording(first: str, *others: Any) -> Any:
        seen.append(first)
        return called(first, *others)

    monkeypatch.setattr(module, name, recording)
    return seen


@pytest.mark.parametrize("question", ["What is my dog called?", "What is the code word of my dog?"])
@pytest.mark.parametrize("at", [0, 150, 299])
def test_of_a_long_context_little_is_read_and_the_fact_found(
    monkeypatch: pytest.MonkeyPatch, question: str, at: int
) -> None:
    texts = [f"My dog {i} ran to the park, and my dog {i} came back. " * 20 for i in range(300)]
    texts[at] += "\nThe code word is BLUE-HERON."
    read = first_arguments(monkeypatch, facts, "_stated")
    found = find_facts(texts, question)
    assert 0 < sum(map(len, read)) <= MAX_READ_CHARS
    if "code word" in question:
        fact = recall("code word", found)
        assert fact is not None
        assert fact.value == "BLUE-HERON"


@pytest.mark.parametrize("prompt", ["", "Explain herons."])
def test_a_prompt_about_something_else_does_not_read_the_context(
    monkeypatch: pytest.MonkeyPatch, prompt: str
) -> None:
    """A request may have thousands of items, and nobody else is served meanwhile."""
    made = request(*[user("")] * 500, prompt)
    read = [
        *(first_arguments(monkeypatch, module, "parts_text") for module in (last_message, dialogue))
    ]
    assert SCRIPT(made).items
    assert sum(map(len, read)) <= 4


def test_the_newest_of_many_facts_counts() -> None:
    texts = [f"My dog is called Rex{i}. My name is Ada{i}." for i in range(2_000)]
    fact = recall("my name", find_facts(texts, "my name"))
    assert fact is not None
    assert fact.value == "Ada0"


def test_introductions_are_found_far_back() -> None:
    context = [item for i in range(200) for item in (user(f"Go on, {i}." * 50), assistant("ok"))]
    made = request(user("I'm Ada. I live in Paris."), assistant("Hello."), *context, "Who am I?")
    assert "Ada" in SCRIPT(made).items[0].text


def test_an_answer_is_counted_no_further_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = first_arguments(monkeypatch, playback, "token_ends")
    made = Playback(ScriptedAnswer((message_item("heron " * 100_000),)), 50)
    assert (made.num_tokens, made.items[0].text.count("heron")) == (50, 50)
    assert sum(map(len, counted)) <= 54 * MAX_TOKEN_CHARS


@pytest.mark.parametrize("limit", [40, 1_000])
@pytest.mark.parametrize(
    "prompt",
    [
        *(f"Write 100000 {unit} on tides" for unit in ("words", "paragraphs", "ideas", "tokens")),
        *(f"Write 100000 {unit} of Python code" for unit in ("lines", "sentences", "tests")),
        "Write 100000 tests in bash",
        "Write 100000 lines of C++ code",
    ],
)
def test_an_endless_wish_is_written_little_beyond_its_limit(prompt: str, limit: int) -> None:
    answer = SCRIPT(request(prompt, max_output_tokens=limit))
    assert Playback(answer, limit).reason is FinishReason.LENGTH
    assert len(answer.items[0].text) < (3 * limit + 1_000) * 5


@pytest.mark.parametrize("gap", [" ", "\n", "\t \n"])
@pytest.mark.parametrize("beginning", ["Remember that my ", "say", "Reply with", "My dog"])
def test_gaps_are_short_before_patterns_see_them(beginning: str, gap: str) -> None:
    """Patterns with several gaps would try every way to share one among them."""
    message = user(beginning + gap * (16_000 // len(gap)))
    made = request(message, assistant("ok"), message, "Summarise our conversation so far.")
    assert SCRIPT(made).items  # otherwise it would not end
    assert SCRIPT(request(message)).items


def test_a_prompt_is_split_into_words_once_for_all_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    folded = first_arguments(monkeypatch, tool_calls, "fold")
    tools = tuple(FunctionTool(f"tool_{i}", "Opens doors. " * 30, {}) for i in range(64))
    SCRIPT(request("alpha beta gamma " * 200, tools=tools))
    assert 3 <= len(folded) <= 3 + 64 * 2
