"""Who complains, and who merely asks."""

import pytest

from router.agent_runs.complaints import MAX_CHARS, complains
from tests.unit.router.agent_runs.planted_runs import COMPLAINTS, GOING_ON


@pytest.mark.parametrize("text", COMPLAINTS)
def test_complaints(text: str) -> None:
    assert complains(text)


@pytest.mark.parametrize(
    "text",
    [
        *GOING_ON,
        "The login page doesn't work when the network is away; show a message there instead.",
        "Write a test for a cache that is not working as a cache: it should hold no entry.",
        "Wenn das Netz weg ist, geht die Anmeldung nicht; zeige dort stattdessen eine Meldung an.",
        "What does 'exit code 1' mean?",
        "",
        f"{MAX_CHARS * 'a '} it still fails",
    ],
)
def test_asks_that_only_name_what_is_wrong(text: str) -> None:
    assert not complains(text)
