"""Greetings, thanks and sums: asks whose answer is a line."""

import re
from fractions import Fraction

from backends.script.chance import Chance

MAX_CHARS = 120  # of an ask that may be one of these, outer space aside

_GREETING = re.compile(
    r"^\s*(?:hi|hello|hey|good (?:morning|afternoon|evening)|greetings|howdy)\b[\s,!.\w]{0,24}$",
    re.IGNORECASE,
)
_THANKS = re.compile(r"^\s*(?:thanks|thank you|thx|cheers|great|perfect)\b[\s,!.\w]{0,30}$", re.I)
_PING = re.compile(r"^\s*(?:ping|test|testing)[\s!.?]*$", re.IGNORECASE)
_SUM = re.compile(
    r"^\s*(?:what(?:'s| is)|how much is|compute|calculate|evaluate)?\s*"
    r"(?P<left>-?\d{1,15}(?:\.\d{1,9})?)\s*(?P<sign>[-+*/x×÷]|plus|minus|times|divided by)\s*"
    r"(?P<right>-?\d{1,15}(?:\.\d{1,9})?)\s*[=?.!]*\s*$",
    re.IGNORECASE,
)


def small_talk(ask: str, chance: Chance) -> str | None:
    """The line, if the ask is one of these."""
    ask = ask.strip()
    if not ask:
        return "There is no message to answer. What shall I do?"
    if len(ask) > MAX_CHARS:
        return None
    if _GREETING.match(ask):
        return chance.pick(
            (
                "Hello! What are we working on?",
                "Hi! What can I do for you?",
                "Hello. Tell me what you need.",
            )
        )
    if _THANKS.match(ask):
        return chance.pick(("You are welcome.", "Glad that helped.", "Any time."))
    if _PING.match(ask):
        return "pong" if "ping" in ask.lower() else "It works."
    found = _SUM.match(ask)
    return _result(found["left"], found["sign"].lower(), found["right"]) if found else None


def _result(left: str, sign: str, right: str) -> str:
    a, b = Fraction(left), Fraction(right)
    if sign in ("+", "plus"):
        value = a + b
    elif sign in ("-", "minus"):
        value = a - b
    elif sign in ("*", "x", "×", "times"):
        value = a * b
    elif b:
        value = a / b
    else:
        return "Division by zero has no result."
    shown = str(value) if value.denominator == 1 else f"{float(value):.10g}"
    return f"{left} {sign} {right} = {shown}"
