"""Tests what an upgrade of a browser offers."""

import pytest

from gateway.access.subprotocols import NOTHING, Offer, read_offer


@pytest.mark.parametrize(
    ("header", "offer"),
    [
        ("", NOTHING),
        ("realtime", NOTHING),  # without a credential it is none of ours
        ("lanewise, lanewise-ticket.abc_-9", Offer(ticket="abc_-9", plain="lanewise")),
        ("lanewise-ticket.abc,  mine", Offer(ticket="abc", plain="mine")),
        ("lanewise-ticket.abc", Offer(ticket="abc")),
        ("lanewise,lanewise-ticket.", NOTHING),
        (
            "realtime, openai-insecure-api-key.sk-1, openai-beta.realtime-v1",
            Offer(key="sk-1", plain="realtime"),
        ),
        (
            "openai-insecure-api-key.sk-1, lanewise-ticket.abc, lanewise",
            Offer(ticket="abc", key="sk-1", plain="lanewise"),
        ),
        (", ".join(["x"] * 20 + ["lanewise-ticket.abc"]), NOTHING),  # more than anybody offers
    ],
)
def test_the_offer(header: str, offer: Offer) -> None:
    assert read_offer(header) == offer


def test_a_credential_is_never_answered_with() -> None:
    both = "openai-insecure-api-key.sk-1, lanewise-ticket.abc"
    assert read_offer(both).plain is None
