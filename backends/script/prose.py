"""Writes prose of any length about a topic: plain technical sentences, no two alike."""

from backends.script.chance import Chance
from backends.script.topic import Topic

_ASPECTS = (
    "the input", "the output", "the error path", "the common case", "the edge case",
    "the data model", "the interface", "the test suite", "memory use", "latency", "throughput",
    "the order of events", "ownership", "the retry policy", "the cache", "concurrency", "naming",
    "the rollout", "monitoring", "the configuration", "the schedule", "the public contract",
)  # fmt: skip
_QUALITIES = (
    "small", "explicit", "predictable", "easy to test", "cheap to change", "hard to misuse",
    "fast enough", "boring", "visible", "bounded", "stable", "reversible", "local", "measurable",
)  # fmt: skip
_ACTIONS = (
    "start with", "write down", "measure", "isolate", "name", "test", "review", "simplify", "fix",
    "agree on", "document", "automate",
)  # fmt: skip
_REASONS = (
    "later changes stay cheap", "failures show up early", "nobody has to guess",
    "the rest follows from it", "it is where most time goes", "it decides what can run in parallel",
    "reviewers can follow it", "it is the part that users see", "it keeps the state in one place",
    "the tests then read like the rules", "mistakes there are the expensive ones",
)  # fmt: skip
_CONDITIONS = (
    "if the load doubles", "when the input is empty", "once a second team depends on it",
    "when something fails halfway", "as soon as order matters", "before it goes live",
    "if two callers arrive at once", "when the numbers get large", "after the first release",
    "while the old version still runs", "when a request is repeated", "if the network is slow",
)  # fmt: skip
_PATTERNS = (
    "For {t}, {a} should be {q}, because {r}.",
    "{I} {a} first: {r}.",
    "{C}, {a} has to stay {q}.",
    "The part of {t} that people underestimate is {a}; {r}.",
    "Keep {a} {q} and {a} {q}, and {r}.",
    "A {q} approach to {w} pays off {c}.",
    "With {w} in mind, {i} {a} before {a}.",
    "{A} and {a} pull in different directions here; prefer the one that keeps {w} {q}.",
    "Do not let {a} leak into {a}: {w} is easier to reason about when each is {q}.",
    "{A} matters more than {a} for {t}, as {r}.",
    "A good test for {w} is whether {a} stays {q} {c}.",
    "Most trouble with {t} comes from {a}, not from {a}.",
    "If you can only do one thing about {w}, {i} {a}.",
    "{A} can wait; {a} cannot, because {r}.",
    "Treat {a} as {q} by default and relax that only {c}.",
    "What makes {w} {q} in practice is {a}, together with {a}.",
)
_HEADINGS = (
    "What matters for {w}", "{A}", "How {a} fits in", "Limits of {w}", "{A} and {a}", "Next: {a}",
)  # fmt: skip

_SLOTS = {"a": _ASPECTS, "c": _CONDITIONS, "i": _ACTIONS, "q": _QUALITIES, "r": _REASONS}


class Prose:
    """Writes sentences about one topic, never the same one twice."""

    def __init__(self, topic: Topic, chance: Chance) -> None:
        self._phrase = topic.phrase
        self._words = topic.words or (topic.phrase,)
        self._chance = chance
        self._said: set[str] = set()

    def sentence(self) -> str:
        return self._new(_PATTERNS)

    def heading(self) -> str:
        return self._new(_HEADINGS)

    def paragraph(self, num_sentences: int) -> str:
        return " ".join([self.sentence() for _ in range(num_sentences)])

    def listed(self, number: int, marker: str) -> str:
        """Writes a list of sentences; in the marker, {} stands for an entry's number."""
        return "\n".join(f"{marker.format(i + 1)} {self.sentence()}" for i in range(number))

    def _new(self, patterns: tuple[str, ...]) -> str:
        for _ in range(20):
            text = self._fill(self._chance.pick(patterns))
            if text not in self._said:
                break
        else:
            # Nearly all are used up: a numbered remark differs from every one before it.
            text = f"Remark {len(self._said) + 1}: {text}"
        self._said.add(text)
        return text

    def _fill(self, pattern: str) -> str:
        """Replaces a pattern's letters in braces; a capital letter begins a sentence."""
        text, *pieces = pattern.split("{")
        pick = self._chance.pick
        aspects: list[str] = []
        for piece in pieces:
            letter = piece[0]
            if letter == "t":
                word = self._phrase
            elif letter == "w":
                word = pick(self._words)
            else:
                word = pick(_SLOTS[letter.lower()])
                while letter in "aA" and word in aspects:
                    word = pick(_ASPECTS)
                aspects.append(word)
            text += (word[0].upper() + word[1:] if letter.isupper() else word) + piece[2:]
        return f"An {text[2:]}" if text[:2] == "A " and text[2] in "aeiou" else text
