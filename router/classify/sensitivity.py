"""Finds how security-sensitive a conversation is, by its instructions and by all that was said.

The newest user messages and the assistant's message before them belong to the current task. What
was said earlier, what the assistant said, and the instructions, which come with every task, count
only if they are certain (`HOLDS_FROM`): so a doubtful message holds its own task, and not the
conversation, and an answer that names OAuth in passing holds nothing.

Each item is scored once: by its digest, so that a history that is sent again whole is known, too.
Instructions are known by their hash. No text is kept.
"""

from collections.abc import Callable

import msgspec

from backends.contract import ContextItem, Message
from backends.prompt import is_user, parts_text
from router.classify.task import Task

HOLDS_FROM = 0.8  # `p_security` that holds a conversation, or comes from its instructions
MAX_REMEMBERED = 32_768  # scores
MAX_NEW = 128  # items that are scored for one task, the newest first

Judge = Callable[[str], float]  # a text's `p_security`


class Surroundings(msgspec.Struct, frozen=True):
    """Holds how sensitive a task is by all but its last user message."""

    p_security: float = 0.0
    where: str = ""  # in words


NOTHING = Surroundings()


class Sensitivity:
    """Remembers items' scores. Not for use from several threads."""

    def __init__(self, judge: Judge, judge_answer: Judge) -> None:
        """`judge_answer` is for what the assistant said."""
        self._judge = judge
        self._judge_answer = judge_answer
        self._known: dict[int, float] = {}  # by digest or hash, the oldest first

    def around(self, task: Task) -> Surroundings:
        """Returns the highest score around a task's last user message."""
        items = task.request.items
        found = []
        if task.request.instructions:
            found.append((self._instructions(task.request.instructions), "the instructions"))
        if len(items) > 1:
            found += self._said(items)
        p_security, where = max(found, default=(0.0, ""))
        return Surroundings(p_security, where) if p_security else NOTHING

    def _instructions(self, text: str) -> float:
        key = hash(text)  # with this process's secret: nobody makes two texts with the same one
        p_security = self._known.get(key)
        if p_security is None:
            p_security = self._learn(key, text, self._judge)
        return p_security if p_security >= HOLDS_FROM else 0.0

    def _said(self, items: tuple[ContextItem, ...]) -> list[tuple[float, str]]:
        """Scores the messages of the task, and then those before it."""
        in_task = before = 0.0
        num_new = 0
        has_asked = is_earlier = False
        for entry in reversed(items):
            item = entry.item
            if not isinstance(item, Message) or item.role not in ("user", "assistant"):
                continue
            if is_user(entry) and not has_asked:
                has_asked = True  # the last user message, which is classified by itself
                continue
            p_security = self._known.get(entry.digest)
            if p_security is None:
                if num_new == MAX_NEW:
                    continue
                num_new += 1
                judge = self._judge if is_user(entry) else self._judge_answer
                p_security = self._learn(entry.digest, parts_text(item.content), judge)
            if is_earlier:
                before = max(before, p_security)
            elif is_user(entry) or p_security >= HOLDS_FROM:
                in_task = max(in_task, p_security)
            # The first message of the assistant before the newest asks is the task's last one.
            is_earlier = is_earlier or (has_asked and not is_user(entry))
        held = before if before >= HOLDS_FROM else 0.0
        return [(in_task, "the messages of the task"), (held, "earlier messages")]

    def _learn(self, key: int, text: str, judge: Judge) -> float:
        if len(self._known) >= MAX_REMEMBERED:
            del self._known[next(iter(self._known))]
        p_security = self._known[key] = judge(text)
        return p_security
