"""Security is the highest score of all that was said, and a doubtful one holds its task alone."""

import sys

import msgspec
import pytest

from backends.contract import ContextItem, Message, TextPart
from backends.prompt import measure
from router.classify.classify import classify, features
from router.classify.sensitivity import (
    HOLDS_FROM,
    MAX_ITEM_CHARS,
    MAX_NEW,
    MAX_NEW_CHARS,
    Judge,
    Judges,
    Sensitivity,
)
from tests.unit.router.tasks import task

CERTAIN, DOUBTFUL, PLAIN = "certain", "doubtful", "plain"
SCORES = {CERTAIN: 0.95, DOUBTFUL: 0.4, PLAIN: 0.01}


def said(role: str, text: str) -> ContextItem:
    return measure(Message(role, (TextPart(text),)))


USER = {text: said("user", text) for text in SCORES}
ASSISTANT = {text: said("assistant", text) for text in SCORES}
DEVELOPER = {text: said("developer", text) for text in SCORES}
SYSTEM = {text: said("system", text) for text in SCORES}
ASK, ANSWER = USER[PLAIN], ASSISTANT[PLAIN]


def judged_by(judge: Judge) -> Sensitivity:
    return Sensitivity(Judges(judge, judge, judge, lambda text: "telling" in text))


def score(*items: ContextItem, instructions: str | None = None) -> float:
    asked = task(items=items)
    request = msgspec.structs.replace(asked.request, instructions=instructions)
    asked = msgspec.structs.replace(asked, request=request)
    return judged_by(SCORES.__getitem__).around(asked).p_security


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ((ASK,), 0.0),
        ((USER[CERTAIN],), 0.0),  # the last user message is classified by itself
        ((USER[DOUBTFUL], ASK), SCORES[DOUBTFUL]),  # a paste and its ask
        ((ASK, ASSISTANT[CERTAIN], ASK), SCORES[CERTAIN]),  # "Please fix both"
        ((ASK, ASSISTANT[CERTAIN]), SCORES[CERTAIN]),  # in the middle of the task
        ((ASK, ASSISTANT[DOUBTFUL], ASK), 0.0),  # an answer that names something in passing
        ((USER[DOUBTFUL], ANSWER, ASK), 0.0),  # an earlier task
        ((USER[CERTAIN], ANSWER, ASK), SCORES[CERTAIN]),
        ((USER[CERTAIN], *[ANSWER, ASK] * 30), SCORES[CERTAIN]),
        ((ASK, ASSISTANT[CERTAIN], *[ASK, ANSWER] * 3, ASK), SCORES[CERTAIN]),
        ((DEVELOPER[CERTAIN], ASK), SCORES[CERTAIN]),  # instructions, as a message
        ((SYSTEM[CERTAIN], ASK), SCORES[CERTAIN]),
        ((SYSTEM[CERTAIN],), SCORES[CERTAIN]),
        ((ASK, ANSWER, DEVELOPER[CERTAIN], ASK), SCORES[CERTAIN]),
        ((ASK, ANSWER, ASK, SYSTEM[CERTAIN]), SCORES[CERTAIN]),
        ((DEVELOPER[DOUBTFUL], ASK), 0.0),
        ((SYSTEM[DOUBTFUL], ASK, ANSWER, ASK), 0.0),
        ((USER[DOUBTFUL], DEVELOPER[PLAIN], ASK), SCORES[DOUBTFUL]),  # still of one task
    ],
)
def test_what_was_said_counts(items: tuple[ContextItem, ...], expected: float) -> None:
    assert score(*items) == expected


def test_instructions_count_if_they_are_certain() -> None:
    assert score(ASK, instructions=CERTAIN) == SCORES[CERTAIN]
    assert score(ASK, instructions=DOUBTFUL) == 0.0
    assert SCORES[DOUBTFUL] < HOLDS_FROM


def test_each_item_is_scored_once_a_conversation() -> None:
    judged: list[str] = []

    def judge(text: str) -> float:
        judged.append(text)
        return 0.0

    sensitivity = judged_by(judge)
    texts = [f"item {number}" for number in range(6)]
    for turn in range(1, len(texts) + 1):  # each turn sends the history again, as new objects
        items = tuple(said("user", text) for text in texts[:turn])
        sensitivity.around(task(items=items))
    assert sorted(judged) == sorted(texts[:-1])


def noting(judged: list[str]) -> Judge:
    def judge(text: str) -> float:
        judged.append(text)
        return SCORES[CERTAIN] if "security" in text else 0.0

    return judge


def test_a_long_history_is_scored_in_pieces() -> None:
    judged: list[str] = []
    sensitivity = judged_by(noting(judged))
    items = tuple(said("user", f"item {number}") for number in range(2 * MAX_NEW + 50))
    for num_judged in (MAX_NEW, 2 * MAX_NEW, 2 * MAX_NEW + 49, 2 * MAX_NEW + 49):
        sensitivity.around(task(items=items))
        assert len(judged) == num_judged
    assert f"item {MAX_NEW}" in judged[: 2 * MAX_NEW], "the newest go first"
    assert len(set(judged)) == len(judged), "each item is scored once"


def test_what_may_be_sensitive_in_a_long_history_is_scored_first() -> None:
    judged: list[str] = []
    sensitivity = judged_by(noting(judged))
    steps = [[said("assistant", f"step {n}"), said("user", f"go {n}")] for n in range(MAX_NEW)]
    history = (said("user", "a telling ask about security"), *[e for step in steps for e in step])
    assert sensitivity.around(task(items=history)).p_security == SCORES[CERTAIN]
    assert len(judged) == MAX_NEW
    assert not [text for text in judged if text.startswith("step")], "users' words come next"


def test_long_items_are_scored_in_pieces() -> None:
    judged: list[str] = []
    sensitivity = judged_by(noting(judged))
    num_new = MAX_NEW_CHARS // MAX_ITEM_CHARS
    texts = [f"item {number} ".ljust(10 * MAX_ITEM_CHARS, ".") for number in range(2 * num_new)]
    items = tuple(said("user", text) for text in texts)
    for num_judged in (num_new, 2 * num_new - 1):
        sensitivity.around(task(items=items))
        assert len(judged) == num_judged


ASK_ABOUT_SECURITY = (
    "Our login handler builds the SQL query from the username by string concatenation; find and "
    "fix the SQL injection."
)


@pytest.mark.parametrize("num_turns", [20, 63, 70, 200, 1_000])
def test_an_ask_at_the_head_of_a_history_that_is_not_known_counts(num_turns: int) -> None:
    history = [said("user", f"{ASK_ABOUT_SECURITY} v{num_turns}")]
    for turn in range(num_turns):
        history.append(said("assistant", f"Done step {turn} of it."))
        history.append(said("user", f"Rename variable tmp{turn} to total{turn}."))
    assert classify(features(task(items=tuple(history)))).security_sensitive


def test_instructions_are_scored_once_and_not_kept() -> None:
    judged: list[int] = []

    def judge(text: str) -> float:
        judged.append(len(text))
        return SCORES[CERTAIN]

    sensitivity = judged_by(judge)
    text = "".join(["You review locks. "] * 50_000)
    asked = task(items=(ASK,))
    request = msgspec.structs.replace(asked.request, instructions=text)
    asked = msgspec.structs.replace(asked, request=request)
    num_references = sys.getrefcount(text)
    for _ in range(2):
        assert sensitivity.around(asked).p_security == SCORES[CERTAIN]
    assert judged == [len(text)]
    assert sys.getrefcount(text) == num_references


FOUND = (
    "I found two problems: the login handler builds its SQL from user input, and tokens are "
    "compared with ==, which leaks timing."
)
IN_PASSING = (
    "Django protects forms against CSRF by default: put the csrf_token tag inside the form and it "
    "works."
)


@pytest.mark.parametrize(
    ("answer", "is_sensitive"),
    [(FOUND, True), (IN_PASSING, False), ("Here is a haiku about rain on old stones.", False)],
)
def test_an_answer_counts_by_what_it_is_about(answer: str, is_sensitive: bool) -> None:
    items = (said("user", "Look at this."), said("assistant", answer), said("user", "Go on."))
    assert classify(features(task(items=items))).security_sensitive is is_sensitive


@pytest.mark.parametrize("role", ["system", "developer"])
def test_instructions_count_wherever_they_stand(role: str) -> None:
    told = "You review code for security vulnerabilities: SQL injection, XSS, path traversal."
    items = (said(role, told), said("user", "Look at app.py."))
    found = classify(features(task("Look at app.py.", items=items)))
    assert found.security_sensitive
    assert found.signals[0] == "security: the instructions"
