"""Tests what simulated engines say: it follows from the prompt and from everything said before."""

import ast
import re
from collections import Counter

import msgspec
import pytest

from backends.contract import (
    Compaction,
    DeltaKind,
    FunctionCall,
    FunctionCallOutput,
    GenerateRequest,
    ImagePart,
    Item,
    Message,
    TextFormat,
    TextPart,
)
from backends.script.answering import answer_script
from backends.tokenizer import count
from tests.unit.backends.script.requests import assistant, request, user

FAST = answer_script(0, reasons=False)
DEEP = answer_script(0, reasons=True)


def said(*items: Item | str, **fields: object) -> str:
    """Returns the text of the answer, which must be one message."""
    answer = FAST(request(*items, **fields))  # type: ignore[arg-type]
    (item,) = answer.items
    assert item.kind is DeltaKind.TEXT
    return item.text


def told(*texts: str) -> list[Item]:
    """Returns a conversation in which each of these was said and answered."""
    return [item for text in texts for item in (user(text), assistant("I see."))]


@pytest.mark.parametrize(
    ("statement", "question", "expected"),
    [
        ("The code word is BLUE-HERON.", "What is the code word?", "BLUE-HERON"),
        ("the codeword is 'x y z'", "What was the code word again?", "x y z"),
        ("Please remember this code word: teal-42.", "Tell me the code word I gave.", "teal-42"),
        ("remember: my favourite colour is teal", "what's my favorite color?", "teal"),
        ("My name is Ada and I like birds.", "What is my name?", "Ada"),
        ("Hi, I'm Ada!", "Who am I?", "Ada"),
        ("Call me Ishmael.", "Do you remember my name?", "Ishmael"),
        ("I live in Berlin.", "What is my home city?", "Berlin"),
        ("Remember the number 4711.", "Which number did I ask you to remember?", "4711"),
        ("Store this: launch code = 9981", "What is the launch code?", "9981"),
        ("The passphrase for today: open sesame", "What's the passphrase?", "open sesame"),
        ("Our deploy key is named falcon.", "What is our deploy key?", "falcon"),
        ("From now on the secret will be ZEBRA-7.", "Repeat the secret.", "ZEBRA-7"),
        ("For later: codeword = FALCON-9", "Repeat the code word.", "FALCON-9"),
        ("Password: swordfish", "What is the password? Reply with only it.", "swordfish"),
    ],
)
def test_facts_are_recalled(statement: str, question: str, expected: str) -> None:
    assert expected in said(*told(statement, "Something else.", "More."), question)
    assert expected in said(*told("Hello."), question, instructions=statement)
    # Without the statement the answer cannot have it: it is not in the question.
    assert expected not in said(*told("Something else."), question)


def test_it_is_what_was_told_last() -> None:
    assert "ruby-6" in said("The code word is ruby-6. Repeat it.")
    assert "ruby-6" in said(*told("My name is Ada.", "The code word is ruby-6."), "Repeat it.")


@pytest.mark.parametrize("where", [0, 9_000, 29_999])
def test_a_fact_in_a_long_document_is_found(where: int) -> None:
    lines = [f"line {number}: nothing to see" for number in range(30_000)]
    lines[where] = "By the way, the code word is BLUE-HERON, do not forget."
    assert "BLUE-HERON" in said(*told("\n".join(lines)), "What is the code word?")


def test_a_prompt_at_the_end_of_a_long_paste_is_read() -> None:
    assert said("log entry\n" * 9_000 + "Reply with exactly: READ") == "READ"


@pytest.mark.parametrize(
    "question", ["What is the code word?", "What's my name?", "Do you remember the secret number?"]
)
def test_what_was_never_said_is_not_known(question: str) -> None:
    assert "I do not know" in said(*told("Nice weather."), question)


@pytest.mark.parametrize(
    "question",
    [
        "Why does our cache stampede?",
        "How do we fix our deadlock?",
        "Why is our service slow?",
        "Which of our services leak memory?",
    ],
)
def test_a_question_that_wants_thought_is_not_looked_up(question: str) -> None:
    assert "I do not know" not in said(question)
    assert "I do not know" not in said(*told("Nice weather."), question)


def test_the_last_word_on_a_subject_counts() -> None:
    items = told("The code word is RED.", "The code word is now GREEN.")
    assert said(*items, "What is the code word? Answer with only the word.") == "GREEN"


def test_the_assistants_own_words_are_no_source() -> None:
    items = [user("Guess."), assistant("The code word is WRONG.")]
    assert "WRONG" not in said(*items, "What is the code word?")


def test_a_statement_is_acknowledged() -> None:
    assert "BLUE-HERON" in said("Remember: the code word is BLUE-HERON.")


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("thanks!", "You're welcome."),
        ("Great, thank you so much, that worked", "You're welcome."),
        ("Danke!", "Gern geschehen."),
        ("谢谢", "不客气。"),
    ],
)
def test_mere_thanks_get_no_essay(prompt: str, answer: str) -> None:
    assert said("Explain TLS", assistant("It encrypts."), prompt) == answer
    assert said(f"{prompt} Now write a poem about rain") != answer


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("Reply with exactly: PONG", "PONG"),
        ('Reply with exactly "two words" and nothing else.', "two words"),
        ("Say hello world.", "hello world"),
        ("Answer with only the word teal.", "teal"),
        ("Respond with the single word READY", "READY"),
        ("Repeat after me: `a  b`", "a  b"),
    ],
)
def test_short_prompts_have_their_answer(prompt: str, answer: str) -> None:
    assert said(prompt) == answer


def test_exactly_what_a_fact_says() -> None:
    items = told("The code word is BLUE-HERON.")
    assert said(*items, "Reply with exactly the code word.") == "BLUE-HERON"


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("How many messages have I sent?", "3 messages"),
        ("What was my first message?", '"One thing."'),
        ("What did I just say?", '"Another."'),
        ("What did you say?", '"I see."'),
        ("Summarize our conversation so far.", '1. "One thing."\n2. "Another."'),
    ],
)
def test_the_conversation_is_quoted_and_counted(question: str, expected: str) -> None:
    assert expected in said(*told("One thing.", "Another."), question)


def test_tool_results_are_used() -> None:
    call = FunctionCall("c1", "get_weather", '{"city":"Paris"}')
    output = FunctionCallOutput("c1", (TextPart('{"temp_c": 18, "sky": "clear"}'),))
    text = said("Weather?", call, output)
    assert all(part in text for part in ("get_weather", "Paris", "temp_c is 18", "clear"))
    printed = FunctionCallOutput("c1", (TextPart("line one\nline two"),))
    assert "```\nline one\nline two\n```" in said("Run it.", call, printed)
    assert "without any output" in said("Run it.", call, FunctionCallOutput("c1", ()))


@pytest.mark.parametrize(("arguments", "output"), [("[" * 9_000, "Done."), ("{}", "[" * 9_000)])
def test_a_call_of_thousands_of_brackets_is_quoted(arguments: str, output: str) -> None:
    call = FunctionCall("c1", "run", arguments)
    assert output[:9] in said("Run it.", call, FunctionCallOutput("c1", (TextPart(output),)))


@pytest.mark.parametrize(
    "prompt",
    [
        "Write a Python function that merges intervals",
        "Write a TypeScript class for a queue",
        "Implement a parser in Go",
        "Rust function to sort records, please",
        "Show me some SQL query for orders",
        "Write a bash script that rotates logs",
        "implement binary search",
        "Reverse a string in Python.",
        "Sort a list in Rust",
        "Could you please merge two maps using Go?",
        "How do I parse a date in TypeScript?",
    ],
)
def test_code_is_python_and_fenced_whatever_the_language_asked_for(prompt: str) -> None:
    text = said(prompt)
    assert "```python\n" in text
    assert text.count("```") % 2 == 0
    assert not text.startswith("```")


@pytest.mark.parametrize(
    "prompt",
    [
        "Why use Rust?",
        "Write a poem about herons",
        "Write a haiku about caches.",
        "Explain TCP slow start",
        "Explain how to sort a list in Python",
        "What is a list in Python?",
        "hello",
    ],
)
def test_prose_is_not_fenced(prompt: str) -> None:
    assert "```" not in said(prompt)


@pytest.mark.parametrize("subject", ["of Python code for a rate limiter", "about herons"])
@pytest.mark.parametrize("number", [50, 700, 4_000, 12_000])
def test_so_many_tokens(number: int, subject: str) -> None:
    assert count(said(f"Write {number} tokens {subject}")) == number


def test_so_many_words() -> None:
    assert len(said("Write 250 words about herons").split()) == 250


def test_so_many_lines_of_one_function() -> None:
    text = said("Write a 300-line Python function that parses logs")
    (code,) = re.findall(r"```python\n(.*?)\n```", text, re.DOTALL)
    assert len(code.split("\n")) == 300
    assert code.count("\ndef ") + code.startswith("def ") == 1
    assert "def parse_log" in code
    ast.parse(code)
    assert 1_400 < count(text) < 1_800  # about what docs/engines.md times


@pytest.mark.parametrize(
    ("prompt", "pattern", "number"),
    [
        ("Give me 7 ideas for a garden", r"(?m)^\d+\. ", 7),
        ("In three sentences, what are tides?", r"\.(?: |$)", 3),
        ("Write 4 paragraphs on tides", r"(?:^|\n\n)\S", 4),
        ("A haiku on tides", r"(?m)^.+$", 3),
    ],
)
def test_so_many_of_something(prompt: str, pattern: str, number: int) -> None:
    assert len(re.findall(pattern, said(prompt))) == number


@pytest.mark.parametrize("prompt", ["Write 9000 tokens about herons", "9000 tokens of Go code"])
def test_nothing_is_said_twice(prompt: str) -> None:
    paragraphs = Counter(p for p in re.split(r"\n\n|\. ", said(prompt)) if len(p) > 80)
    assert paragraphs.most_common(1)[0][1] == 1


def test_short_prompts_get_shorter_answers_than_long_ones() -> None:
    short = count(said("What are tides? Answer briefly."))
    usual = count(said("What are tides?"))
    long = count(said("Write a detailed guide to tides."))
    assert short < usual < long
    brief = "Answer in one short paragraph, from what you know now."
    assert count(said("Write a detailed guide to tides.", instructions=brief)) <= short + 30


def test_the_same_request_gets_the_same_answer() -> None:
    prompt = "Write a Python function that merges intervals"
    assert said(prompt, id="a") == said(prompt, id="b")
    assert said(prompt, seed=1) != said(prompt, seed=2)
    assert said(prompt) != said(*told("Hello."), prompt)
    assert answer_script(1, reasons=False)(request(prompt)) != FAST(request(prompt))


def test_facts_show_in_longer_answers_too() -> None:
    items = told("The secret port is 8443.")
    assert "8443" in said(*items, "Write a Go function that listens on the secret port")


def test_images_are_acknowledged() -> None:
    picture = Message("user", (TextPart("What is this?"), ImagePart("data:image/png;base64,AAAA")))
    assert "image" in said(picture)


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def test_json_formats() -> None:
    text = said("A person named Ada, age 36", text_format=TextFormat("json_schema", SCHEMA))
    assert msgspec.json.decode(text) == {"name": "Ada", "age": 36}
    text = said("Reply with exactly: x", text_format=TextFormat("json_object"))
    assert msgspec.json.decode(text) == {"answer": "x"}


@pytest.mark.parametrize(
    ("effort", "num_tokens"),
    [(None, 0), ("minimal", 0), ("low", 0), ("medium", 120), ("high", 400), ("max", 1_600)],
)
def test_reasoning_by_effort(effort: str | None, num_tokens: int) -> None:
    prompt = "Explain why a distributed lock needs a fencing token, and what happens without one."
    made: GenerateRequest = request(prompt, reasoning_effort=effort)
    first = DEEP(made).items[0]
    assert (first.num_silent_tokens if first.kind is DeltaKind.REASONING else 0) == num_tokens
    assert first.text or not num_tokens or first.kind is DeltaKind.REASONING
    assert all(item.kind is not DeltaKind.REASONING for item in FAST(made).items)


def test_reasoning_leaves_room_and_shows_a_summary_on_request() -> None:
    made = request("Explain locks.", reasoning_effort="max", max_output_tokens=60)
    assert DEEP(made).items[0].num_silent_tokens == 30
    shown = request("Explain locks.", reasoning_effort="high", reasoning_summary="auto")
    assert DEEP(shown).items[0].text.startswith("**")
    assert not DEEP(request("Explain locks.", reasoning_effort="high")).items[0].text


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        " ",
        "?",
        "\x00",
        "a" * 100_000,
        "🦆" * 500,
        "((((",
        "\\d+",
        "\n" * 100_000,
        "9" * 400 + "k words",
    ],
)
def test_odd_prompts_get_an_answer(prompt: str) -> None:
    assert said(prompt)


def test_no_user_message_at_all() -> None:
    assert said()
    assert said(assistant("Hello."))


def test_a_summary_says_what_was_told_and_each_thing_as_it_was_told_last() -> None:
    items = told("The code word is RED.", "Say something.", "The code word is now GREEN.")
    summary = said(*items, "Summarize this conversation so far.")
    assert "The code word is GREEN." in summary
    assert "RED" not in summary
    assert '2. "Say something."' in summary


def test_what_a_compaction_says_was_told() -> None:
    folded = Compaction("sealed", summary="You told me:\n\n- the code word is teal-4.", number=1)
    assert said(folded, user("What is the code word?")).endswith("is teal-4.")
    again = said(folded, user("Hi."), assistant("Hi."), user("Summarize this conversation."))
    assert "- the code word is teal-4." in again
