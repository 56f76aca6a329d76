"""`brief`: the fast answer streams at once as commentary, the deep one follows as the final answer.

What the deep engine says before the fast one has ended is held (never more than its response) and
forwarded the moment it ends. A fast engine that has said nothing by the time the deep answer is
complete, or that falls silent while the deep answer waits, is cancelled. Commentary calls no tools:
the fast engine is started without any, and a call that comes all the same is dropped.

If the deep engine fails before a word of it was seen, the fast one is asked for a whole answer.
"""

from backends.contract import Delta, DeltaKind, Finish, FinishReason, GenerateRequest, Usage
from router.strategies.actions import DEEP, FAST, Action, StartBranch
from router.strategies.hedge import Hedge
from router.strategies.machine import NOBODY, Machine
from router.strategies.part_requests import ADDED_TOKENS, TaskPart, in_words, shows_commentary
from router.strategies.record import StrategyOptions, StrategyRecord, Usages, at_most, reading

STAND_IN = 2  # the branch of the fast engine's own whole answer
# A commentary is to be read while the deep answer is made: a paragraph, not an essay.
BRIEF_MAX_OUTPUT_TOKENS = 256
BRIEF_INSTRUCTIONS = (
    "Answer in one short paragraph, from what you know now. "
    "A thorough answer by another model follows yours."
)


class Comment(TaskPart, frozen=True):
    """Requests a short paragraph to be read while another engine answers."""

    name = "comment"

    def request(self, request: GenerateRequest) -> GenerateRequest:
        instructions = "\n\n".join(filter(None, (request.instructions, BRIEF_INSTRUCTIONS)))
        return in_words(request, BRIEF_MAX_OUTPUT_TOKENS, instructions)


class Brief(Machine):
    """Streams the commentary, then the deep answer."""

    def __init__(self) -> None:
        super().__init__()
        self._held: list[Delta] = []  # the deep engine's, while the fast one speaks

    def start(self, now_us: int) -> list[Action]:
        return [
            StartBranch(FAST, FAST, Comment()),
            StartBranch(DEEP, DEEP),
            self._next_look(now_us),
        ]

    def _take_delta(self, branch: int, delta: Delta) -> list[Action]:
        if branch == DEEP and not self._is_over(FAST):
            self._held.append(delta)
            return []
        if branch != FAST:
            return [self._items.forward(branch, delta, "final_answer")]
        if delta.kind >= DeltaKind.FUNCTION_CALL:
            return []
        self._was_heard = True
        return [self._items.forward(FAST, delta, "commentary")]

    def _take_finish(self, branch: int, finish: Finish, now_us: int) -> list[Action]:
        if branch == FAST:
            return self._release()
        if branch == STAND_IN:
            return self._conclude()
        if finish.reason is FinishReason.ERROR:
            # A deep answer cut off while it was held was never seen: it gives way to the fast one.
            self._held.clear()
            if self._is_over(FAST):
                return self._replace()
            if self._items.speaker is not None:
                return []  # the paragraph in hand is finished first
            return [self._cancel(FAST), *self._replace()]
        if self._is_over(FAST):
            return self._conclude()
        return [self._cancel(FAST), *self._release()] if self._items.speaker is None else []

    def on_time(self, now_us: int, waiting: frozenset[int] = NOBODY) -> list[Action]:
        if self._is_over(FAST):
            return []
        if self._is_silent() and (self._held or DEEP in self._finishes):
            return [self._cancel(FAST, is_silent=True), *self._release()]
        return [self._next_look(now_us)]

    def _release(self) -> list[Action]:
        """Forwards held deltas, and ends if the deep engine has finished already."""
        deep = self._finishes.get(DEEP)
        if deep is not None and deep.reason is FinishReason.ERROR:
            return self._replace()
        actions = self._forward_held(DEEP, self._held, "final_answer")
        self._held.clear()
        return actions if deep is None else actions + self._conclude()

    def _replace(self) -> list[Action]:
        """Handles a failure of the deep engine once the commentary is over."""
        fast = self._finishes.get(FAST)
        if self._items.speaker == DEEP or (fast and fast.reason is FinishReason.ERROR):
            return self._conclude()
        # What the comment held has been released.
        return [StartBranch(STAND_IN, FAST, own_reservation=True)]

    def _conclude(self) -> list[Action]:
        answer = self._finishes.get(STAND_IN) or self._finishes[DEEP]
        # Half a final answer may have gone out: no commentary makes that a whole one.
        broken = self._items.speaker in (DEEP, STAND_IN)
        if answer.reason is FinishReason.ERROR and not broken:
            answer = self._finishes[DEEP]  # what was wanted of it, and its error, tell more
        return self._end(answer, replaceable=not broken)


def _machine(_options: StrategyOptions, request: GenerateRequest) -> Machine:
    if shows_commentary(request):
        return Brief()
    return Hedge(after_us=None)  # nothing is said before the deep answer


def _usage(_options: StrategyOptions, once: Usage) -> Usages:
    said = at_most(once, BRIEF_MAX_OUTPUT_TOKENS)
    return {"fast": said + reading(ADDED_TOKENS), "deep": once}


RECORD = StrategyRecord(
    name="brief", machine=_machine, usage=_usage, options=StrategyOptions, compares=True
)
