"""Tests who complains, and who merely asks."""

import pytest

from router.agent_runs.complaints import MAX_CHARS, asks_back, complains
from tests.unit.router.agent_runs.planted_runs import COMPLAINTS, GOING_ON

TOLD = [
    "This isn't what I asked for",
    "That’s not what I wanted.",
    "Hm, sorry, that is not what I meant.",
    "why did you delete my function?? I told you not to",
    "Why did you change my config?",
    "I told you to keep the tests.",
    "I didn't ask for a rewrite.",
    "You ignored my second point.",
    "I still get the error from before.",
    "It builds now, but I'm still getting the warning about the lock.",
    "I restarted it and still get a timeout.",
    "Same problem.",
    "Same issue here, sadly",
    "No, same problem.",
    "I ran it and have the same problem on Linux.",
    "J’ai toujours le même problème.",
    "Tengo el mismo problema.",
    "Ainda tenho o mesmo problema.",
    "Das ist nicht das, was ich wollte.",
    "Das wollte ich nicht.",
    "Ce n’est pas ce que j’ai demandé.",
    "No es lo que pedí.",
    "Não foi isso que eu pedi.",
    "Non è quello che ho chiesto.",
    "Это не то, что я просил.",
    "这不是我要的",
    "頼んだものと違います",
    "제가 요청한 게 아니에요",
]
SHARED = [  # words of new asks, which complain here
    "Same error.",
    "Now I still get the old total.",
    "I ran it again, same problem.",
    "Thanks, but it didn't help.",
    "The output is wrong",
    "It's wrong.",
    "What? That is wrong.",
    "Check again: the total is wrong",
    "Der Test geht nicht.",
    "结果不对",
]
BARE = [
    "Try again",
    "Nope, try again!",
    "Wrong.",
    "Not good",
    "try again please",
    "Falsch.",
    "違う",
]
NOES = ["Nope", "nope.", "No", "No, no.", "Nein!", "Non", "不", "いいえ。"]


@pytest.mark.parametrize("text", [*COMPLAINTS, *TOLD, *SHARED, *BARE, *NOES])
def test_complaints(text: str) -> None:
    assert complains(text)


@pytest.mark.parametrize("text", NOES)
def test_a_no_may_be_a_reply(text: str) -> None:
    assert not complains(text, is_asked=True)


@pytest.mark.parametrize("text", [*TOLD, *BARE])
def test_other_complaints_are_no_reply(text: str) -> None:
    assert complains(text, is_asked=True)


@pytest.mark.parametrize(
    ("answer", "is_question"),
    [
        ("Shall I update the tests, too?", True),
        ("Done. Let me know if the other file needs it.", True),
        ("要不要也更新测试？", True),
        ("I renamed tmp to total in utils.py.", False),
        ("", False),
        (f"Why? Because of the lock. {'It waits for itself. ' * 20}", False),
    ],
)
def test_answers_that_ask_back(answer: str, is_question: bool) -> None:
    assert asks_back(answer) is is_question


@pytest.mark.parametrize(
    "text",
    [
        *GOING_ON,
        "The login page doesn't work when the network is away; show a message there instead.",
        "Write a test for a cache that is not working as a cache: it should hold no entry.",
        "Wenn das Netz weg ist, geht die Anmeldung nicht; zeige dort stattdessen eine Meldung an.",
        "Now solve the same problem in Rust, with an iterator.",
        "Is there a known library for the same issue in Python?",
        "Users who are logged out should still see the banner at the top.",
        "Can a subscriber still get a refund after thirty days?",
        "Resuelve el mismo problema en Rust.",
        "Résous le même problème en Rust.",
        "Resolva o mesmo problema em Rust.",
        "What does 'exit code 1' mean?",
        "What is wrong with this code?",
        "Thanks. Tell me which of these answers is incorrect",
        "Now solve the same problem in Rust",
        "And return the same error code as the old API",
        "Can I still get a refund after 30 days?",
        "Explain why the New Deal did not work",
        "If the password is wrong, show an error",
        "Was stimmt nicht an diesem Code?",
        "Qu'est-ce qui ne marche pas ici ?",
        "¿Qué está mal en este código?",
        "Résous le même problème en Rust",
        "这段代码哪里不对？",
        "Write a polite reply to a customer who says that this isn't what I asked for.",
        "Add a button that says 'Try again' to the error page.",
        "Try again with a larger batch and tell me how long it takes.",
        "No tests for this one, please.",
        "No, use tabs in this file.",
        "No problem, thanks!",
        "Nope.avi is the file to convert",
        "Why did you choose a lock here?",
        "Why did you delete the old branch first?",
        "What have you done so far?",
        "I told Anna that we ship on Friday; write the mail.",
        "I didn't ask yet: which Python version is this?",
        "Explain why you ignored the error in line 3",
        "Du hast meine Erlaubnis, die Datei zu löschen.",
        "Was ich wollte, war ein Beispiel mit zwei Spalten; schreib es dazu.",
        "Again the same for the other file, please.",
        "不用改其他文件",
        "",
        f"{MAX_CHARS * 'a '} it still fails",
    ],
)
def test_asks_that_only_name_what_is_wrong(text: str) -> None:
    assert not complains(text)
