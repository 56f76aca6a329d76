"""Tests what a typed line means for the asks that follow."""

import msgspec
import pytest

from gateway.dialogue.conversation import HELP, Dialogue
from lanewise.turn import Response


def fields(dialogue: Dialogue) -> list[dict[str, object]]:
    shared = ("model", "after", "metadata")
    return [{k: v for k, v in a.fields.items() if k not in shared} for a in dialogue.asks()]


@pytest.mark.parametrize(
    ("line", "asks", "wishes"),
    [
        ("/fast", [{"route": "fast"}], "auto /fast"),
        ("/deep", [{"route": "deep"}], "auto /deep"),
        ("/parallel", [{"route": "parallel"}], "auto /parallel"),
        ("/both", [{"route": "fast"}, {"route": "deep"}], "auto /both"),
        ("/strategy breadth", [{"strategy": "breadth"}], "auto /breadth"),
        ("/auto", [{}], "auto"),
    ],
)
def test_a_wish_holds_for_all_asks_to_come(
    line: str, asks: list[dict[str, str]], wishes: str
) -> None:
    dialogue = Dialogue()
    dialogue.command("/deep")
    assert dialogue.command(line) == ""
    assert fields(dialogue) == fields(dialogue) == asks
    assert dialogue.wishes() == wishes


def test_a_turn_continues_the_last_one_until_a_new_conversation() -> None:
    dialogue = Dialogue("lanewise-fast")
    (first,) = dialogue.asks()
    assert first.fields["after"] is None
    assert first.fields["model"] == "lanewise-fast"
    answer = msgspec.convert({"id": "resp_1"}, Response)
    dialogue.answered(answer)
    assert [ask.fields["after"] for ask in dialogue.asks()] == [answer]
    assert dialogue.command("/new") == "(a new conversation)"
    assert [ask.fields["after"] for ask in dialogue.asks()] == [None]


@pytest.mark.parametrize("line", ["/help", "/", "/strategy", "/unknown word"])
def test_what_is_no_command_gets_the_list_of_them(line: str) -> None:
    assert Dialogue().command(line) == HELP


@pytest.mark.parametrize("line", ["/quit", "/exit", "/q"])
def test_leaving(line: str) -> None:
    assert Dialogue().command(line) is None
