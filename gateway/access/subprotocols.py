"""Reads the credential that a browser offers as a WebSocket subprotocol.

Browsers send no header of the page's own with an upgrade, only names of protocols. One of them
holds the credential; beside it stands a plain one, which the answer names: a browser ends a socket
whose server chose none, and a name that holds a key must not be repeated.
"""

from typing import NamedTuple

PLAIN = "lanewise"  # what our own pages offer beside the credential
TICKET_PREFIX = "lanewise-ticket."
KEY_PREFIX = "openai-insecure-api-key."  # as OpenAI's own clients in browsers
_MAX_OFFERED = 16


class Offer(NamedTuple):
    """Holds what an upgrade offers: at most one credential counts, and a ticket before a key."""

    ticket: str = ""
    key: str = ""
    plain: str | None = None  # what to answer with


NOTHING = Offer()


def read_offer(header: str) -> Offer:
    """Reads `Sec-WebSocket-Protocol`; a header without a credential offers nothing to us."""
    names = [name.strip() for name in header.split(",", _MAX_OFFERED)[:_MAX_OFFERED]]
    ticket = _after(TICKET_PREFIX, names)
    key = _after(KEY_PREFIX, names)
    if not ticket and not key:
        return NOTHING
    plain = [name for name in names if name and not name.startswith((TICKET_PREFIX, KEY_PREFIX))]
    return Offer(ticket, key, plain[0] if plain else None)


def _after(prefix: str, names: list[str]) -> str:
    return next((name.removeprefix(prefix) for name in names if name.startswith(prefix)), "")
