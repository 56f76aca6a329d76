"""Finds how security-sensitive a conversation is, by its instructions and by all that was said.

The newest user messages and the assistant's message before them belong to the current task. What
was said earlier, what the assistant said, and the instructions, which come with every task, count
only if they are certain (`HOLDS_FROM`): so a doubtful message holds its own task, and not the
conversation, and an answer that names OAuth in passing holds nothing. Messages of the system or the
developer are instructions, wherever they stand.

Each item is scored once: by its digest, so that a history that is sent again whole is known, too.
Of a long history that is not known the items most likely to be sensitive are scored first
(`_first_to_score`), and the others with the tasks that follow. Instructions are known by their
hash. No text is kept.
"""

from collections.abc import Callable

import msgspec

from backends.contract import ContextItem, Message
from backends.prompt import is_user, parts_text
from router.classify.task import Task

HOLDS_FROM = 0.8  # `p_security` that holds a conversation, or comes from its instructions
MAX_REMEMBERED = 32_768  # scores
MAX_NEW = 256  # items that are scored for one task
MAX_NEW_CHARS = 131_072  # of them, with at most `MAX_ITEM_CHARS` of each: a longer one is sampled
MAX_ITEM_CHARS = 2_560
MAX_PEEKED = 4_096  # items of a history that is not known, the newest, that are ordered

Judge = Callable[[str], float]  # a text's `p_security`


class Judges(msgspec.Struct, frozen=True):
    """Holds who judges which texts."""

    user: Judge
    assistant: Judge
    instructions: Judge
    is_telling: Callable[[str], bool]  # cheaply, whether a text may be sensitive


class Surroundings(msgspec.Struct, frozen=True, gc=False):
    """Holds how sensitive a task is by all but its last user message."""

    p_security: float = 0.0
    where: str = ""  # in words


NOTHING = Surroundings()


class Sensitivity:
    """Remembers items' scores. Not for use from several threads."""

    def __init__(self, judges: Judges) -> None:
        self._judges = judges
        self._judge_of: dict[str, Judge] = {
            "user": judges.user,
            "assistant": judges.assistant,
            "system": judges.instructions,
            "developer": judges.instructions,
        }
        self._known: dict[int, float] = {}  # by digest or hash, the oldest first

    def around(self, task: Task) -> Surroundings:
        """Returns the highest score around a task's last user message."""
        items = task.request.items
        found = []
        if task.request.instructions:
            found.append((self._instructions(task.request.instructions), "the instructions"))
        if len(items) > 1 or (items and not is_user(items[0])):
            found += self._said(items)
        if not found:
            return NOTHING
        p_security, where = max(found)
        return Surroundings(p_security, where) if p_security else NOTHING

    def _instructions(self, text: str) -> float:
        key = hash(text)  # with this process's secret: nobody makes two texts with the same one
        p_security = self._known.get(key)
        if p_security is None:
            p_security = self._learn(key, self._judges.instructions(text))
        return p_security if p_security >= HOLDS_FROM else 0.0

    def _said(self, items: tuple[ContextItem, ...]) -> list[tuple[float, str]]:
        """Scores the messages of the task, those before it, and the instructions among them."""
        messages, num_since = _messages(items)
        known = self._known
        self._score_new([entry for entry in messages if entry.digest not in known])
        in_task = before = told = 0.0
        is_earlier = False
        for number, entry in enumerate(messages):
            p_security = known.get(entry.digest, 0.0)
            role = _role(entry)
            if role in ("system", "developer"):
                told = max(told, p_security)
            elif is_earlier:
                before = max(before, p_security)
            else:
                if role == "user" or p_security >= HOLDS_FROM:
                    in_task = max(in_task, p_security)
                # The assistant's first message before the newest asks is the task's last one.
                is_earlier = role == "assistant" and number >= num_since
        return [
            (in_task, "the messages of the task"),
            (before if before >= HOLDS_FROM else 0.0, "earlier messages"),
            (told if told >= HOLDS_FROM else 0.0, "the instructions"),
        ]

    def _score_new(self, unknown: list[ContextItem]) -> None:
        num_chars = 0
        if len(unknown) > MAX_NEW:
            unknown = self._first_to_score(unknown)
        for entry in unknown:
            text = _text(entry)
            num_chars += min(len(text), MAX_ITEM_CHARS)
            if num_chars > MAX_NEW_CHARS:
                break
            self._learn(entry.digest, self._judge_of[_role(entry)](text))

    def _first_to_score(self, unknown: list[ContextItem]) -> list[ContextItem]:
        """Returns instructions and what the user said, those with telling words first."""

        def rank(entry: ContextItem) -> int:
            is_asked = _role(entry) != "assistant"
            return 2 * (not self._judges.is_telling(_text(entry))) + (not is_asked)

        return sorted(unknown[:MAX_PEEKED], key=rank)[:MAX_NEW]

    def _learn(self, key: int, p_security: float) -> float:
        if len(self._known) >= MAX_REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[key] = p_security
        return p_security


def _messages(items: tuple[ContextItem, ...]) -> tuple[list[ContextItem], int]:
    """Returns all messages but the last user message, which is classified by itself.

    The newest come first, with how many of them are newer than that one.
    """
    messages: list[ContextItem] = []
    num_since = -1
    for entry in reversed(items):
        item = entry.item
        if isinstance(item, Message):
            if num_since < 0 and item.role == "user":
                num_since = len(messages)
            else:
                messages.append(entry)
    return messages, num_since if num_since >= 0 else len(messages)


def _role(entry: ContextItem) -> str:
    assert isinstance(entry.item, Message)
    return entry.item.role


def _text(entry: ContextItem) -> str:
    assert isinstance(entry.item, Message)
    return parts_text(entry.item.content)
