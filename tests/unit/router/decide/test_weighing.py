"""Tests the way from what is known of a task to its label, and the words for it."""

from typing import Any

import msgspec
import pytest

from router.agent_runs.run_state import RunState
from router.classify.classify import Band
from router.classify.task import Hints, Route, TaskClass
from router.decide.backend_speed import BackendSpeeds
from router.decide.continuity import MAX_COLD_TOKENS, ConversationState
from router.decide.weighing import NO_FACTS, Facts, explored, weigh, why_security
from router.policy.tradeoff import Tradeoff
from tests.unit.router.tasks import backend, task

BAND = Band()
STATS = (backend("wafer", "fast"), backend("gpu", "deep"))


def of(p_deep: float, *, security: bool = False) -> TaskClass:
    label = "interactive" if p_deep < BAND.low else "deep" if p_deep >= BAND.high else "uncertain"
    return TaskClass(
        label=label,  # type: ignore[arg-type]
        by_words=label,  # type: ignore[arg-type]
        p_deep=p_deep,
        p_security=0.9 if security else 0.01,
        security_sensitive=security,
        expected_output_tokens=500,
        signals=(),
    )


def weighed(p_deep: float, facts: Facts = NO_FACTS, **options: Any) -> TaskClass:
    asked = options.pop("task", None) or task()
    return weigh(Tradeoff(**options), BAND, asked, of(p_deep), STATS, facts)


@pytest.mark.parametrize("p_deep", [0.0, 0.149, 0.15, 0.3, 0.599, 0.6, 1.0])
def test_with_nothing_known_the_class_is_the_classifiers(p_deep: float) -> None:
    assert weighed(p_deep) == of(p_deep)


def held(by: Any, tokens: int = 8_192, **fields: Any) -> Facts:
    return Facts(conversation=ConversationState(holder=by, held_tokens=tokens, **fields))


ROWS: tuple[tuple[str, float, Facts, str, str], ...] = (
    ("fast keeps what is nearly uncertain", 0.2, held("fast"), "interactive", "class"),
    ("fast keeps longer contexts harder", 0.3, held("fast", 10**6), "interactive", "class"),
    ("a short one moves", 0.3, held("fast", 100), "uncertain", "class"),
    ("deep keeps what is nearly sure", 0.5, held("deep"), "deep", "class"),
    ("deep lets go of small asks", 0.01, held("deep"), "interactive", "class"),
    (
        "but not in the middle of its tool calls",
        0.01,
        held("deep", answers_tools=True),
        "deep",
        "sticky",
    ),
    ("nor for a few words", 0.01, held("deep", goes_on=True), "deep", "sticky"),
    ("fast is not kept by few words", 0.95, held("fast", goes_on=True), "deep", "class"),
    (
        "fast says more of what it said",
        0.95,
        held("fast", goes_on=True, wants_more=True),
        "interactive",
        "sticky",
    ),
    ("deep, too", 0.01, held("deep", goes_on=True, wants_more=True), "deep", "sticky"),
    (
        "also where its words say the same",
        0.95,
        held("deep", goes_on=True, wants_more=True),
        "deep",
        "sticky",
    ),
    (
        "whoever said it, thanks need no thought",
        0.3,
        held("deep", 100, goes_on=True, gives_thanks=True),
        "interactive",
        "class",
    ),
    ("fast may be left in the middle", 0.95, held("fast", answers_tools=True), "deep", "class"),
    (
        "one failing report only leans",
        0.2,
        held("fast", 0, evidence=0.75, signs=("1 failure",)),
        "uncertain",
        "class",
    ),
    ("outcomes say that fast does", 0.3, Facts(gain_correction=-0.3), "interactive", "class"),
    ("outcomes say that it does not", 0.3, Facts(gain_correction=0.35), "deep", "class"),
    ("the deep pools are low", 0.2, Facts(shares_left={"deep": 0.05}), "interactive", "class"),
)


@pytest.mark.parametrize(("why", "p_deep", "facts", "label", "by"), ROWS, ids=[r[0] for r in ROWS])
def test_labels(why: str, p_deep: float, facts: Facts, label: str, by: str) -> None:
    found = weighed(p_deep, facts)
    assert (found.label, found.decided_by) == (label, by), found.because
    assert found.because


STUCK = RunState(stuck=True, strain=1.5, signs=("the same failure again",), answers_tools=True)
ANNOYED = RunState(stuck=True, strain=1.5, signs=("a complaint",), dissatisfied=True)
STEADY = RunState(num_edits=2, tests_pass=True, calm_steps=4, answers_tools=True)
LOOKING = RunState(calm_steps=9, answers_tools=True)
BEGUN = RunState(calm_steps=1, answers_tools=True)

RUNS: tuple[tuple[str, float, RunState, Facts, str, str], ...] = (
    ("a stuck run goes up", 0.05, STUCK, held("fast"), "deep", "evidence"),
    ("a complaint, too", 0.05, ANNOYED, held("fast"), "deep", "evidence"),
    ("whoever holds it", 0.05, STUCK, held(None), "deep", "evidence"),
    ("and stays there", 0.05, STUCK, held("deep", answers_tools=True), "deep", "sticky"),
    ("a deep task that goes well goes down", 0.9, STEADY, held("deep"), "deep", "class"),
    (
        "amid its tool calls",
        0.9,
        STEADY,
        held("deep", answers_tools=True),
        "interactive",
        "evidence",
    ),
    (
        "but not for having read",
        0.9,
        LOOKING,
        held("deep", answers_tools=True),
        "deep",
        "class",
    ),
    (
        "unless its ask was not deep",
        0.3,
        LOOKING,
        held("deep", answers_tools=True),
        "interactive",
        "evidence",
    ),
    ("nor at once", 0.05, BEGUN, held("deep", answers_tools=True), "deep", "sticky"),
    ("and stays down", 0.99, STEADY, held("fast", answers_tools=True), "interactive", "sticky"),
    ("which only began there may leave", 0.99, BEGUN, held("fast"), "deep", "class"),
)


@pytest.mark.parametrize(
    ("why", "p_deep", "run", "facts", "label", "by"), RUNS, ids=[row[0] for row in RUNS]
)
def test_runs_move_by_what_happens(
    why: str, p_deep: float, run: RunState, facts: Facts, label: str, by: str
) -> None:
    found = weighed(p_deep, facts, task=task(run=run))
    assert (found.label, found.decided_by) == (label, by), found.because


def test_a_move_down_costs_little_prefill() -> None:
    def label(prompt_tokens: int, fast_tokens: int) -> str:
        facts = held("deep", answers_tools=True, fast_tokens=fast_tokens)
        return weighed(0.9, facts, task=task(run=STEADY, prompt_tokens=prompt_tokens)).label

    assert label(60_000, 0) == "deep"
    assert label(60_000, 60_000 - MAX_COLD_TOKENS) == "interactive"
    assert label(MAX_COLD_TOKENS, 0) == "interactive"


def test_what_is_security_sensitive_does_not_come_down() -> None:
    facts = held("deep", answers_tools=True)
    sensitive = weigh(Tradeoff(), BAND, task(run=STEADY), of(0.3, security=True), STATS, facts)
    assert sensitive.label == "deep"


def test_a_policy_may_do_without_runs() -> None:
    assert weighed(0.05, held(None), task=task(run=STUCK), follow_runs=False).label == "interactive"
    facts = held("deep", answers_tools=True)
    assert weighed(0.9, facts, task=task(run=STEADY), follow_runs=False).label == "deep"


GAINS = (
    # p_deep, p_gain + correction, told -> label
    (0.77, -0.1, 0.0, "deep"),  # hints lean, and no more
    (0.77, -0.1, 0.375, "uncertain"),  # 240 outcomes that clients told
    (0.77, -0.1, 0.67, "interactive"),  # 800
    (0.10, 0.5, 0.0, "uncertain"),
    (0.10, 0.5, 0.83, "uncertain"),  # 2,000: as likely as not that fast does not do
    (0.05, 0.88, 0.83, "deep"),
)


@pytest.mark.parametrize(("p_deep", "correction", "told", "label"), GAINS)
def test_what_clients_told_takes_the_place_of_the_classifier(
    p_deep: float, correction: float, told: float, label: str
) -> None:
    facts = Facts(gain_correction=correction, num_outcomes=240, explicit=told)
    assert weighed(p_deep, facts).label == label


def test_it_says_what_counted() -> None:
    facts = Facts(
        conversation=ConversationState(holder="fast", held_tokens=8_192),
        gain_correction=0.2,
        num_outcomes=240,
    )
    assert weighed(0.3, facts).because == (
        "An ask that might need either engine (24% likely to need the deep engine; "
        "30% by its words; 240 outcomes speak for the deep engine; "
        "the fast engine holds 8,192 tokens of the conversation)"
    )
    scarce = Facts(shares_left={"deep": 0.05})
    assert weighed(0.2, scarce).because == (
        "A quick ask (20% likely to need the deep engine; "
        "51% to 60% is uncertain, as 5% is left in the deep pools)"
    )


def test_the_label_of_the_words_is_kept_where_something_else_decides() -> None:
    found = weighed(0.003, held("deep", goes_on=True))
    assert (found.label, found.by_words, found.p_deep) == ("deep", "interactive", 0.003)
    assert weighed(0.003).by_words == "interactive"


def test_what_is_said_has_no_jargon() -> None:
    for why, p_deep, facts, *_ in ROWS:
        because = weighed(p_deep, facts).because
        assert not any(term in because for term in ("p_deep", "band", "->", " +")), (why, because)


@pytest.mark.parametrize("facts", [held("fast"), Facts(shares_left={"deep": 0.05})])
def test_what_changes_nothing_is_not_told(facts: Facts) -> None:
    assert weighed(0.001, facts) == of(0.001)


@pytest.mark.parametrize(
    ("signals", "hints", "why"),
    [
        (('security: "jwt"', '"fix" +0.3'), Hints(), 'goes deep (90% likely to be such, by "jwt")'),
        (
            ("security: earlier messages",),
            Hints(route=Route.FAST),
            "goes deep, whatever the hint (90% likely to be such, by earlier messages)",
        ),
        ((), Hints(strategy="breadth"), "goes deep, whatever the hint (90% likely to be such)"),
    ],
)
def test_security_says_what_told_it_and_which_hint_it_overrides(
    signals: tuple[str, ...], hints: Hints, why: str
) -> None:
    told = msgspec.structs.replace(of(0.5, security=True), signals=signals)
    assert why_security(told, hints) == f"Security-sensitive work {why}"


def test_thanks_move_no_long_context() -> None:
    def found(prompt_tokens: int, fast_tokens: int = 0) -> tuple[str, str]:
        facts = held("deep", goes_on=True, gives_thanks=True, fast_tokens=fast_tokens)
        weighs = weighed(0.05, facts, task=task(prompt_tokens=prompt_tokens))
        return weighs.label, weighs.decided_by

    assert found(MAX_COLD_TOKENS) == ("interactive", "class")
    assert found(60_000) == ("deep", "sticky")
    assert found(60_000, 60_000 - MAX_COLD_TOKENS) == ("interactive", "class")


def test_a_policy_may_do_without_load_and_learning() -> None:
    facts = Facts(gain_correction=0.4, shares_left={"deep": 0.0})
    assert weighed(0.3, facts, learn=False, follow_load=False) == of(0.3)


@pytest.mark.parametrize("p_deep", [0.12, 0.7])
def test_drift_decides_nothing_unless_the_policy_says_so(p_deep: float) -> None:
    facts = Facts(alarms=("other words",))
    assert weighed(p_deep, facts) == of(p_deep)
    widened = weighed(p_deep, facts, widen_on_drift=True)
    assert (widened.label, widened.cautious) == ("uncertain", True)
    assert "drift: other words" in widened.because


def paces(deep_tpot_us: float) -> BackendSpeeds:
    made = BackendSpeeds()
    for _ in range(9):
        made.note("wafer", 50_000, 1_000)
        made.note("gpu", 500_000, deep_tpot_us)
    return made


DEADLINES = (
    (2_000, 0.9, "interactive", "deadline"),  # deep: 0.5 + 500 x 0.02 = 10.5 s
    (2_000, 0.3, "interactive", "deadline"),
    (2_000, 0.01, "interactive", "class"),
    (30_000, 0.9, "deep", "class"),
    (100, 0.9, "deep", "class"),  # nobody makes it: then the better answer
)


@pytest.mark.parametrize(("deadline_ms", "p_deep", "label", "by"), DEADLINES)
def test_a_deadline_that_deep_cannot_meet(
    deadline_ms: int, p_deep: float, label: str, by: str
) -> None:
    asked = task(hints=Hints(deadline_us=deadline_ms * 1_000))
    found = weighed(p_deep, Facts(backend_speeds=paces(20_000)), task=asked)
    assert (found.label, found.decided_by) == (label, by)


def test_a_queue_at_the_deep_engine_sends_fewer_to_it() -> None:
    stats = (STATS[0], msgspec.structs.replace(STATS[1], num_waiting=40))
    facts = Facts(backend_speeds=paces(20_000))
    found = weigh(Tradeoff(), BAND, task(), of(0.2), stats, facts)
    assert found.label == "interactive"
    assert "times as long as usual" in found.because
    assert weigh(Tradeoff(), BAND, task(), of(0.2), STATS, facts) == of(0.2)


def test_a_small_share_of_the_uncertain_tries_one_engine_alone() -> None:
    ids = [f"resp_{n}" for n in range(20_000)]
    tried = [label for number in ids if (label := explored(number, 0.02)) is not None]
    assert 300 < len(tried) < 500
    assert 0.4 < tried.count("deep") / len(tried) < 0.6
    lucky = next(number for number in ids if explored(number, 0.02))
    asked = task(id=lucky)
    found = weighed(0.3, task=asked, exploration=0.02)
    assert (found.label, found.decided_by) == (explored(lucky, 0.02), "explore")
    for sure in (0.05, 0.9):
        assert weighed(sure, task=asked, exploration=0.02).decided_by == "class"
    risky = weigh(Tradeoff(exploration=0.02), BAND, asked, of(0.3, security=True), STATS)
    assert risky.decided_by == "class"
    assert weighed(0.3, task=asked).decided_by == "class"
