"""Builds conversations of messages whose sizes a test chooses."""

from typing import Any

from backends.contract import (
    Item,
    Message,
    TextPart,
)


def said(role: Any, name: str, words: int = 0) -> Message:
    return Message(role, (TextPart(f"{name} " + "word " * words),))


def turns(*sizes: int) -> list[Item]:
    """Returns turns of an ask and an answer of so many words."""
    return [
        item
        for n, words in enumerate(sizes)
        for item in (said("user", f"ask{n}"), said("assistant", f"answer{n}", words))
    ]


RULES = said("developer", "rules")
