"""`verify`: several fast answers side by side; a check lets one of them go out, or deep answers.

Nothing is shown before. Three checks, each asked only while it can still change the outcome:

- certain faults (`checks.fault`): an answer that has one never goes out
- agreement of the fast answers, once as many have ended as decide it
- a verdict of one word by the deep engine, under a reservation of its own

`acceptance` weighs what they say against the price of a deep answer. A doubtful task is the deep
engine's, which streams as if it were alone, under a reservation that it takes then. If it fails
before its first word, the best fast answer stands unless it has a fault.

The first answer runs under the task's reservation, each other under its own. Once one has ended,
the others have `OTHERS_PATIENCE_US` to do so.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from backends.contract import (
    Delta,
    DeltaKind,
    Finish,
    FinishReason,
    GenerateRequest,
    Message,
    TextFormat,
    TextPart,
)
from router.strategies.acceptance import Acceptance
from router.strategies.actions import DEEP, FAST, Action, StartBranch, WakeAt
from router.strategies.checks import FastAnswer, agreeing, answer_of, fault
from router.strategies.machine import NOBODY, PATIENCE_US, WAITED_FOR_US, Machine
from router.strategies.part_requests import TaskPart, behind, in_words
from router.strategies.record import StrategyOptions, StrategyRecord

MAX_ANSWERS = 5
OTHERS_PATIENCE_US = 1_000_000  # ours: ten answers took 40 to 120 ms longer than one, measured
VERDICT_MAX_OUTPUT_TOKENS = 16  # the least that OpenAI's API takes; it is cut after its first word
VERDICT_PROMPT = (
    "Is the answer above right, and all that was asked for? Reply with one word: yes or no."
)
DRAFT_MAX_CHARS = 16_384  # of an answer that the verdict is about

# Evidence that the answer is right, in log-odds; assumed.
ALL_AGREE = 1.5  # less, down to its negative, where fewer do
VERDICTS = {"yes": 0.75, "no": -1.5}  # the deep engine seldom rejects what is right

_AROUND_A_WORD = " \n\t*_\"'`.,:!#"
_NONE = -1  # no branch


class VerifyOptions(StrategyOptions, frozen=True, kw_only=True):
    """Sets how many fast answers there are, and what they are checked by."""

    num_answers: Annotated[int, Meta(ge=1, le=MAX_ANSWERS)] = 3
    asks_verdict: bool = True
    accept: Annotated[str, Meta(max_length=512)] = ""  # an RE2 pattern of the whole text


class WeighedOptions(VerifyOptions, frozen=True, kw_only=True):
    """Adds what the router knows of the task."""

    acceptance: Acceptance = Acceptance()


class OneOfMany(TaskPart, frozen=True):
    """Requests one of several independent answers, with all that the task has; from 0."""

    name = "answer"
    number: int

    def request(self, request: GenerateRequest) -> GenerateRequest:
        return msgspec.structs.replace(request, seed=(request.seed or 0) + self.number)


class AskVerdict(TaskPart, frozen=True):
    """Requests one word about a fast answer."""

    name = "verdict"
    answer: str

    def request(self, request: GenerateRequest) -> GenerateRequest:
        asked = behind(
            in_words(request, VERDICT_MAX_OUTPUT_TOKENS, request.instructions),
            Message("assistant", (TextPart(self.answer[:DRAFT_MAX_CHARS]),)),
            Message("user", (TextPart(VERDICT_PROMPT),)),
        )
        return msgspec.structs.replace(asked, text_format=TextFormat())


class Verify(Machine):
    """Runs fast answers (branches below `num_answers`), the verdict and the deep answer."""

    def __init__(self, options: VerifyOptions, request: GenerateRequest) -> None:
        super().__init__()
        self._request = request
        self._options = options
        self._acceptance = Acceptance()
        if isinstance(options, WeighedOptions):
            self._acceptance = options.acceptance
        self._verdict = options.num_answers  # the numbers of these branches
        self._deep = self._verdict + 1
        self._held: list[list[Delta]] = [[] for _ in range(self._verdict)]
        self._answers: dict[int, FastAnswer] = {}  # by branch: those without a certain fault
        self._best = _NONE  # the branch whose answer most others agree with
        self._num_agreeing = 0  # others, with that answer
        self._fault = ""  # of the latest answer that has one
        self._word = ""  # of the verdict
        self._stage: Literal["answers", "verdict", "deep"] = "answers"

    def start(self, now_us: int) -> list[Action]:
        for num_answers in (len(self._held), 1):
            del self._held[num_answers:]
            may_come = list(self._all_evidence())
            if self._acceptance.is_worth_a_look(may_come, num_answers):
                break
        else:
            return self._go_deep()
        if self._acceptance.settles(may_come) == "accepted":
            del self._held[1:]  # one is enough, whatever others would say
        answers = [
            StartBranch(number, FAST, OneOfMany(number), own_reservation=number > 0)
            for number in range(len(self._held))
        ]
        self._hear(now_us)
        return [*answers, self._next_look()]

    def _all_evidence(self) -> Iterator[float]:
        """Yields what checks may say, at the least and at the most, before any answer is there."""
        agreement = ALL_AGREE if len(self._held) > 1 else 0.0
        verdicts = VERDICTS.values() if self._options.asks_verdict else (0.0,)
        return (sign * agreement + verdict for sign in (-1, 1) for verdict in verdicts)

    def on_time(self, now_us: int, waiting: frozenset[int] = NOBODY) -> list[Action]:
        if self._ended or self._stage == "deep":
            return []
        if self._stage == "verdict":
            if self._verdict in waiting:
                self._hear(now_us)
            if not self._is_silent(now_us):
                return [self._next_look()]
            return [self._cancel(self._verdict, is_silent=True), *self._decide(0.0)]
        if self._answers or self._is_silent(now_us):
            late = [self._cancel(n, is_silent=n not in waiting) for n in self._running()]
            return [*late, *self._weigh(now_us)]
        return [self._next_look()]

    def does_without(self, branch: int) -> bool:
        return branch == self._deep and self._best != _NONE

    def _patience_us(self) -> int:
        return WAITED_FOR_US if self._stage == "answers" else PATIENCE_US

    def _take_delta(self, branch: int, delta: Delta) -> list[Action]:
        if branch == self._deep:
            return [self._items.forward(branch, delta, "final_answer")]
        self._hear(delta.at_us)
        if branch < self._verdict:
            self._held[branch].append(delta)
        elif delta.kind is DeltaKind.TEXT:
            self._word += delta.text.strip(_AROUND_A_WORD).lower()
            if self._word in VERDICTS:
                return [self._cancel(branch), *self._decide(VERDICTS[self._word])]
        return []

    def _take_finish(self, branch: int, finish: Finish, now_us: int) -> list[Action]:
        if branch == self._deep:
            return self._end_deep(finish)
        if branch == self._verdict:
            return self._decide(0.0)
        if finish.reason in (FinishReason.STOP, FinishReason.LENGTH):
            answer = answer_of(self._held[branch])
            found = fault(answer, self._request, self._options.accept)
            self._fault = found or self._fault
            if not found:
                self._answers[branch] = answer
        return self._weigh(now_us)

    def _running(self) -> list[int]:
        return [number for number in range(len(self._held)) if not self._is_over(number)]

    def _weigh(self, now_us: int) -> list[Action]:
        """Decides as soon as no answer that is still to come can change what is decided."""
        running = self._running()
        if not self._answers:
            return [] if running else self._go_deep()
        at, self._num_agreeing = agreeing(list(self._answers.values()))
        self._best = list(self._answers)[at]
        verdicts = VERDICTS.values() if self._asks_verdict() else (0.0,)
        outcome = self._acceptance.settles(
            agreed + verdict for agreed in self._agreement(len(running)) for verdict in verdicts
        )
        if outcome == "unclear" and running:
            is_first = len(self._answers) == 1
            return [WakeAt(now_us + OTHERS_PATIENCE_US)] if is_first else []
        needless = [self._cancel(number) for number in running]
        if outcome == "unclear":
            self._stage = "verdict"
            self._hear(now_us)
            part = AskVerdict(self._answers[self._best].text)
            asked = StartBranch(self._verdict, DEEP, part, own_reservation=True)
            return [asked, self._next_look()]
        return [*needless, *(self._accept() if outcome == "accepted" else self._go_deep())]

    def _asks_verdict(self) -> bool:
        # Calls are no text that could be judged.
        return self._options.asks_verdict and not self._answers[self._best].calls

    def _agreement(self, num_running: int = 0) -> tuple[float, float]:
        """Returns the least and the most evidence that the answers may come to give."""
        num_others = max(1, len(self._answers) + num_running - 1)
        if len(self._answers) + num_running == 1:
            return 0.0, 0.0
        shares = self._num_agreeing / num_others, (self._num_agreeing + num_running) / num_others
        least, most = (ALL_AGREE * (2 * share - 1) for share in shares)
        return least, most

    def _decide(self, verdict: float) -> list[Action]:
        """Decides by all the evidence there is."""
        evidence = self._agreement()[0] + verdict
        return self._accept() if self._acceptance.accepts(evidence) else self._go_deep()

    def _accept(self) -> list[Action]:
        shown = self._forward_held(self._best, self._held[self._best], "final_answer")
        return [*shown, *self._end(self._finishes[self._best], replaceable=False)]

    def _go_deep(self) -> list[Action]:
        self._stage = "deep"
        return [StartBranch(self._deep, DEEP, own_reservation=True)]

    def _end_deep(self, finish: Finish) -> list[Action]:
        """Ends with the deep answer; if it has no word, with the best fast one."""
        has_words = self._items.has_words_of(self._deep)
        if finish.reason is FinishReason.ERROR and not has_words and self.does_without(self._deep):
            return self._accept()
        return self._end(finish, replaceable=False)

    @property
    def explanation(self) -> str:
        """Says what the checks found, once something is decided."""
        if self._stage == "answers" and not self._ended:
            return ""
        if self._best == _NONE and not self._finishes:
            return "No check of a fast answer could have accepted it, so it went to deep."
        if self._best == _NONE:
            return f"No fast answer was fit to go out ({self._fault or 'none came'})."
        num_others = max(0, len(self._answers) - 1)
        found = [f"{self._num_agreeing} of {num_others} others agree"] if num_others else []
        found += [f"deep said {self._word}"] if self._word in VERDICTS else []
        evidence = self._agreement()[0] + VERDICTS.get(self._word, 0.0)
        doubt, price = self._acceptance.doubt(evidence), self._acceptance.deep_price
        decided = "went to deep" if self._stage == "deep" else "was accepted"
        return (
            f"The fast answer was checked ({', '.join(found) or 'no fault found'}): "
            f"doubt {doubt:.2f}, a deep answer is worth {price:.2f}, so it {decided}."
        )


def _weighed(
    options: VerifyOptions, p_gain: float, deep_price: float, fast_price: float
) -> WeighedOptions:
    acceptance = Acceptance(p_gain=p_gain, deep_price=deep_price, fast_price=fast_price)
    return WeighedOptions(**msgspec.structs.asdict(options), acceptance=acceptance)


RECORD = StrategyRecord(
    name="verify",
    machine=Verify,
    usage=lambda _options, once: {"fast": once},
    options=VerifyOptions,
    weighed=_weighed,
    metadata={"n": "num_answers", "verdict": "asks_verdict", "accept": "accept"},
    simulated_as="How often fast answers agree is assumed: by each task's own p_gain.",
)
