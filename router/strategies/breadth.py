"""`breadth`: the fast engine gives several independent answers, from which the deep one makes one.

Each variation has the task's context and nothing of the others. One at a time is shown: the first
to start streams, the others are buffered and follow when they have ended. With a judge they are
commentary and the judge's answer is final; without one each is final. Only the judge calls tools:
where a call is required and nobody judges, the fast engine answers by itself instead.

The first runs under the task's reservation, each other under its own, which it releases at its end;
those that the pools refuse are left out.

Failed variations are left out, too; when all running ones fall silent they are cancelled, but not
those that wait for their pools. Without any variation the deep engine answers by itself; if the
judge fails before its first token, the first whole variation is the answer.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

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
from router.strategies.actions import DEEP, FAST, Action, Phase, StartBranch
from router.strategies.items import text_of
from router.strategies.machine import NOBODY, PATIENCE_US, WAITED_FOR_US, Machine
from router.strategies.part_requests import ADDED_TOKENS, TaskPart, behind, in_words
from router.strategies.record import StrategyOptions, StrategyRecord, Usages, at_most, reading

MIN_VARIATIONS = 2
MAX_VARIATIONS = 10  # each is a whole generation, and the judge reads them all
VARIATION_MAX_OUTPUT_TOKENS = 2_048  # of one that a judge reads
JUDGE_INSTRUCTIONS = (
    "Below are {number} independent answers by a smaller model to the request above. Judge them, "
    "take the best or merge what is right in them, and give the final answer, whole."
)


class BreadthOptions(StrategyOptions, frozen=True, kw_only=True):
    """Sets how many variations there are, and whether the deep engine judges them."""

    num_variations: Annotated[int, Meta(ge=MIN_VARIATIONS, le=MAX_VARIATIONS)] = 5
    judged: bool = True


class Vary(TaskPart, frozen=True):
    """Requests one of several independent answers without tools; `number` counts from 0.

    `num_final` of them are the final answers, which share the request's limit of output; 0 if a
    judge's is final.
    """

    name = "vary"
    number: int
    num_final: int = 0

    def request(self, request: GenerateRequest) -> GenerateRequest:
        limit = VARIATION_MAX_OUTPUT_TOKENS
        if self.num_final:
            limit = max(1, request.max_output_tokens // self.num_final)
        varied = in_words(request, limit, request.instructions)
        stop = request.stop if self.num_final else ()
        return msgspec.structs.replace(varied, seed=(request.seed or 0) + self.number, stop=stop)


class Judge(TaskPart, frozen=True):
    """Requests the final answer from independent answers to pick from or to merge."""

    name = "judge"
    answers: tuple[str, ...]

    def request(self, request: GenerateRequest) -> GenerateRequest:
        numbered = [f"Answer {n}:\n{answer}" for n, answer in enumerate(self.answers, start=1)]
        instructions = JUDGE_INSTRUCTIONS.format(number=len(self.answers))
        text = "\n\n".join((instructions, *numbered))
        return behind(request, Message("developer", (TextPart(text),)))


class Breadth(Machine):
    """Runs variations (branches below `num_variations`) and the judge (that branch)."""

    def __init__(self, num_variations: int, *, judged: bool) -> None:
        super().__init__()
        self._judge = num_variations
        self._judged = judged
        self._said: list[list[Delta]] = [[] for _ in range(num_variations)]
        self._num_shown = [0] * num_variations  # deltas forwarded
        self._ready: list[int] = []  # ended whole, not shown yet, in that order
        self._speaker: int | None = None  # the variation that streams
        self._waited = NOBODY  # at the last look
        self._concluded = False  # nothing but the judge may come

    def start(self, now_us: int) -> list[Action]:
        num_final = 0 if self._judged else self._judge
        variations = [
            StartBranch(number, FAST, Vary(number, num_final), own_reservation=number > 0)
            for number in range(self._judge)
        ]
        self._hear(now_us)
        return [*variations, self._next_look()]

    def _take_delta(self, branch: int, delta: Delta) -> list[Action]:
        if branch == self._judge:
            return [self._items.forward(branch, delta, "final_answer")]
        if delta.kind >= DeltaKind.FUNCTION_CALL:
            return []
        self._hear(delta.at_us)
        self._said[branch].append(delta)
        if self._speaker is None:
            self._speaker = branch
        return self._show(branch) if self._speaker == branch else []

    def _take_finish(self, branch: int, finish: Finish, now_us: int) -> list[Action]:
        if branch == self._judge:
            unheard = not self._items.has_words_of(branch)
            failed = finish.reason is FinishReason.ERROR
            stand_in = self._stand_in() if failed and unheard else []
            return [*stand_in, *self._end(finish, replaceable=unheard)]
        if finish.reason is FinishReason.ERROR:
            if self._speaker != branch:
                self._said[branch].clear()  # half an answer, never seen
        elif self._speaker != branch and self._said[branch]:
            self._ready.append(branch)
        actions = self._next_speaker() if self._speaker in (None, branch) else []
        if all(self._is_over(number) for number in range(self._judge)):
            return actions + self._conclude()
        return [*actions, self._next_look()]

    def on_time(self, now_us: int, waiting: frozenset[int] = NOBODY) -> list[Action]:
        running = [number for number in range(self._judge) if not self._is_over(number)]
        if not running:
            return []
        silent: list[int] = []
        is_silent = self._is_silent(now_us)
        if is_silent:
            # None of them has said anything for so long, which those that had to wait could not.
            silent = [number for number in running if number not in waiting | self._waited]
        self._waited = waiting
        actions: list[Action] = [self._cancel(number, is_silent=True) for number in silent]
        for number in silent:
            if self._speaker == number:
                actions += self._next_speaker()
            else:
                self._said[number].clear()
        if len(silent) == len(running):  # those that ended are what there is
            return actions + self._conclude()
        if is_silent:
            self._hear(now_us)  # those that are left have only begun
        return [*actions, self._next_look()]

    def _patience_us(self) -> int:
        has_whole = any(self._answer(number) for number in range(self._judge))
        is_waited_for = self._judged and (has_whole or not any(self._said))
        return WAITED_FOR_US if is_waited_for else PATIENCE_US

    def does_without(self, branch: int) -> bool:
        return branch == self._judge and any(self._answer(number) for number in range(self._judge))

    def may_start(self, backend_index: int) -> bool:
        return backend_index == DEEP and self._judged and not self._concluded

    def _next_speaker(self) -> list[Action]:
        """Shows the variations that have ended, then lets a running one stream."""
        actions: list[Action] = []
        for number in self._ready:
            actions += self._show(number)
        self._ready.clear()
        under_way = (n for n in range(self._judge) if self._said[n] and not self._is_over(n))
        self._speaker = next(under_way, None)
        if self._speaker is not None:
            actions += self._show(self._speaker)
        return actions

    def _show(self, number: int) -> list[Action]:
        """Forwards a variation's deltas that were not shown yet."""
        phase: Phase = "commentary" if self._judged else "final_answer"
        new = self._said[number][self._num_shown[number] :]
        self._num_shown[number] += len(new)
        return self._forward_held(number, new, phase)

    def _conclude(self) -> list[Action]:
        """Starts the judge or ends, once all variations are over."""
        self._concluded = True
        answers = tuple(text for number in range(self._judge) if (text := self._answer(number)))
        if not answers:
            return [StartBranch(self._judge, DEEP, own_reservation=not self._judged)]
        if self._judged:
            return [StartBranch(self._judge, DEEP, Judge(answers))]
        # Where one of them was cut, so is the response.
        whole = [f for f in self._finishes.values() if f.reason is not FinishReason.ERROR]
        cut = (finish for finish in whole if finish.reason is FinishReason.LENGTH)
        return self._end(next(cut, whole[0]), replaceable=True)

    def _stand_in(self) -> list[Action]:
        """Gives the first whole variation as the answer."""
        whole = next((number for number in range(self._judge) if self._answer(number)), None)
        if whole is None:
            return []
        return self._forward_held(whole, self._said[whole], "final_answer")

    def _answer(self, number: int) -> str:
        """Returns the text of a variation that completed, else an empty text."""
        finish = self._finishes.get(number)
        if finish is None or finish.reason not in (FinishReason.STOP, FinishReason.LENGTH):
            return ""
        return text_of(self._said[number])


def _machine(options: BreadthOptions, request: GenerateRequest) -> Breadth:
    """Makes no more final answers than the limit of output has tokens: each needs one."""
    number = options.num_variations
    if not options.judged:
        number = max(1, min(number, request.max_output_tokens))
    return Breadth(number, judged=options.judged)


def _usage(options: BreadthOptions, once: Usage) -> Usages:
    if not options.judged:
        return {"fast": once}
    first = at_most(once, VARIATION_MAX_OUTPUT_TOKENS)
    num_read = options.num_variations * first.num_output_tokens + ADDED_TOKENS
    return {"fast": first, "deep": once + reading(num_read)}


RECORD = StrategyRecord(
    name="breadth",
    machine=_machine,
    usage=_usage,
    options=BreadthOptions,
    metadata={"n": "num_variations", "judge": "judged"},
    calls_tools=lambda options: options.judged,
    shows=frozenset({"variations"}),
)
