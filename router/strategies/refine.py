"""`refine`: the fast engine drafts, the deep one checks the draft and answers.

The draft streams at once as commentary; the final answer is the deep engine's. Without a draft,
after a failure or silence, the deep engine answers by itself. If it fails before its first token, a
complete draft is the answer. Drafts call no tools.
"""

from backends.contract import (
    Delta,
    DeltaKind,
    Finish,
    FinishReason,
    GenerateRequest,
    Message,
    TextPart,
    Usage,
)
from router.strategies.actions import DEEP, FAST, Action, StartBranch
from router.strategies.items import text_of
from router.strategies.machine import NOBODY, Machine
from router.strategies.part_requests import ADDED_TOKENS, TaskPart, WholeAnswer, behind, in_words
from router.strategies.record import StrategyOptions, StrategyRecord, Usages, at_most, reading

DRAFT_MAX_OUTPUT_TOKENS = 4_096  # the deep engine has to read it
REVISE_INSTRUCTIONS = (
    "The last assistant message is a draft by a smaller model. Check it against the request, "
    "correct what is wrong, add what is missing, and give the final answer, whole."
)


class Draft(TaskPart, frozen=True):
    """Requests a complete answer without tools, for another engine to improve."""

    name = "draft"

    def request(self, request: GenerateRequest) -> GenerateRequest:
        return in_words(request, DRAFT_MAX_OUTPUT_TOKENS, request.instructions)


class Revise(TaskPart, frozen=True):
    """Requests the final answer with a draft to check and improve."""

    name = "revise"
    draft: str

    def request(self, request: GenerateRequest) -> GenerateRequest:
        return behind(
            request,
            Message("assistant", (TextPart(self.draft),), phase="commentary"),
            Message("developer", (TextPart(REVISE_INSTRUCTIONS),)),
        )


class Refine(Machine):
    """Streams the draft, then the deep engine's answer."""

    def __init__(self) -> None:
        super().__init__()
        self._draft: list[Delta] = []

    def start(self, now_us: int) -> list[Action]:
        return [StartBranch(FAST, FAST, Draft()), self._next_look(now_us)]

    def _take_delta(self, branch: int, delta: Delta) -> list[Action]:
        if branch == DEEP:
            return [self._items.forward(DEEP, delta, "final_answer")]
        if delta.kind >= DeltaKind.FUNCTION_CALL:
            return []
        self._was_heard = True
        self._draft.append(delta)
        return [self._items.forward(FAST, delta, "commentary")]

    def _take_finish(self, branch: int, finish: Finish, now_us: int) -> list[Action]:
        if branch == FAST:
            whole = finish.reason in (FinishReason.STOP, FinishReason.LENGTH)
            draft = text_of(self._draft) if whole else ""
            return [StartBranch(DEEP, DEEP, Revise(draft) if draft else WholeAnswer())]
        spoke = self._items.speaker == DEEP
        return self._end(finish, replaceable=bool(self._draft) and not spoke)

    def may_start(self, backend_index: int) -> bool:
        return backend_index == DEEP and not self._is_over(FAST)

    def on_time(self, now_us: int, waiting: frozenset[int] = NOBODY) -> list[Action]:
        if self._is_over(FAST):
            return []
        if self._is_silent():
            return [self._cancel(FAST, is_silent=True), StartBranch(DEEP, DEEP)]
        return [self._next_look(now_us)]


def _usage(_options: StrategyOptions, once: Usage) -> Usages:
    drafted = at_most(once, DRAFT_MAX_OUTPUT_TOKENS)
    return {"fast": drafted, "deep": once + reading(drafted.num_output_tokens + ADDED_TOKENS)}


RECORD = StrategyRecord(
    name="refine",
    machine=lambda _options, _request: Refine(),
    usage=_usage,
    options=StrategyOptions,
)
