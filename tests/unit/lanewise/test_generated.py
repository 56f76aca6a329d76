"""What is generated from the Structs is as they are, and the generator reads them rightly."""

from pathlib import Path
from typing import Literal

import msgspec
import pytest

from lanewise.turn import Response as ClientResponse
from sdk import generate
from tests.unit.gateway.doubles import ROUTING


@pytest.mark.parametrize("path", generate.generated(), ids=lambda path: path.name)
def test_generated_files_are_as_the_structs_are(path: Path) -> None:
    assert path.read_text() == generate.generated()[path], "run `make sdk`"


class Part(msgspec.Struct):
    """A part."""

    word: Literal["yes", "no"]  # one of two
    # said above,
    # in two lines.
    count: int | None
    later: tuple[float, ...] | None = None  # absent at first


class Mute(msgspec.Struct):
    """Says nothing of its field."""

    word: str


def test_fields_say_what_their_comments_do() -> None:
    fields = generate.fields_of(Part)
    assert [(field.name, field.says, field.may_be_absent) for field in fields] == [
        ("word", "one of two", False),
        ("count", "said above, in two lines", False),
        ("later", "absent at first", True),
    ]


def test_a_field_without_a_comment_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Mute\.word has no comment"):
        generate.fields_of(Mute)


def test_types_are_said_in_each_language() -> None:
    kinds = [field.type for field in generate.fields_of(Part)]
    assert [generate.python_type(kind) for kind in kinds] == [
        "str",
        "int | None",
        "list[float] | None",
    ]
    assert [generate.typescript_type(kind) for kind in kinds] == [
        '"yes" | "no"',
        "number | null",
        "number[] | null",
    ]
    assert list(generate.document_rows(generate.fields_of(Part))) == [
        "| `word` | `yes`, `no` | one of two |",
        "| `count` | integer or null | said above, in two lines |",
        "| `later`? | list of numbers | absent at first |",
    ]


def test_the_python_client_reads_what_the_gateway_writes() -> None:
    sent = msgspec.json.encode({"id": "resp_1", "text": {"format": {}}, "routing": ROUTING})
    response = msgspec.json.decode(sent, type=ClientResponse)
    assert response.routing is not None
    assert msgspec.json.encode(response.routing.task_class) == msgspec.json.encode(
        ROUTING.task_class
    )
    assert (response.text, response.text_settings) == ("", {"format": {}})
    assert (response.routing.failovers, response.routing.errors) == ([], [])
