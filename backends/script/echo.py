"""The script that says the ask back: for tests and for measuring the path without any text work."""

import re

from backends.contract import GenerateRequest
from backends.script.ask import read_ask
from backends.script.playback import Answer, message_item
from backends.tokenizer import count

MAX_TOKENS = 100_000  # an echo is repeated to at most so many

_LENGTH = re.compile(r"\b(\d{1,7})\s+tokens?\b", re.IGNORECASE)


def echo_script(request: GenerateRequest) -> Answer:
    """The last user message; repeated on new lines until it has N tokens if it says "N tokens"."""
    text = read_ask(request).text or "(nothing to echo)"
    asked = _LENGTH.search(text)
    if asked:
        target = min(int(asked[1]), MAX_TOKENS)
        line = text + "\n"
        text = (line * -(-target // count(line, target))).rstrip("\n")
    return Answer((message_item(text),))
