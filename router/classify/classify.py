"""Classifies a task: interactive, deep or uncertain; whether it touches security; whether a small
model suffices; and the expected length of the answer.

For the lane only the current prompt counts (a trivial prompt with a long context is still trivial);
for security also the instructions, and what was said before (`sensitivity`). The trained
`linear_model` scores the prompt's words and shape; `signals` adds the request's other fields, which
public data does not have. Every signal that counted is reported in words with its share of the sum.
"""

import math
from functools import cache, lru_cache

import msgspec

from router.classify import signals
from router.classify.agent_rules import without_rules
from router.classify.framing_model import served_framing
from router.classify.linear_model import SECURITY, LinearModel, Scores
from router.classify.sensitivity import HOLDS_FROM, Judges, Sensitivity
from router.classify.task import Features, Label, Task, TaskClass
from router.classify.text_features import MAX_KEPT, read
from router.classify.weights_file import load_model
from router.classify.words import all_words_of

_NUM_SIGNALS = 4
SECURITY_SIGNAL = "security: "  # how the signal begins that tells security
MAX_LOG_ODDS = 30.0
NOTICED_LOG_ODDS = -3.0  # of security, below any threshold that a policy may well set
# We chose what words say at least where a text is about security. Of 271 development records that
# are flagged and about it, all but two say 8 or more; asks in everyday words say less.
LEAST_IN_WORDS = 6.0
_BRIEF = frozenset(word.encode() for word in signals.BRIEF_WORDS)
MAX_PURPOSE_CHARS = 2_048  # of instructions that are judged by all of their words
TELLING = 4.0  # log-odds for security of a word that alone makes a text worth scoring early
TELLING_CHARS = 512  # of a text's beginning, and as many of its end, that are looked at
_WATCHED_WORDS = signals.SECURITY_FIRST_WORDS | _BRIEF
MAX_DEFINITION_WORDS = 8


def _bytes_of(words: str) -> frozenset[bytes]:
    return frozenset(word.encode() for word in words.split())


_OF_SPELLING = _bytes_of("spelling spelled misspelled typo typos")
# The first words of such an ask, in English, German, Spanish, French, Italian and Russian.
_DEFINING = _bytes_of(
    "what whats explain define was erkläre qué que explica define qu explique cos cosa spiega "
    "что объясни"
)
_ASKING_CHARACTERS = _bytes_of("什 何")  # Chinese and Japanese ask anywhere in a sentence
# Words that point at something at hand, of which a definition has none.
_OF_SOMETHING = _bytes_of(
    "the this that these those our my your we here i "
    "der die das dem unser unsere unserem unserer mein meine meinem diese dieser diesem hier "
    "el la los las nuestro nuestra nuestros nuestras mi este esta nosso nossa meu minha no na do "
    "da le les notre nos mon ma cette dans nostro nostra nel nella questo questa "
    "наш наша наше нашем нашей нашего мой моя моём этот эта этом этой в 我 这 這 们 們 本 こ 私"
)


class Band(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds the `p_deep` of uncertain tasks: from `low` up to, but not including, `high`.

    The defaults miss few deep tasks and send about a quarter of all to both engines;
    docs/classifier.md has the measured trade-off.
    """

    low: float = 0.15
    high: float = 0.6
    # The least `p_security` of security-sensitive tasks: a miss is worse than a false alarm, of
    # which there is 1 in 100.
    security: float = 0.2


DEFAULT_BAND = Band()


@cache
def served_model() -> LinearModel:
    """Returns the model of this release; loaded when first asked for, as it takes 27 MB.

    So are the weights by which framing is told, which no first task should wait for.
    """
    served_framing()
    return load_model()


def features(task: Task) -> Features:
    """Extracts what the classifier looks at; of each text it reads a bounded part."""
    around = _SENSITIVITY.around(task)
    return Features(
        reading=task.reading,
        p_security_around=around.p_security,
        sensitive_where=around.where,
        num_context_tokens=task.request.num_prompt_tokens,
        reasoning_effort=task.hints.reasoning_effort,
        service_tier=task.hints.service_tier,
    )


def features_of_text(text: str) -> Features:
    """Returns the features of a prompt without any context or hints."""
    return Features(reading=read(text))


class Opinion(msgspec.Struct, frozen=True):
    """Holds the class of a task, and what is needed to explain it."""

    task_class: TaskClass  # without signals
    features: Features
    scores: Scores
    strong_terms: list[str]

    def signals(self) -> tuple[str, ...]:
        """Lists the strongest signals, each with its log-odds and its share of all."""
        words = _in_words(self.scores, _shifts(self.features))
        if self.task_class.security_sensitive:
            words.insert(0, f"{SECURITY_SIGNAL}{self._why_sensitive()}")
        return tuple(words)

    def _why_sensitive(self) -> str:
        if self.features.p_security_around == self.task_class.p_security:
            return self.features.sensitive_where
        return ", ".join(self.strong_terms or self.scores.security_terms(3))


def classify(
    features: Features, band: Band = DEFAULT_BAND, model: LinearModel | None = None
) -> TaskClass:
    """Classifies a task with reasons; the policy chooses the band.

    What was classified before, as the same ask in each turn of an agent's loop, is remembered.
    """
    if 0 < features.num_context_tokens <= signals.LONG_CONTEXT_TOKENS:  # then it counts nothing
        features = msgspec.structs.replace(features, num_context_tokens=0)
    return _classified(features, band, model)


@lru_cache(MAX_KEPT)
def _classified(features: Features, band: Band, model: LinearModel | None) -> TaskClass:
    opinion = form_opinion(features, band, model)
    return msgspec.structs.replace(opinion.task_class, signals=opinion.signals())


def form_opinion(
    features: Features, band: Band = DEFAULT_BAND, model: LinearModel | None = None
) -> Opinion:
    """Classifies a task without the reasons' text, which costs half as much again."""
    scores = (model or served_model()).score(features.reading)
    security_log_odds = _security_log_odds(scores)
    p_security = _logistic(security_log_odds)
    # Work on security is deep work.
    deep_log_odds = max(scores.deep_log_odds, security_log_odds)
    p_deep = _logistic(deep_log_odds + sum([size for size, _ in _shifts(features)]))
    strong: list[str] = []
    is_brief = False
    distinct = features.reading.distinct.keys()
    if not distinct.isdisjoint(_WATCHED_WORDS):
        watched = distinct & _WATCHED_WORDS
        found = signals.security_terms(features.reading.words, distinct)
        if p_security < signals.DOUBTFUL_SECURITY:
            found = [term for term in found if term not in signals.AMBIGUOUS_TERMS]
        strong = [f'"{term}"' for term in found[:3]]  # quoted for the explanation
        is_brief = not watched.isdisjoint(_BRIEF)
    if strong and not _is_about_a_word(features.reading.words):
        p_security = max(p_security, signals.STRONG_SECURITY)
    p_security = max(p_security, features.p_security_around)
    label: Label = "uncertain"
    if p_deep < band.low:
        label = "interactive"
    elif p_deep >= band.high:
        label = "deep"
    task_class = TaskClass(
        label=label,
        by_words=label,
        p_deep=p_deep,
        p_security=p_security,
        security_sensitive=p_security >= band.security,
        expected_output_tokens=_expected_output_tokens(features, scores, p_deep, is_brief),
        p_gain=_logistic(scores.gain_log_odds),
        signals=(),
    )
    return Opinion(task_class, features, scores, strong)


def _security_log_odds(scores: Scores) -> float:
    """Returns the log-odds of security, for which words have to speak.

    Of a row of numbers, or of words with numbers, hardly more than the shape would.
    """
    found = scores.security_log_odds
    if found > NOTICED_LOG_ODDS and scores.security_in_words() < LEAST_IN_WORDS:
        return -MAX_LOG_ODDS
    return found


def _p_security(text: str) -> float:
    return form_opinion(features_of_text(text)).task_class.p_security


def _p_security_of_answer(text: str) -> float:
    """Goes by all of the words: an answer may name a strong term in passing."""
    return _logistic(_security_log_odds(served_model().score(read(text))))


def _p_security_of_instructions(text: str) -> float:
    """Leaves out general rules; where nothing would count with them, they are not looked for.

    What an agent is for is said in plain terms; kilobytes of prose have any other word somewhere.
    """
    p_security = _p_security(text)
    if p_security < HOLDS_FROM:
        return p_security
    text = without_rules(text)
    words = all_words_of(text.encode("utf-8", "replace"))
    if len(text) > MAX_PURPOSE_CHARS and not signals.security_terms(words, set(words)):
        return 0.0
    return _p_security(text)


@cache
def _telling_words() -> frozenset[bytes]:
    model = served_model()
    weights = model.table[: len(model.vocabulary), SECURITY].tolist()
    scored = zip(model.vocabulary, weights, strict=True)
    telling = {term for term, weight in scored if isinstance(term, bytes) and weight >= TELLING}
    return signals.SECURITY_FIRST_WORDS | telling


def _is_telling(text: str) -> bool:
    if len(text) > 2 * TELLING_CHARS:
        text = f"{text[:TELLING_CHARS]}\n{text[-TELLING_CHARS:]}"
    words = all_words_of(text.encode("utf-8", "replace"))
    return not _telling_words().isdisjoint(words)


_SENSITIVITY = Sensitivity(
    Judges(_p_security, _p_security_of_answer, _p_security_of_instructions, _is_telling)
)


def _shifts(features: Features) -> list[tuple[float, str]]:
    """Lists the request's other signals: log-odds towards deep, and a name."""
    shifts: list[tuple[float, str]] = []
    if features.num_context_tokens > signals.LONG_CONTEXT_TOKENS:
        doublings = math.log2(features.num_context_tokens / signals.LONG_CONTEXT_TOKENS)
        size = min(signals.MAX_CONTEXT, signals.PER_CONTEXT_DOUBLING * doublings)
        shifts.append((size, f"context of {features.num_context_tokens} tokens"))
    effort, tier = features.reasoning_effort, features.service_tier
    if effort in signals.REASONING_EFFORT:
        shifts.append((signals.REASONING_EFFORT[effort], f"reasoning effort {effort}"))
    if tier in signals.SERVICE_TIER:
        shifts.append((signals.SERVICE_TIER[tier], f"service tier {tier}"))
    return shifts


def _in_words(scores: Scores, shifts: list[tuple[float, str]]) -> list[str]:
    parts, everything = scores.parts(_NUM_SIGNALS)
    found = [(part.log_odds, part.name) for part in parts]
    if shifts:
        found = sorted(found + shifts, key=lambda part: -abs(part[0]))
        everything += sum([abs(size) for size, _ in shifts])
    percent = 100 / everything if everything else 0.0
    return [f"{name} {size:+.1f} ({abs(size) * percent:.0f} %)" for size, name in found if size]


def _is_about_a_word(words: list[bytes]) -> bool:
    """Says whether an ask is about a term itself: its spelling, or what it means in general."""
    if len(words) > MAX_DEFINITION_WORDS:
        return False
    defines = (
        words[0] in _DEFINING
        or words[:2] == [b"o", b"que"]
        or not _ASKING_CHARACTERS.isdisjoint(words)
    )
    return (defines and _OF_SOMETHING.isdisjoint(words)) or not _OF_SPELLING.isdisjoint(words)


def _expected_output_tokens(
    features: Features, scores: Scores, p_deep: float, is_brief: bool
) -> int:
    """Adjusts the lane's typical length by the model's estimate."""
    ratio = signals.DEEP_OUTPUT_TOKENS / signals.SMALL_OUTPUT_TOKENS
    tokens: float = signals.SMALL_OUTPUT_TOKENS * ratio**p_deep
    tokens *= (scores.output_tokens / signals.TYPICAL_OUTPUT_TOKENS) ** signals.OUTPUT_TRUST
    if features.reasoning_effort is not None:
        tokens *= signals.REASONING_OUTPUT.get(features.reasoning_effort, 1.0)
    if is_brief:
        tokens /= 2
    return max(1, round(tokens))


def _logistic(log_odds: float) -> float:
    """Returns the probability, to four digits."""
    if log_odds < -MAX_LOG_ODDS:
        return 0.0
    return int(10_000 / (1 + math.exp(-log_odds)) + 0.5) / 10_000
