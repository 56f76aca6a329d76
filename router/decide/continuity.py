"""Reads from a conversation which engine holds it, what a move would cost, and what justifies one.

- The engine that answered last has the context in its KV cache; elsewhere all of it would be
  prefilled again. So the longer the context, the better another engine must be: this hysteresis
  keeps a conversation from flapping.
- Evidence of a failed answer (the user repeats the prompt or complains, or tool outputs keep
  reporting failures) counts while a fast engine holds the conversation.
- A task never moves from the deep engine to the fast one amid its tool calls, or with a prompt of
  few words ("Go on.").

Everything is bounded: at most `MAX_ITEMS` items are looked at, `MAX_CHARS` of each.
"""

import math
from itertools import islice, takewhile

import msgspec

from backends.contract import (
    BackendGroup,
    ContextItem,
    CustomToolCallOutput,
    FunctionCallOutput,
    Message,
    TextPart,
)
from backends.prompt import is_tool_output, is_user
from router.classify.words import words_of

MAX_ITEMS = 32
MAX_CHARS = 2_000  # of an item: half from its head, half from its tail

# All in log-odds of "needs deep", as the classifier's signals.
HOLDING = 0.3  # of any conversation
PER_DOUBLING = 0.25  # more with each doubling of its tokens beyond `PREFIX_TOKENS`
PREFIX_TOKENS = 1_024
MAX_HOLDING = 1.5
REPEATED, COMPLAINT, FAILING, GROWTH = 1.5, 1.5, 0.75, 0.5
MAX_REPORTS = 4  # of the tools, the newest; they count if the very newest is a failure
DECISIVE = 1.5  # evidence that moves a conversation to the deep engine

SAME_PROMPT = 0.8  # share of two prompts' words in common, for a repetition
MIN_PROMPT_WORDS = 4  # shorter ones ("go on") are repeated for other reasons
GROWN_TOKENS = 24_000  # of tool outputs since the prompt, a sign of more work than expected

_COMPLAINTS = (
    *("still broken", "still fail", "still not work", "still doesn't", "still does not"),
    *("still wrong", "still get", "still see", "still the same", "same error", "same problem"),
    *("doesn't work", "does not work", "didn't work", "did not work", "not working"),
    *("that's wrong", "that is wrong", "wrong again", "failed again", "fails again"),
    *("broke again", "didn't fix", "did not fix", "doesn't fix", "not fixed"),
)
_FAILURES = (
    *("FAILED", "FAIL:", "--- FAIL", "Traceback (most recent call last)", "AssertionError"),
    *("npm ERR!", "error[E", "panicked at", "Tests failed", "tests failed", "BUILD FAILED"),
    *("compilation terminated", "SyntaxError:", "exited with code 1", "exit code 1"),
)


class ConversationState(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the state of a conversation."""

    holder: BackendGroup | None = None  # whose backend answered last
    held_tokens: int = 0  # of the context, in that backend's KV cache at most
    answers_tools: bool = False  # in the middle of its tool calls
    evidence: float = 0.0  # that the last answer failed
    signs: tuple[str, ...] = ()  # the evidence in words
    dissatisfied: bool = False  # the user repeats the prompt, or complains
    goes_on: bool = False  # the prompt is too short to be a task of its own

    @property
    def holding(self) -> float:
        """Returns the log-odds for staying; 0 for a new conversation."""
        if self.holder is None:
            return 0.0
        doublings = math.log2(1 + self.held_tokens / PREFIX_TOKENS)
        return min(MAX_HOLDING, HOLDING + PER_DOUBLING * doublings)


NEW = ConversationState()


def conversation_state(
    items: tuple[ContextItem, ...],
    num_prompt_tokens: int,
    holder: BackendGroup | None,
    held_tokens: int = 0,
) -> ConversationState:
    """Reads a conversation's state from its items; the holder has at least `held_tokens`."""
    if len(items) < 2 and not held_tokens:
        return NEW
    recent = list(islice(reversed(items), MAX_ITEMS))  # newest first
    since_prompt = list(takewhile(lambda entry: not is_user(entry), recent))
    answers_tools = is_tool_output(recent[0])
    signs: list[tuple[float, str]] = []  # evidence, and what it is
    dissatisfied = goes_on = False
    if answers_tools:
        reports = [entry for entry in since_prompt if is_tool_output(entry)][:MAX_REPORTS]
        num_failing = sum(map(_fails, reports)) if _fails(reports[0]) else 0
        if num_failing:
            words = f"{num_failing} of the last {len(reports)} tool outputs report failures"
            signs.append((FAILING * num_failing, words))
        num_grown = sum(entry.num_tokens for entry in since_prompt)
        if num_grown >= GROWN_TOKENS:
            signs.append((GROWTH, f"{num_grown} tokens since the ask"))
    elif is_user(recent[0]):
        prompt, *earlier = (_text(entry) for entry in recent if is_user(entry))
        if any(_same(prompt, other) for other in earlier):
            signs.append((REPEATED, "the same ask again"))
        if earlier and any(complaint in prompt.lower() for complaint in _COMPLAINTS):
            signs.append((COMPLAINT, "a complaint about the last answer"))
        dissatisfied = bool(signs)
        goes_on = bool(earlier) and len(_words(prompt)) < MIN_PROMPT_WORDS
    brought = takewhile(lambda entry: is_user(entry) or is_tool_output(entry), recent)
    return ConversationState(
        holder=holder,
        held_tokens=max(
            held_tokens if holder else 0,
            num_prompt_tokens - sum(entry.num_tokens for entry in brought),
        ),
        answers_tools=answers_tools,
        evidence=sum((size for size, _ in signs), 0.0),
        signs=tuple(words for _, words in signs),
        dissatisfied=dissatisfied,
        goes_on=goes_on,
    )


def _fails(entry: ContextItem) -> bool:
    text = _text(entry)
    return any(failure in text for failure in _FAILURES)


def _same(prompt: str, earlier: str) -> bool:
    first, second = set(_words(prompt)), set(_words(earlier))
    if min(len(first), len(second)) < MIN_PROMPT_WORDS:
        return False
    return len(first & second) >= SAME_PROMPT * len(first | second)


def _words(text: str) -> list[bytes]:
    return words_of(text.encode("utf-8", "replace"))


def _text(entry: ContextItem) -> str:
    """Returns an item's text, or head and tail of a long one."""
    item = entry.item
    if isinstance(item, Message):
        parts = item.content
    elif isinstance(item, FunctionCallOutput | CustomToolCallOutput):
        parts = item.output
    else:
        return ""
    texts = []
    for part in parts[:4]:
        if isinstance(part, TextPart):
            text, half = part.text, MAX_CHARS // 2
            texts.append(text if len(text) <= MAX_CHARS else f"{text[:half]}\n{text[-half:]}")
    return "\n".join(texts)
