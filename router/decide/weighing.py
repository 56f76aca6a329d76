"""Weighs all that is known of a task into its label (interactive, deep or uncertain) and a reason.

The tenant's outcomes (`learning`) and the conversation's state (`continuity`) shift the
classifier's `p_deep`, in log-odds. The band of uncertainty is the policy's trade-off, moved by the
engines' load, the tenant's pools and drift (`tradeoff`, `drift`). With a new conversation, idle
engines, full pools and nothing learned, the label is the classifier's.
"""

import hashlib
from collections.abc import Sequence

import msgspec

from backends.contract import BackendGroup, BackendStats
from router.agent_runs.run_state import CALM_STEPS, NEW_RUN, RunState
from router.classify.classify import SECURITY_SIGNAL, Band
from router.classify.log_odds import log_odds, shifted
from router.classify.task import Decider, Hints, Label, Task, TaskClass
from router.decide.backend_speed import BackendSpeeds, extra_wait
from router.decide.continuity import MAX_COLD_TOKENS, NEW, ConversationState
from router.policy.tradeoff import (
    SCARCE_SHARE,
    USUAL,
    Conditions,
    Tradeoff,
    band_at,
    scarcity,
)

PER_GAIN = 4.0  # log-odds per gain of 1: the logistic's slope at even odds
MAX_HINTED, MAX_LEARNED = 1.5, 4.0  # log-odds, by hints alone and with feedback

# What a task is called where a person reads why it went somewhere.
LOOKS: dict[Label, str] = {
    "interactive": "A quick ask",
    "deep": "An ask that needs thought",
    "uncertain": "An ask that might need either engine",
}
# A probability in words, by its percents: none is certain.
CHANCES = ("under 1%", *(f"{percent}%" for percent in range(1, 100)), "over 99%")


class Facts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Holds what is known besides the task and its class."""

    conversation: ConversationState = NEW
    gain_correction: float = 0.0  # what outcomes add to `p_gain`
    num_outcomes: int = 0  # behind it
    explicit: float = 0.0  # how far the learned gain replaces `p_deep`, 0 to 1
    shares_left: dict[BackendGroup, float] = {}  # of each group's emptiest pool
    backend_speeds: BackendSpeeds | None = None
    alarms: tuple[str, ...] = ()  # of drift, in words


NO_FACTS = Facts()


def weigh(
    tradeoff: Tradeoff,
    band: Band,
    task: Task,
    task_class: TaskClass,
    stats: Sequence[BackendStats],
    facts: Facts = NO_FACTS,
) -> TaskClass:
    """Returns the class with its final label, what decided it, and the reason in words."""
    if facts.alarms and tradeoff.widen_on_drift:
        task_class = msgspec.structs.replace(task_class, cautious=True)
    elif facts.alarms:
        facts = msgspec.structs.replace(facts, alarms=())
    conversation, p_deep = facts.conversation, task_class.p_deep
    shifts: list[tuple[float, str]] = []
    if conversation is not NEW or facts.gain_correction:
        shifts = _shifts(tradeoff, task_class, facts)
        if shifts:
            p_deep = shifted(p_deep, sum(size for size, _ in shifts))
    conditions, words = _conditions(tradeoff, task_class, stats, facts)
    low, high = tradeoff.edges(band.low, band.high)
    if conditions is not USUAL:
        low, high = band_at(low, high, tradeoff.price_ratio, conditions)
    label: Label = "uncertain"
    if p_deep < low:
        label = "interactive"
    elif p_deep >= high:
        label = "deep"
    if conversation is not NEW or task.run.stuck:
        by_run = _by_its_run(tradeoff, task, task_class, conversation)
        is_follow_up = conversation.wants_more or conversation.gives_thanks
        if by_run is not None and (is_follow_up or by_run.label != label):
            return by_run
    if task.hints.deadline_us is not None and label != "interactive":
        too_late = _too_late(tradeoff, task, task_class, stats, facts)
        if too_late:
            return _decided(task_class, "interactive", too_late, "deadline")
    if tradeoff.exploration and label == "uncertain" and not task_class.security_sensitive:
        tried = explored(task.id, tradeoff.exploration)
        if tried is not None:
            why = "Uncertain, and one of the few that try one engine alone, to learn from"
            return _decided(task_class, tried, why, "explore")
    details: list[str] = []  # what changed nothing is not told
    if shifts:
        chance, by_words = _chance(p_deep), _chance(task_class.p_deep)
        if chance != by_words:
            details = [f"{by_words} by its words", *(name for _, name in shifts)]
    is_moved = low != band.low or high != band.high
    if is_moved and (task_class.cautious or label != _label_within(band, p_deep)):
        because_of = f", as {' and '.join(words)}" if words else ""
        details.append(f"{low:.0%} to {high:.0%} is uncertain{because_of}")
    if not details:
        return task_class if label == task_class.label else _decided(task_class, label, "")
    said = f"{_chance(p_deep)} likely to need the deep engine; {'; '.join(details)}"
    return _decided(task_class, label, f"{LOOKS[label]} ({said})")


def _chance(probability: float) -> str:
    return CHANCES[int(100 * probability + 0.5)]


def _label_within(band: Band, p_deep: float) -> Label:
    if p_deep < band.low:
        return "interactive"
    return "deep" if p_deep >= band.high else "uncertain"


def _by_its_run(
    tradeoff: Tradeoff, task: Task, task_class: TaskClass, conversation: ConversationState
) -> TaskClass | None:
    """Decides by what has happened in a conversation, or leaves it to the ask (None)."""
    run = task.run if tradeoff.follow_runs else NEW_RUN
    holder = conversation.holder
    if conversation.gives_thanks:
        # For thanks alone the fast engine is to prefill no more than for a run that goes well.
        if holder == "deep" and _cold_tokens(task, conversation) > MAX_COLD_TOKENS:
            why = "Only thanks, for which a context so long stays where it is"
            return _decided(task_class, "deep", why, "sticky")
        return _decided(task_class, "interactive", "Only thanks, which need no thought")
    if run.stuck:
        signs = ", ".join(run.signs)
        if holder == "deep":
            why = f"The conversation got stuck ({signs}), and stays here until enough goes well"
            return _decided(task_class, "deep", why, "sticky")
        what = "The last answer did not do" if run.dissatisfied else "The conversation is stuck"
        return _decided(task_class, "deep", f"{what} ({signs})", "evidence")
    if holder == "fast" and task.held_turn:
        why = "The turn stays on the engine that began it, and it is not stuck"
        return _decided(task_class, "interactive", why, "sticky")
    has_done = run.num_edits > 0 or run.tests_pass is True or run.calm_steps >= CALM_STEPS
    if holder == "fast" and conversation.answers_tools and has_done:
        why = f"The run goes on where it goes well ({_progress(run)})"
        return _decided(task_class, "interactive", why, "sticky")
    if holder == "deep" and conversation.answers_tools:
        goes_well = run.steady or (run.calm_steps >= CALM_STEPS and task_class.label != "deep")
        is_cheap = _cold_tokens(task, conversation) <= MAX_COLD_TOKENS
        if goes_well and is_cheap and not task_class.security_sensitive:
            why = f"The run goes well ({_progress(run)})"
            return _decided(task_class, "interactive", why, "evidence")
        why = "In the middle of its tool calls a task is not sent down from the deep engine"
        return _decided(task_class, "deep", why, "sticky")
    if holder == "deep" and task.held_turn:
        why = "The turn stays on the engine that began it"
        return _decided(task_class, "deep", why, "sticky")
    if holder is not None and conversation.wants_more:
        why = f"The user asks for more of what the {holder} engine began"
        return _decided(task_class, "deep" if holder == "deep" else "interactive", why, "sticky")
    if holder == "deep" and conversation.goes_on:
        why = "So short an ask goes on with what the deep engine holds"
        return _decided(task_class, "deep", why, "sticky")
    return None


def why_security(task_class: TaskClass, hints: Hints) -> str:
    """Says that security sends a task deep, how sure that is and what it was told by."""
    hinted = hints.route is not None or hints.strategy is not None
    told = [found for found in task_class.signals if found.startswith(SECURITY_SIGNAL)]
    by = f", by {told[0].removeprefix(SECURITY_SIGNAL)}" if told else ""
    chance = _chance(task_class.p_security)
    asked = ", whatever the hint" if hinted else ""
    return f"Security-sensitive work goes deep{asked} ({chance} likely to be such{by})"


def _cold_tokens(task: Task, conversation: ConversationState) -> int:
    """Returns how many tokens of a context a fast engine would have to prefill."""
    return task.request.num_prompt_tokens - conversation.fast_tokens


def _progress(run: RunState) -> str:
    """Describes what a run has done since its ask."""
    parts = [f"{run.num_edits} edits landed"] if run.num_edits else []
    parts += ["its tests pass"] if run.tests_pass else []
    return ", ".join([*parts, f"{run.calm_steps} results in a row as they should be"])


def explored(task_id: str, share: float) -> Label | None:
    """Returns the engine that a task of the explored share tries alone, by its id, or None."""
    if share <= 0:
        return None
    drawn = int.from_bytes(hashlib.blake2b(task_id.encode(), digest_size=8).digest(), "big")
    if drawn % 1_000_000 >= share * 1_000_000:
        return None
    return "deep" if drawn & (1 << 63) else "interactive"


def _decided(
    task_class: TaskClass, label: Label, because: str, by: Decider | None = None
) -> TaskClass:
    return msgspec.structs.replace(
        task_class,
        label=label,
        decided_by=by or task_class.decided_by,
        because=because,
    )


def _learned_shift(task_class: TaskClass, facts: Facts) -> float:
    """Returns the log-odds that outcomes add to `p_deep`.

    `p_deep` should be the gain, the probability that fast fails where deep does not. The more
    feedback there is, the more the learned gain replaces it; hints alone shift it a little.
    """
    leaning = max(-MAX_HINTED, min(MAX_HINTED, PER_GAIN * facts.gain_correction))
    gain = task_class.p_gain + facts.gain_correction
    whole = log_odds(gain, 0.02) - log_odds(task_class.p_deep, 0.02)
    shift = leaning + facts.explicit * (whole - leaning)
    return max(-MAX_LEARNED, min(MAX_LEARNED, shift))


def _shifts(tradeoff: Tradeoff, task_class: TaskClass, facts: Facts) -> list[tuple[float, str]]:
    """Lists what shifts `p_deep` besides the prompt: log-odds and a description."""
    shifts: list[tuple[float, str]] = []
    if tradeoff.learn and facts.gain_correction:
        size = _learned_shift(task_class, facts)
        engine = "deep" if size > 0 else "fast"
        shifts.append((size, f"{facts.num_outcomes} outcomes speak for the {engine} engine"))
    conversation = facts.conversation
    if conversation.evidence and conversation.holder != "deep":
        shifts.append((conversation.evidence, ", ".join(conversation.signs)))
    if conversation.holder is not None:
        size = conversation.holding if conversation.holder == "deep" else -conversation.holding
        held = f"{conversation.held_tokens:,} tokens of the conversation"
        shifts.append((size, f"the {conversation.holder} engine holds {held}"))
    return shifts


def _conditions(
    tradeoff: Tradeoff, task_class: TaskClass, stats: Sequence[BackendStats], facts: Facts
) -> tuple[Conditions, list[str]]:
    """Returns how far waiting and prices are from usual, and a description."""
    words: list[str] = []
    conditions = USUAL
    if facts.alarms:
        words = [f"drift: {alarm}" for alarm in facts.alarms]
        conditions = Conditions(num_alarms=len(facts.alarms))
    if not tradeoff.follow_load:
        return conditions, words
    prices: dict[BackendGroup, float] = {}
    for group, share_left in facts.shares_left.items():
        if share_left < SCARCE_SHARE:
            prices[group] = scarcity(share_left)
            words.append(f"{share_left:.0%} is left in the {group} pools")
    wait = 1.0
    if facts.backend_speeds is not None:
        both = facts.backend_speeds.both(stats, task_class.expected_output_tokens)
        if both is not None:
            wait = extra_wait(*both)
            if wait != 1:
                words.append(f"waiting for deep takes {wait:.1f} times as long as usual")
    if not words:
        return USUAL, words
    conditions = msgspec.structs.replace(
        conditions,
        wait=wait,
        fast_price=prices.get("fast", 1.0),
        deep_price=prices.get("deep", 1.0),
    )
    return conditions, words


def _too_late(
    tradeoff: Tradeoff,
    task: Task,
    task_class: TaskClass,
    stats: Sequence[BackendStats],
    facts: Facts,
) -> str:
    """Says that only the fast engine can meet the client's deadline, if so."""
    deadline_us = task.hints.deadline_us
    if deadline_us is None or facts.backend_speeds is None or not tradeoff.follow_load:
        return ""
    tokens = min(task.request.max_output_tokens, task_class.expected_output_tokens)
    both = facts.backend_speeds.both(stats, tokens)
    if both is None or not both[0].now_us <= deadline_us < both[1].now_us:
        return ""
    return (
        f"The deep engines would take about {both[1].now_us / 1e6:.1f} s, "
        f"the deadline is {deadline_us / 1e6:g} s"
    )
