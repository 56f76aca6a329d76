"""Python programs of any length, with tests that expect what the programs give.

A function is made of steps. Each reads one list of whole numbers and makes another; `_STEPS` holds
its code beside the arithmetic that the code stands for.
"""

from collections.abc import Callable
from itertools import accumulate, dropwhile

import msgspec

from backends.script.chance import Chance
from backends.script.topic import Topic

CHARS_PER_TOKEN = 4  # of generated code, measured; sizes are aimed at, not hit

_ADJECTIVES = (
    "active", "early", "final", "inner", "known", "large", "local", "main", "next", "older", "open",
    "outer", "pending", "plain", "prior", "ready", "recent", "shared", "small", "sorted", "stable",
    "valid", "visible", "wide",
)  # fmt: skip
_ITEMS = ("item", "value", "entry", "current", "element", "number", "candidate")
_KEPT = ("state", "seen", "memo", "tracker", "ledger", "level", "mark")
# For the steps of a long function, each of which needs names of its own: one token each.
_RESULTS = (
    "active", "ahead", "balanced", "blended", "bounded", "chosen", "clean", "closed",
    "copied", "counted", "drawn", "dropped", "early", "even", "filled", "filtered",
    "fitted", "folded", "fresh", "grouped", "joined", "kept", "known", "large", "leading",
    "level", "linked", "listed", "local", "mapped", "marked", "matched", "merged", "mixed", "moved",
    "named", "ordered", "packed", "paired", "passed", "picked", "placed", "plain", "pruned",
    "queued", "raised", "ranked", "reduced", "scaled", "scored", "shaped", "shifted", "smooth",
    "solid", "spaced", "staged", "stored", "trimmed", "unique", "usable", "valid", "visible",
    "weighed", "wide",
)  # fmt: skip
_CARRIED = (
    "bound", "carry", "count", "delta", "edge", "flag", "gauge", "height", "index", "last",
    "ledger", "margin", "mark", "memo", "offset", "peak", "pivot", "prior", "rate", "score",
    "seen", "share", "spread", "state", "tally", "total", "tracker", "weight",
)  # fmt: skip
_CASES = (
    "empty_input", "single_value", "typical_input", "repeated_values", "large_limit", "zero_limit",
    "ascending_input", "descending_input", "all_equal", "many_values",
)  # fmt: skip
_NOTES = ("Note", "Input", "Output", "Cost", "Memory", "Errors", "Order", "Limits")
_GUARD = '    if limit < 0:\n        raise ValueError("limit must not be negative")'


class ProgramStep(msgspec.Struct, frozen=True):
    """One loop over a list; `{out}` starts empty, and `{extra}` is kept from value to value."""

    comments: tuple[str, ...]  # sentences to choose from; {k} and {noun}
    verbs: tuple[str, ...]  # for the names of functions that end with it
    extra: str  # what {extra} starts as; empty where the step keeps nothing
    body: str  # of the loop
    run: Callable[[list[int], int, int], list[int]]  # values, limit, k -> result

    def template(self) -> str:
        """The step in a function; a {gap} may separate the loop from what precedes it."""
        extra = f"    {{extra}} = {self.extra}\n" if self.extra else ""
        body = self.body.replace("\n", "\n        ")
        loop = f"{{gap}}    for {{item}} in {{source}}:\n        {body}"
        return f"    # {{comment}}\n    {{out}} = []\n{extra}{loop}"


# Values stay below 1,009, so that what a test expects is short.
_STEPS = (
    ProgramStep(
        ("Keep only {noun} within the limit.", "Drop every {noun} that exceeds the limit."),
        ("select", "restrict"),
        "",
        "if {item} <= limit:\n    {out}.append({item})",
        lambda values, limit, _: [v for v in values if v <= limit],
    ),
    ProgramStep(
        ("Leave out each multiple of {k}.", "Multiples of {k} carry nothing new."),
        ("thin", "sieve"),
        "",
        "if {item} % {k} != 0:\n    {out}.append({item})",
        lambda values, _, k: [v for v in values if v % k != 0],
    ),
    ProgramStep(
        ("Spread the {noun} values over the whole range.", "Mix: nearby values end up far apart."),
        ("scale", "spread"),
        "",
        "{out}.append(({item} * {k} + 7) % 1009)",
        lambda values, _, k: [(v * k + 7) % 1009 for v in values],
    ),
    ProgramStep(
        ("Each {noun} counts once.", "Remove duplicates but keep the order."),
        ("dedupe", "unique"),
        "{{}}",
        "if {extra}.get({item}, 0) == 0:\n    {extra}[{item}] = 1\n    {out}.append({item})",
        lambda values, _limit, _k: list(dict.fromkeys(values)),
    ),
    ProgramStep(
        ("Running totals: position i holds the sum so far.", "Accumulate the {noun} values."),
        ("accumulate", "total"),
        "0",
        "{extra} = ({extra} + {item}) % 1009\n{out}.append({extra})",
        lambda values, _limit, _k: [total % 1009 for total in accumulate(values)],
    ),
    ProgramStep(
        ("Outliers above {k} count as {k}.", "Cap each {noun} at {k}."),
        ("cap", "clamp"),
        "",
        "if {item} > {k}:\n    {out}.append({k})\nelse:\n    {out}.append({item})",
        lambda values, _, k: [min(v, k) for v in values],
    ),
    ProgramStep(
        ("Distance of each {noun} from the one before.", "What matters is the change."),
        ("differences", "compare"),
        "0",
        "if {item} >= {extra}:\n    {out}.append({item} - {extra})\n"
        "else:\n    {out}.append({extra} - {item})\n{extra} = {item}",
        lambda values, _limit, _k: [abs(b - a) for a, b in zip([0, *values], values, strict=False)],
    ),
    ProgramStep(
        ("Remember the largest {noun} seen so far.", "Never fall below an earlier peak."),
        ("peaks", "envelope"),
        "0",
        "if {item} > {extra}:\n    {extra} = {item}\n{out}.append({extra})",
        lambda values, _limit, _k: list(accumulate(values, max)),
    ),
    ProgramStep(
        ("How often each {noun} has occurred by now.", "Count occurrences as they come."),
        ("count", "tally"),
        "{{}}",
        "{extra}[{item}] = {extra}.get({item}, 0) + 1\n{out}.append({extra}.get({item}, 0))",
        lambda values, _limit, _k: [values[: i + 1].count(v) for i, v in enumerate(values)],
    ),
    ProgramStep(
        ("Weight each {noun} by its position.", "Later values weigh more."),
        ("weight", "rank"),
        "0",
        "{out}.append(({item} + {extra}) % 1009)\n{extra} = {extra} + {k}",
        lambda values, _, k: [(v + i * k) % 1009 for i, v in enumerate(values)],
    ),
    ProgramStep(
        ("Skip the warm-up: start at the first {noun} above {k}.", "Ignore leading noise."),
        ("trim", "skip"),
        "0",
        "if {item} > {k}:\n    {extra} = 1\nif {extra} == 1:\n    {out}.append({item})",
        lambda values, _, k: list(dropwhile(lambda v: v <= k, values)),
    ),
)
_STEP_TEMPLATES = tuple((step, step.template()) for step in _STEPS)


class Program(msgspec.Struct, frozen=True):
    """A function with the functions that it calls."""

    name: str
    text: str
    steps: tuple[tuple[ProgramStep, int], ...]  # each with its constant k, in order

    def run(self, values: list[int], limit: int) -> list[int]:
        """What the function gives for a limit that is not negative."""
        for step, k in self.steps:
            values = step.run(values, limit, k)
        return values


def write_program(topic: Topic, chance: Chance, num_tokens: int) -> Program:
    """A program of about so many tokens: helper functions and one that calls them in turn."""
    name = topic.function
    names = {name}
    helpers: list[Program] = []
    num_chars = 400  # what the main function takes, about
    while num_chars < num_tokens * CHARS_PER_TOKEN:
        helpers.append(_helper(topic, chance, names))
        num_chars += len(helpers[-1].text) + 1
    if not helpers:
        return _function(name, *_few_steps(topic, chance, chance.between(1, 2)))
    body, source = [_GUARD], "values"
    called = helpers[-6:]
    for index, helper in enumerate(called, 1):
        out = f"{chance.pick(_ADJECTIVES)}_{topic.variable}_{index}"
        body.append(f"    {out} = {helper.name}({source}, limit)")
        source = out
    main = _function(name, body, source, [step for helper in called for step in helper.steps])
    text = "\n\n\n".join([*(helper.text for helper in helpers), main.text])
    return msgspec.structs.replace(main, text=text)


def write_long_function(topic: Topic, chance: Chance, num_lines: int) -> Program:
    """A single function of exactly so many lines, at least the four of its frame."""
    num_written = 4  # signature, guard of two, return
    blocks: list[str] = []
    steps: list[tuple[ProgramStep, int]] = []
    source = "values"
    results, carried = (chance.some(words, len(words)) for words in (_RESULTS, _CARRIED))
    while True:
        out, extra = _nth(results, len(steps)), _nth(carried, len(steps))
        names = {"source": source, "out": out, "item": chance.pick(_ITEMS), "extra": extra}
        block, step = _step(topic, chance, names, gap="\n")
        num_block = block.count("\n") + 1
        if num_written + num_block > num_lines:
            break
        num_written += num_block + 1  # an empty line between two blocks
        blocks.append(block)
        steps.append(step)
        source = out
    body = [_GUARD, "\n\n".join(blocks)] if blocks else [_GUARD]
    function = _function(topic.function, body, source, steps)
    missing = num_lines - function.text.count("\n") - 1
    notes = [
        f"# {_NOTES[i % len(_NOTES)]}: {chance.pick(_ADJECTIVES)} {topic.noun} first.\n"
        for i in range(missing)
    ]
    return msgspec.structs.replace(function, text="".join(notes) + function.text)


def write_tests(program: Program, chance: Chance, number: int) -> str:
    """Tests of a program; each expects what the program really gives."""
    tests = []
    for index in range(number):
        turn, which = divmod(index, len(_CASES))
        case = f"{_CASES[which]}_{turn + 1}" if turn else _CASES[which]
        values = _case_values(case, chance)
        limit = 0 if case.startswith("zero_limit") else chance.between(20, 400)
        expected = program.run(values, limit)
        tests.append(
            f"def test_{program.name}_{case}() -> None:\n"
            f"    assert {program.name}({values}, {limit}) == {expected}"
        )
    return "\n\n\n".join(tests)


def _case_values(case: str, chance: Chance) -> list[int]:
    if case.startswith("empty"):
        return []
    number = 1 if case.startswith("single") else chance.between(4, 8)
    if case.startswith("all_equal"):
        return [chance.between(1, 99)] * number
    values = [chance.below(300) for _ in range(number)]
    if case.startswith("repeated"):
        return values + values[:2]
    if case.startswith("ascending"):
        return sorted(values)
    return sorted(values, reverse=True) if case.startswith("descending") else values


def _helper(topic: Topic, chance: Chance, names: set[str]) -> Program:
    """A short function whose name is not yet among the names."""
    body, source, steps = _few_steps(topic, chance, chance.between(1, 3))
    name = f"{chance.pick(steps[-1][0].verbs)}_{chance.pick(_ADJECTIVES)}_{topic.variable}"
    if name in names:
        name = f"{name}_{len(names)}"
    names.add(name)
    return _function(name, body, source, steps)


def _few_steps(
    topic: Topic, chance: Chance, number: int
) -> tuple[list[str], str, list[tuple[ProgramStep, int]]]:
    """A function's body, the variable that holds its result, and its steps."""
    body = [_GUARD] if chance.often(60) else []
    steps = []
    source = "values"
    for index in range(1, number + 1):
        suffix = f"_{index}" if index > 1 else ""
        names = {
            "source": source,
            "out": f"{chance.pick(_ADJECTIVES)}_{topic.variable}{suffix}",
            "item": chance.pick(_ITEMS),
            "extra": f"{chance.pick(_KEPT)}{suffix}",
        }
        block, step = _step(topic, chance, names)
        body.append(block)
        steps.append(step)
        source = names["out"]
    return body, source, steps


def _step(
    topic: Topic, chance: Chance, names: dict[str, str], gap: str = ""
) -> tuple[str, tuple[ProgramStep, int]]:
    """A comment and a step under it; and the step with its constant."""
    step, template = chance.pick(_STEP_TEMPLATES)
    k = chance.between(2, 97)
    comment = chance.pick(step.comments).format(k=k, noun=topic.noun)
    return template.format(comment=comment, k=k, gap=gap, **names), (step, k)


def _nth(words: list[str], index: int) -> str:
    """A word for each index, numbered once they have all been used."""
    turn, which = divmod(index, len(words))
    return f"{words[which]}{turn + 1}" if turn else words[which]


def _function(
    name: str, body: list[str], result: str, steps: list[tuple[ProgramStep, int]]
) -> Program:
    signature = f"def {name}(values: list[int], limit: int) -> list[int]:"
    text = "\n".join([signature, *body, f"    return {result}"])
    return Program(name, text, tuple(steps))
