"""What kind of work a task is: small and interactive, deep, or uncertain; and whether it touches
security.

It looks at the current ask, not at the whole context (a trivial ask in front of a long context is
still trivial), and at no more than the ask's head and tail, so that the cost is bounded at any
size. The model is a sum of log-odds from the table in `signals`; every part of the sum that counts
is reported in words. `features` and `classify` are the seam for a trained model.
"""

import math
import re
from itertools import pairwise

import msgspec

from router import signals
from router.task import Features, Label, Task, TaskClass

HEAD_CHARS, TAIL_CHARS = 1_536, 512  # what is read of an ask: its ends say what is wanted

_WORD = re.compile(r"[a-z0-9_+#]+")


class Band(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where `p_deep` is too uncertain to decide: from `low` up to, but not including, `high`."""

    low: float = 0.4
    high: float = 0.65
    security: float = 0.5  # from this `p_security` on a task is security-sensitive


DEFAULT_BAND = Band()


class _Terms:
    """One table of terms, split for lookup: words by set, pairs of words by set."""

    def __init__(self, weights: dict[str, float]) -> None:
        self.weights = weights
        self.words = frozenset(term for term in weights if " " not in term)
        self.pairs = {
            (first, second): term
            for term in weights
            if " " in term
            for first, second in [term.split(" ")]
        }

    def found(self, words: set[str], pairs: set[tuple[str, str]]) -> tuple[str, ...]:
        """The terms in a text, heaviest first."""
        terms = list(self.words & words)
        terms += [self.pairs[pair] for pair in self.pairs.keys() & pairs]
        terms.sort(key=lambda term: (-self.weights[term], term))
        return tuple(terms)

    def sum(self, terms: tuple[str, ...]) -> float:
        weights = self.weights
        return sum([weights[term] for term in terms])


_DEEP = _Terms(signals.DEEP_TERMS)
_FAST = _Terms(signals.FAST_TERMS)
_SECURITY = _Terms(signals.SECURITY_TERMS)


def features(task: Task) -> Features:
    """What the classifier looks at. Cost: at most 2 KiB of text are read, whatever came."""
    ask = task.ask
    if len(ask) > HEAD_CHARS + TAIL_CHARS:
        ask = f"{ask[:HEAD_CHARS]} \n {ask[-TAIL_CHARS:]}"
    words = _WORD.findall(ask.lower())
    unique = set(words)
    pairs = set(pairwise(words))
    return Features(
        num_ask_tokens=task.num_ask_tokens,
        num_context_tokens=task.request.num_prompt_tokens,
        num_turns=task.num_turns,
        num_tools=len(task.request.tools),
        has_images=task.has_images,
        num_code_fences=ask.count("```"),
        num_questions=ask.count("?"),
        num_parts=ask.count(", ") + ask.count("; ") + words.count("and"),
        deep_terms=_DEEP.found(unique, pairs),
        fast_terms=_FAST.found(unique, pairs),
        security_terms=_SECURITY.found(unique, pairs),
        reasoning_effort=task.hints.reasoning_effort,
        service_tier=task.hints.service_tier,
    )


def classify(features: Features, band: Band = DEFAULT_BAND) -> TaskClass:
    """The class of a task with these features; the policy chooses the band."""
    parts = _deep_parts(features)
    p_deep = _logistic(signals.DEEP_BIAS + sum([weight for weight, _ in parts]))
    security = _SECURITY.sum(features.security_terms)
    p_security = _logistic(signals.SECURITY_BIAS + security)
    label: Label = "uncertain"
    if p_deep < band.low:
        label = "interactive"
    elif p_deep >= band.high:
        label = "deep"
    parts.sort(key=lambda part: (-abs(part[0]), part[1]))
    words = [f"{text} ({weight:+.1f})" for weight, text in parts if weight]
    if p_security >= band.security:
        words.insert(0, f"security: {_quoted(features.security_terms)}")
    return TaskClass(
        label=label,
        p_deep=round(p_deep, 4),
        p_security=round(p_security, 4),
        security_sensitive=p_security >= band.security,
        expected_output_tokens=_expected_output_tokens(features, p_deep),
        signals=tuple(words),
    )


def _deep_parts(features: Features) -> list[tuple[float, str]]:
    """Each signal's log-odds towards deep, and what it was."""
    parts: list[tuple[float, str]] = []
    if features.deep_terms:
        parts.append((_DEEP.sum(features.deep_terms), f"words {_quoted(features.deep_terms)}"))
    if features.fast_terms:
        parts.append((-_FAST.sum(features.fast_terms), f"words {_quoted(features.fast_terms)}"))
    if features.num_ask_tokens > 16:
        length = signals.PER_DOUBLING * math.log2(features.num_ask_tokens / 16)
        parts.append((min(signals.MAX_LENGTH, length), f"{features.num_ask_tokens} tokens asked"))
    if features.num_parts:
        num_parts = min(signals.MAX_PARTS, features.num_parts)
        parts.append((signals.PER_PART * num_parts, f"{features.num_parts} parts"))
    if features.num_context_tokens > 16_384:
        context = signals.PER_CONTEXT_DOUBLING * math.log2(features.num_context_tokens / 16_384)
        text = f"context of {features.num_context_tokens} tokens"
        parts.append((min(signals.MAX_CONTEXT, context), text))
    if features.num_code_fences:
        parts.append((signals.FENCED_CODE, "pasted code"))
    if features.num_questions and features.num_ask_tokens <= signals.SHORT_QUESTION_TOKENS:
        parts.append((signals.SHORT_QUESTION, "a short question"))
    effort, tier = features.reasoning_effort, features.service_tier
    if effort is not None:
        parts.append((signals.REASONING_EFFORT.get(effort, 0.0), f"reasoning effort {effort}"))
    if tier is not None:
        parts.append((signals.SERVICE_TIER.get(tier, 0.0), f"service tier {tier}"))
    return parts


def _expected_output_tokens(features: Features, p_deep: float) -> int:
    ratio = signals.DEEP_OUTPUT_TOKENS / signals.SMALL_OUTPUT_TOKENS
    tokens: float = signals.SMALL_OUTPUT_TOKENS * ratio**p_deep
    if features.reasoning_effort is not None:
        tokens *= signals.REASONING_OUTPUT.get(features.reasoning_effort, 1.0)
    if not signals.BRIEF_TERMS.isdisjoint(features.fast_terms):
        tokens /= 2
    return round(tokens)


def _quoted(terms: tuple[str, ...]) -> str:
    return ", ".join([f'"{term}"' for term in terms[:4]]) + (", ..." if len(terms) > 4 else "")


def _logistic(log_odds: float) -> float:
    return 1 / (1 + math.exp(-log_odds))
