"""Tests which messages only ask for more of an answer, or only thank for it."""

import pytest

from backends.contract import ImagePart, Message, TextPart
from router.agent_runs.follow_ups import FollowUp, asks_nothing, follow_up_of

MORE = """
weiter
Weiter.
Mach bitte weiter
ja, mach weiter
continue
Please continue!
yes, go ahead with step 2
please continue with the next step
Continue from where you stopped
ok, next part please
Thanks! Please continue with the next step
more
sigue
Sí, continúa con el siguiente paso
continua
continuez, s'il vous plaît
vai avanti
prossiga
продолжай, пожалуйста
дальше
继续
好的，继续吧
続けてください
계속해줘
ga verder
""".strip().splitlines()

THANKS = """
thanks!
Thank you very much!
Great, thanks.
thanks, that's all
no thanks
Thank you so much for the explanation!
Vielen Dank!
danke dir
merci beaucoup
¡Muchas gracias!
muito obrigada
grazie mille
Спасибо большое
非常感谢
谢谢你
ありがとうございます
감사합니다
""".strip().splitlines()

NEITHER = """
Continue the migration in the billing service
continue statement in Python
Continue button is broken
next.js crashes on start
go ahead and delete the old table
more tests
why?
ok
what's next?
weiter unten fehlt ein Komma
продолжай рефакторинг модуля оплаты
继续重构支付模块
thanks, now fix the race
thanks but it still fails
Thanks! And in Rust?
the thanks page is broken
perfect
""".strip().splitlines()

ROWS: list[tuple[str, FollowUp | None]] = [
    *((text, "more") for text in MORE),
    *((text, "thanks") for text in THANKS),
    *((text, None) for text in NEITHER),
    ("continue " * 9, None),  # too long to be looked at
    ("", None),
]


@pytest.mark.parametrize(("text", "follow_up"), ROWS)
def test_follow_ups(text: str, follow_up: FollowUp | None) -> None:
    assert follow_up_of(text) == follow_up


@pytest.mark.parametrize(
    ("text", "is_nothing"),
    [
        ("Thanks in advance!", True),
        ("please", True),
        ("bitte, danke", True),
        ("", True),
        (" \n", True),
        ("go on", False),
        ("And in Rust?", False),
        ("please add tests", False),
        ("ok " * 99, False),
    ],
)
def test_a_message_of_courtesy_asks_nothing(text: str, is_nothing: bool) -> None:
    assert asks_nothing(Message("user", (TextPart(text),))) is is_nothing


def test_a_picture_asks_something() -> None:
    picture = ImagePart("https://example.com/a.png")
    assert not asks_nothing(Message("user", (TextPart("please"), picture)))
