"""`advise`: the fast engine answers, and asks the deep one for a short plan where it wants one.

The fast engine is offered a tool of the gateway's. Without a call its words are the answer. With
one, the deep engine reads the conversation and the question and gives a plan of bounded length,
which is commentary, under a reservation of its own; then the fast engine goes on, with the client's
tools. It may ask so many times; a call beside calls of the client's own is dropped.

Advice that fails, or falls silent, is told to the fast engine, which answers by itself. If the fast
engine fails unheard, or asks once more than it may and says nothing, the deep one answers.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from backends.contract import (
    Delta,
    DeltaKind,
    Finish,
    FinishReason,
    FunctionCall,
    FunctionCallOutput,
    GenerateRequest,
    Item,
    Message,
    TextFormat,
    TextPart,
)
from backends.delegation import ADVISE, ADVISE_TOOL
from router.strategies.actions import DEEP, FAST, Action, StartBranch
from router.strategies.items import text_of
from router.strategies.machine import NOBODY, PATIENCE_US
from router.strategies.part_requests import TaskPart, WholeAnswer, behind, in_words
from router.strategies.prelude import Prelude
from router.strategies.record import StrategyOptions, StrategyRecord, reading
from router.strategies.tool_rounds import (
    TOOL_TOKENS,
    Converse,
    ToolRounds,
    arguments_of,
    assistant_said,
    can_offer,
    decoded,
)

MAX_QUESTION_CHARS = 4_096
THINKS_US = 30_000_000  # ours, at most: before its first word, which not every engine shows
NO_ADVICE = "There is no advice: answer by yourself."
ADVICE_PROMPT = (
    "You advise a smaller model, which answers the request above and asks you:\n\n{question}\n\n"
    "Give it a plan in a few numbered steps, at most 150 words. Do not write the answer."
)


class AdviseOptions(StrategyOptions, frozen=True, kw_only=True):
    """Limits the advice of one response."""

    max_advices: Annotated[int, Meta(ge=1, le=8)] = 2
    advice_tokens: Annotated[int, Meta(ge=64, le=8_192)] = 2_048  # of each, reasoning included


class GiveAdvice(TaskPart, frozen=True):
    """Requests a short plan without tools; `said` follows the task's items."""

    name = "advice"
    question: str
    max_output_tokens: int
    said: tuple[Item, ...] = ()

    def request(self, request: GenerateRequest) -> GenerateRequest:
        words = msgspec.structs.replace(
            in_words(request, request.max_output_tokens, request.instructions),
            text_format=TextFormat(),
            max_output_tokens=self.max_output_tokens,
            reasoning_effort=request.reasoning_effort,
        )
        text = ADVICE_PROMPT.format(question=self.question)
        return behind(words, *self.said, Message("user", (TextPart(text),)))


class _Arguments(msgspec.Struct):
    question: str = ""


class Advise(ToolRounds):
    """Runs rounds of the fast engine, and the deep one's advice between them."""

    def __init__(self, options: AdviseOptions, request: GenerateRequest) -> None:
        super().__init__(
            ADVISE,
            offered=can_offer(ADVISE, request),
            max_output_tokens=request.max_output_tokens,
        )
        self._options = options
        self._num_asked = 0
        self._num_spent_tokens = 0  # of the answer's limit
        self._behind: tuple[Item, ...] = ()  # what earlier rounds said, asked and were told
        self._advice: int | None = None  # the branch that advises now
        self._round = self._new_branch()
        self._deep = False  # the round is the deep engine's, which answers by itself
        self._said: list[Delta] = []  # by the round, or by the advice
        self._calls: list[Delta] = []  # of the tool
        self._has_client_calls = False

    def start(self, now_us: int) -> list[Action]:
        return self._start_round(self._round, self._part())

    def _take_delta(self, branch: int, delta: Delta) -> list[Action]:
        if branch == self._advice:
            if delta.kind >= DeltaKind.FUNCTION_CALL:
                return []
            self._hear(delta.at_us)
            self._said.append(delta)
            return [self._items.forward(branch, delta, "commentary")]
        if self._deep:
            return [self._items.forward(branch, delta, "final_answer")]
        if self._is_ours(delta):
            self._calls.append(delta)
            return self._say(self._round, self._prelude.settle("commentary"))
        self._has_client_calls = self._has_client_calls or delta.kind >= DeltaKind.FUNCTION_CALL
        self._said.append(delta)
        return self._say(self._round, self._prelude.take(delta))

    def _take_finish(self, branch: int, finish: Finish, now_us: int) -> list[Action]:
        if branch == self._advice:
            return self._advised(finish.reason is not FinishReason.ERROR)
        if self._deep:
            return self._end(finish, replaceable=False)
        if finish.reason is FinishReason.ERROR and self._prelude.phase != "final_answer":
            return self._round_failed(branch)
        said = self._say(self._round, self._prelude.settle("final_answer"))
        if self._prelude.phase == "final_answer":
            self._num_spent_tokens += finish.usage.num_output_tokens
        asks = self._calls and not self._has_client_calls and finish.reason is FinishReason.STOP
        may_ask = self._num_asked < self._options.max_advices
        if not asks or self._num_spent_tokens >= self._max_output_tokens:
            return [*said, *self._end(finish, replaceable=False)]
        if may_ask:
            return [*said, *self._ask(now_us)]
        if self._prelude.phase != "final_answer":  # it does nothing but ask
            return [*said, *self._round_failed(branch)]
        return [*said, *self._end(finish, replaceable=False)]

    def on_time(self, now_us: int, waiting: frozenset[int] = NOBODY) -> list[Action]:
        if self._ended or self._advice is None:
            return [] if self._ended else self._look(now_us)
        if self._advice in waiting:
            self._hear(now_us)
        if not self._is_silent(now_us):
            return [self._next_look()]
        return [self._cancel(self._advice, is_silent=True), *self._advised(False)]

    def _round_failed(self, branch: int) -> list[Action]:
        """Has the deep engine answer by itself."""
        self._deep = True
        self._round = self._new_branch()
        return [StartBranch(self._round, DEEP, own_reservation=True)]

    def _patience_us(self) -> int:
        return PATIENCE_US if self._said else THINKS_US

    def does_without(self, branch: int) -> bool:
        return branch == self._advice

    def may_start(self, backend_index: int) -> bool:
        return backend_index == FAST and self._advice is not None and not self._ended

    def _part(self) -> TaskPart:
        if not self._offered:
            return WholeAnswer()
        may_ask = self._num_asked < self._options.max_advices
        return Converse(
            "opening" if may_ask else "closing", self._behind, ADVISE, self._num_spent_tokens
        )

    def _begin_round(self) -> None:
        self._round = self._new_branch()
        self._prelude = Prelude()
        self._said, self._calls = [], []

    def _ask(self, now_us: int) -> list[Action]:
        """Starts the advice that the round's first call asks for."""
        first = self._calls[0]
        arguments = arguments_of(self._calls, first.index)
        question = decoded(arguments, _Arguments).question.strip()
        words = assistant_said(text_of(self._said))
        self._num_asked += 1
        call = FunctionCall(first.call_id or f"call_{self._num_asked}", ADVISE_TOOL, arguments)
        self._behind = (*self._behind, *words, call)
        self._call_id = call.call_id
        self._said = []
        self._advice = self._new_branch()
        part = GiveAdvice(
            question[:MAX_QUESTION_CHARS] or "What is the best way to answer?",
            self._options.advice_tokens,
            words,
        )
        start = StartBranch(self._advice, DEEP, part, own_reservation=True)
        self._hear(now_us)
        return [start, self._next_look()]

    def _advised(self, whole: bool) -> list[Action]:
        """Begins the next round, with the advice or word that there is none."""
        text = text_of(self._said) if whole else ""
        output = FunctionCallOutput(self._call_id, (TextPart(text or NO_ADVICE),))
        self._behind = (*self._behind, output)
        self._advice = None
        self._begin_round()
        return self._start_round(self._round, self._part())


RECORD = StrategyRecord(
    name="advise",
    machine=Advise,
    usage=lambda _options, once: {"fast": once + reading(TOOL_TOKENS)},
    options=AdviseOptions,
    in_tool_loops=True,
    metadata={"max_advices": "max_advices", "advice_tokens": "advice_tokens"},
)
